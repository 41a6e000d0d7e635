"""The process of a model's program: reads it, then answers calls of its functions.

One request per line on standard input, one reply per line on standard output. Nothing here is
trusted once the program was read: it can patch this process as it likes, and all that leaves it is
text, of which the checker makes plain values.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from types import ModuleType
from typing import Any, cast

from strop.tasks.inside.plain import confine, pack, unpack

SHOWN = 300
"""Characters of an error's message."""


def main() -> None:
    """Answer until the checker has no more questions."""
    confine(json.loads(sys.argv[1]))
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # What the program prints is captured apart, and what it reads is nothing.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    cast("Any", sys.stdout).reconfigure(line_buffering=True)  # seen even if it is killed
    module = ModuleType("program")
    sys.modules["program"] = module
    for line in requests:
        answer = _answer(module, json.loads(line))
        with suppress(BaseException):  # the program may have put anything there
            sys.stderr.flush()
            sys.stdout.flush()
        replies.write(answer + b"\n")
        replies.flush()


def _answer(module: ModuleType, request: dict[str, Any]) -> bytes:
    try:
        if "program" in request:
            exec(compile(request["program"], "program.py", "exec"), module.__dict__)
            return _line({"value": None})
        args, kwargs = unpack(request["args"]), unpack(request["kwargs"])
        return _line({"value": pack(getattr(module, request["call"])(*args, **kwargs))})
    except BaseException as error:  # SystemExit too: an early exit is no answer
        return _line({"error": type(error).__name__, "message": _message(error)})


def _line(reply: dict[str, Any]) -> bytes:
    return json.dumps(reply).encode()


def _message(error: BaseException) -> str:
    try:
        return str(error)[:SHOWN]
    except BaseException:  # `__str__` is the program's own
        return ""
