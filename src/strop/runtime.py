"""What a process asks of the libraries below torch, and how much one call may ask for.

torch shares a product among OpenMP threads, which by default spin while they wait. On a machine
that does other work too, a thread spins for a partner that has no core, for as long as the
scheduler likes; `benchmarks/contention.py` measures it. So threads sleep while they wait. The
libraries (GNU's, Intel's, LLVM's) read their settings once, when they are loaded: this must come
before torch.

Every size that multiplies has a bound, which is checked before any work. The bounds are far above
what anybody needs and below what takes a machine down, so a mistyped number is refused at once
instead of filling the memory hours later.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from strop.errors import UserError

# ----------------------------------------------------------------------------------------- bounds

MOST_OUTPUTS = 2**24
"""Outputs of all cells of one call; their plan alone takes half a gigabyte."""
MOST_LENGTH = 2**20
"""Positions of one output, prompt included."""
MOST_AT_ONCE = 2**26
"""Positions of all sequences of a batch: 256 GB of states in a small model."""
MOST_VALUES = 10_000
"""Values of one axis of a search."""
MOST_REPLICATES = 1_000_000
"""Replicates of a bootstrap."""
MOST_WEIGHTS = 2**31
"""Weights of a random checkpoint: 8 GB, and as much again while they are written."""
PER_CORE = 4
"""Processes that may share a core of this machine."""
MOST_ACTORS = 4096
"""Processes that a cluster may be asked for; its cores are not ours to count."""


def bounded(name: str, value: float, most: int, fix: str) -> None:
    """Refuse a number beyond its bound; `name` is the argument as an error names it."""
    if value > most:
        raise UserError(
            f"{name} asks for too much in one call.",
            where=name,
            got=f"{value:,.0f}" if value < 1e18 else f"{value:.3g}",
            expected=f"at most {most:,}",
            fix=fix,
        )


def bounded_outputs(counts: Iterable[int]) -> None:
    """Refuse more outputs, over all cells, than one call can plan."""
    bounded("`n`", sum(counts), MOST_OUTPUTS, "ask for fewer, in several runs with other seeds")


def bounded_batch(batch_size: int, length: int = 1) -> None:
    """Refuse a batch that fits into no memory."""
    fix = "use a smaller `batch_size`, or leave it out: the default fits"
    bounded("`batch_size`", batch_size * length, MOST_AT_ONCE, fix)


def bounded_workers(count: int, *, on_this_machine: bool) -> None:
    """Refuse more processes than this machine, or any cluster, can run side by side."""
    fix = f"cpu:{cores()} gives each core one process"
    bounded("`devices`", count, PER_CORE * cores() if on_this_machine else MOST_ACTORS, fix)


def cores() -> int:
    """The number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


# ---------------------------------------------------------------------------------------- runtime

SETTING = ("OMP_WAIT_POLICY", "PASSIVE")
OWN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
"""Whoever has set one of these has decided."""


def wait_asleep() -> None:
    """Have threads sleep while they wait, unless the user has said how they should."""
    if not any(name in os.environ for name in OWN):
        os.environ.setdefault(*SETTING)


def source_path() -> str:
    """So that a worker finds the strop that started it."""
    root = str(Path(__file__).resolve().parents[1])
    return os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
