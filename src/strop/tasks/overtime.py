"""A limit of time for a task's own code, which runs in this process: its filters and its check.

A regular expression that tries everything, on the one response that makes it, would stop a run for
good. An alarm ends it, in the main thread alone: Python delivers signals nowhere else. Code in C
that looks at no signal (a power of huge numbers) ends when it ends; regular expressions do look.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
SECONDS = 10.0
"""What one filter, or one check, may take for one response."""


class Overtime(BaseException):
    """What is not done in time. No `Exception`: code of others catches those."""

    def __str__(self) -> str:
        return f"does not end within {SECONDS:g} seconds"


def within(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function, or end it with `Overtime`; other threads wait for as long as it takes."""
    if threading.current_thread() is not threading.main_thread():
        return function(*arguments)

    def ring(*_: Any) -> NoReturn:
        raise Overtime

    start = time.monotonic()
    before = signal.signal(signal.SIGALRM, ring)
    theirs, _ = signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        try:
            return function(*arguments)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:  # also if it rings on the way out
        signal.signal(signal.SIGALRM, before)
        if theirs:  # somebody else's alarm, which may be due by now
            left = theirs - (time.monotonic() - start)
            signal.setitimer(signal.ITIMER_REAL, max(left, 1e-6))
