"""The frontier: perplexity and entropy against temperature at fixed budgets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strop.studies.audit import GRID
from strop.studies.folder import Folder
from strop.studies.sampled import Sampling
from strop.studies.selection import Setting

__all__ = ["STEPS", "STUDY", "TEMPERATURES", "grid", "run_frontier"]

STUDY = "frontier"
STEPS = (8, 128, 1024)
TEMPERATURES = tuple(setting.temperature for setting in GRID if setting.precision == "float64")
RUNS = ("run",)


def grid(
    steps: Sequence[int], temperatures: Sequence[float], precisions: Sequence[str]
) -> list[tuple[int, Setting]]:
    """Every temperature at every budget, precision by precision."""
    return [
        (m, Setting(tau, precision))
        for precision in precisions
        for m in steps
        for tau in temperatures
    ]


def run_frontier(
    checkpoint: str,
    sampling: Sampling,
    *,
    out: Path,
    steps: Sequence[int] = STEPS,
    temperatures: Sequence[float] = TEMPERATURES,
    precisions: Sequence[str] = ("float64", "float32"),
    sampler: str | None = None,
) -> dict[str, Any]:
    """Sample and score every temperature at every budget."""
    points = grid(steps, temperatures, precisions)
    with Folder.open(out, STUDY, runs=RUNS, force=sampling.force) as folder:
        scored = sampling.run(checkpoint, points, out / RUNS[0], sampler=sampler)
        guard = scored[0].summary.guard
        rows = [one.row() for one in scored]
        result = {
            "asked": {"checkpoint": checkpoint, "sampler": sampler, **sampling.asked()},
            "guard": {"threshold": guard.threshold, "source": guard.source},
            "rows": rows,
        }
        folder.finish(result, rows)
        from strop.studies.sampled_figures import save_frontier

        save_frontier(result, folder.figures())
    return result
