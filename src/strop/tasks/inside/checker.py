"""The process of the tests: runs `check(candidate)` of a problem, and alone gives the verdict.

It never runs or imports the model's program. `candidate` is a stand-in that sends its arguments to
the program's process and rebuilds the answer as plain values. Helpers that the tests use come from
the problem's own prompt, not from what the model made of them.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable
from typing import IO, Any

from strop.tasks.inside.plain import NotPlain, confine, pack, unpack

LINE = 1 << 23
"""Bytes of one reply: eight megabytes."""


class Raised(Exception):
    """The program raised an error."""


class Broken(BaseException):
    """The program stopped answering as it should; no `except Exception` of a test hides it."""

    def __init__(self, outcome: str, detail: str) -> None:
        self.outcome, self.detail = outcome, detail
        super().__init__(detail)


class Program:
    """The other process."""

    def __init__(self, send: IO[bytes], receive: IO[bytes]) -> None:
        self._send, self._receive = send, receive
        self.calls = 0

    def load(self, source: str) -> None:
        """Have it read the program."""
        self._ask({"program": source})

    def function(self, name: str) -> Callable[..., Any]:
        """A stand-in for one of its functions."""

        def candidate(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return self._ask({"call": name, "args": pack(args), "kwargs": pack(kwargs)})

        return candidate

    def _ask(self, request: dict[str, Any]) -> Any:
        try:
            self._send.write(json.dumps(request).encode() + b"\n")
            self._send.flush()
        except OSError:
            raise Broken("ended", "the program ended early") from None
        line = self._receive.readline(LINE + 1)
        if len(line) > LINE:
            raise Broken("output", "the program's answer is too long")
        if not line.endswith(b"\n"):
            raise Broken("ended", "the program ended early")
        return _value(line)


def _value(line: bytes) -> Any:
    try:
        reply = json.loads(line)
        if "value" in reply:
            return unpack(reply["value"])
        error, message = str(reply["error"])[:100], str(reply["message"])[:300]
    except (NotPlain, RecursionError) as wrong:
        raise Broken("error", str(wrong)[:300]) from None
    except (ValueError, TypeError, LookupError):
        raise Broken("error", "what the program sent is no answer") from None
    if error == "MemoryError":
        raise Broken("memory", "the program wanted more memory than it may have")
    raise Raised(f"{error}: {message}" if message else error)


def main() -> None:
    """Read the job, ask the program, write one verdict."""
    confine(json.loads(sys.argv[1]))
    job = json.loads(sys.stdin.buffer.read())
    verdict = os.dup(1)
    os.dup2(2, 1)  # what tests print is no verdict
    program = Program(os.fdopen(int(sys.argv[2]), "wb"), os.fdopen(int(sys.argv[3]), "rb"))
    outcome, detail = _outcome(program, job)
    result = {"outcome": outcome, "detail": detail, "calls": program.calls}
    os.write(verdict, json.dumps(result).encode())
    os._exit(0)  # no flush into a pipe that nobody reads any more


def _outcome(program: Program, job: dict[str, str]) -> tuple[str, str]:
    try:
        program.load(job["program"])
        _run_tests(program, job)
    except Broken as error:
        return error.outcome, error.detail
    except Raised as error:
        return "error", str(error)
    except AssertionError as error:
        return "wrong", str(error)[:300]
    except Exception as error:  # the tests cannot use the value, such as None where they index
        return "wrong", f"{type(error).__name__}: {error}"[:300]
    if not program.calls:
        return "wrong", "the tests never called the program"
    return "passed", ""


def _run_tests(program: Program, job: dict[str, str]) -> None:
    random.seed(0)  # three problems draw their cases; a verdict must not depend on the day
    space: dict[str, Any] = {"__name__": "tests"}
    exec(compile(job["prompt"], "prompt.py", "exec"), space)
    candidate = program.function(job["entry_point"])
    space[job["entry_point"]] = candidate  # some tests call it by its name
    exec(compile(job["test"], "test.py", "exec"), space)
    space["check"](candidate)
