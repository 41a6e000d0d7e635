"""What the command runs first: ready for Ctrl-C before anything large is loaded.

torch gives freed tensors back to the C library, and glibc gives large pieces back to the
system at once; the next tensor then pays for fresh pages. Networks ask for the same sizes again and
again, so a command keeps its memory until it ends; `benchmarks/allocator.py` measures the gain.
"""

from __future__ import annotations

import signal
import sys

# <malloc.h>: the parameters' numbers, and values that fit a C int.
MALLOC = {
    -3: 32 * 2**20,  # M_MMAP_THRESHOLD: its largest value; beyond it pieces are always returned
    -1: 2**31 - 1,  # M_TRIM_THRESHOLD: how much may stay unused at the end of the heap
    -2: 64 * 2**20,  # M_TOP_PAD: how much more to ask for at a time
}


def main(argv: list[str] | None = None) -> None:
    """Run one command and leave with its exit code."""
    words = sys.argv[1:] if argv is None else argv
    try:
        # A batch system that ends a job says so with SIGTERM: like Ctrl-C, finish what can be kept.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        from strop.cli.main import run

        keep_pages()
        code = run(words)
    except KeyboardInterrupt:  # while loading: `run` tells its own
        code = _report_interrupt("--json" in words)
    sys.exit(code)


def _report_interrupt(as_json: bool) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not stop the report
    from strop.cli.main import INTERRUPTED
    from strop.cli.output import fail

    return fail(INTERRUPTED, as_json)


def keep_pages() -> bool:
    """Ask glibc to keep freed memory; elsewhere nothing happens. Whether it was asked."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    return all(mallopt(number, value) == 1 for number, value in MALLOC.items())
