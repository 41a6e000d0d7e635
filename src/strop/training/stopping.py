"""Being asked to stop in the middle of a run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether somebody has asked."""

    asked = False


@contextmanager
def stopping(world: int) -> Iterator[Stop]:
    """Let Ctrl-C and SIGTERM end the run after the step under way, saved.

    Of several processes each would stop at a step of its own and wait for the others; there the
    signals keep their usual meaning and the last resume state holds.
    """
    stop = Stop()

    def ask(_number: int, _frame: FrameType | None) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    if world > 1:
        yield stop
        return
    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: somebody else's signals
        yield stop
        return
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
