"""What the command runs first: ready for Ctrl-C before anything large is loaded."""

from __future__ import annotations

import signal
import sys


def main(argv: list[str] | None = None) -> None:
    """Run one command and leave with its exit code."""
    words = sys.argv[1:] if argv is None else argv
    try:
        # A batch system that ends a job says so with SIGTERM: like Ctrl-C, finish what can be kept.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        from strop.cli.main import run
        from strop.runtime import keep_pages

        keep_pages()
        code = run(words)
    except KeyboardInterrupt:  # while loading: `run` tells its own
        code = _interrupted("--json" in words)
    sys.exit(code)


def _interrupted(as_json: bool) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an impatient second one must not end this
    from strop.cli.main import INTERRUPTED
    from strop.cli.output import fail

    return fail(INTERRUPTED, as_json)
