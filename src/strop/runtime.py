"""What a process asks of the libraries below torch: threads that sleep while they wait.

torch shares a product among OpenMP threads, which by default spin while they wait. On a
machine that does other work too, a thread spins for a partner that has no core, for as long as the
scheduler likes; `benchmarks/contention.py` measures it. The libraries (GNU's, Intel's, LLVM's)
read their settings once, when they are loaded: this must come before torch.
"""

from __future__ import annotations

import os
from pathlib import Path

SETTING = ("OMP_WAIT_POLICY", "PASSIVE")
OWN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
"""Whoever has set one of these has decided."""


def wait_asleep() -> None:
    """Have threads sleep while they wait, unless the user has said how they should."""
    if not any(name in os.environ for name in OWN):
        os.environ.setdefault(*SETTING)


def source_path() -> str:
    """So that a worker finds the strop that started it."""
    here = str(Path(__file__).resolve().parents[1])
    return os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
