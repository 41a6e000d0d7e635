"""The process in which chat templates run: one request per line in, one answer per line out.

A template is a program of others. Jinja's sandbox keeps it from this machine, but not from its
memory and time: the limits here do, and whoever asks ends the process when it takes too long. It
is started as a file of its own, by `chat.py`, and imports nothing of strop.
"""

from __future__ import annotations

import json
import signal
import sys
from contextlib import suppress
from functools import lru_cache
from typing import Any, NoReturn


@lru_cache(maxsize=8)
def _compiled(source: str) -> Any:
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class GenerationTag(Extension):
        """`generation` marks what a model wrote, for training; here its content is all."""

        tags = {"generation"}  # noqa: RUF012 as the base class has it

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    # Jinja's own escapes what matters in HTML; a prompt is not a page.
    environment.filters["tojson"] = lambda value, indent=None, **_: json.dumps(
        value, ensure_ascii=False, indent=indent
    )
    environment.globals["raise_exception"] = _refuse
    return environment.from_string(source)


def _refuse(message: str) -> NoReturn:
    raise ValueError(message)


def _answer(request: dict[str, Any], most: int) -> dict[str, str]:
    try:
        text = _compiled(request["source"]).render(**request["names"])
    except Exception as error:  # the template is a program: it may fail in any way
        return {"error": f"{type(error).__name__}: {error}"[:200]}
    if len(text) > most:
        return {"error": f"it writes {len(text):,} characters for one conversation"}
    return {"text": text}


def main() -> None:
    """Answer requests until the input ends."""
    path, memory, seconds, most = json.loads(sys.argv[1])
    sys.path[:] = path
    _compiled("")  # what Jinja itself takes does not count as the template's
    with suppress(ImportError, OSError, ValueError):  # not everywhere; time is bounded all the same
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    for line in sys.stdin.buffer:
        # Who asked may be gone: then nobody else ends a template without an end.
        signal.setitimer(signal.ITIMER_REAL, 2 * seconds)
        answer = json.dumps(_answer(json.loads(line), most)).encode() + b"\n"
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
