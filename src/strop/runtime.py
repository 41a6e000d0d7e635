"""What the process asks of the libraries below torch: threads that sleep, and memory that stays.

Threads. torch shares a product among OpenMP threads, which by default spin while they wait. On a
machine that does other work too, a thread spins for a partner that has no core, for as long as the
scheduler likes; `benchmarks/contention.py` measures it. The libraries (GNU's, Intel's, LLVM's)
read their settings once, when they are loaded: this must come before torch.

Memory. torch gives freed tensors back to the C library, and glibc gives large pieces back to the
system at once; the next tensor then pays for fresh pages. Networks ask for the same sizes again and
again, so a command keeps what it has had until it ends: `benchmarks/allocator.py` measures what it
is worth.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

SETTING = ("OMP_WAIT_POLICY", "PASSIVE")
OWN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
"""Whoever has set one of these has decided."""

# <malloc.h>: the parameters' numbers, and values that fit a C int.
MALLOC = {
    -3: 32 * 2**20,  # M_MMAP_THRESHOLD: its largest value; beyond it pieces are always returned
    -1: 2**31 - 1,  # M_TRIM_THRESHOLD: how much may stay unused at the end of the heap
    -2: 64 * 2**20,  # M_TOP_PAD: how much more to ask for at a time
}


def wait_asleep() -> None:
    """Have threads sleep while they wait, unless the user has said how they should."""
    if not any(name in os.environ for name in OWN):
        os.environ.setdefault(*SETTING)


def keep_pages() -> bool:
    """Ask glibc to keep freed memory; elsewhere nothing happens. Whether it was asked."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes  # not before it is needed: `import strop` comes through here

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    return all(mallopt(number, value) == 1 for number, value in MALLOC.items())


def source_path() -> str:
    """So that a worker finds the strop that started it."""
    here = str(Path(__file__).resolve().parents[1])
    return os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
