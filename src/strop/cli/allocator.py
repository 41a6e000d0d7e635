"""The C library's memory, for commands that run networks.

torch gives freed tensors back to the C library, and glibc gives large pieces back to the system at
once; the next tensor then pays for fresh pages. Networks ask for the same sizes again and again, so
a command keeps what it has had until it ends: `benchmarks/allocator.py` measures what it is worth.
"""

from __future__ import annotations

import ctypes
import sys

__all__ = ["keep_pages"]

# <malloc.h>: the parameters' numbers, and values that fit a C int.
SETTINGS = {
    -3: 32 * 2**20,  # M_MMAP_THRESHOLD: its largest value; beyond it pieces are always returned
    -1: 2**31 - 1,  # M_TRIM_THRESHOLD: how much may stay unused at the end of the heap
    -2: 64 * 2**20,  # M_TOP_PAD: how much more to ask for at a time
}


def keep_pages() -> bool:
    """Ask glibc to keep freed memory; elsewhere nothing happens. Whether it was asked."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    return all(mallopt(number, value) == 1 for number, value in SETTINGS.items())
