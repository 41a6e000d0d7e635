"""The frontier: perplexity and entropy against temperature at fixed budgets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strop.studies.audit import GRID
from strop.studies.folder import Folder
from strop.studies.sampled import Sampling
from strop.studies.selection import Setting

__all__ = ["STEPS", "STUDY", "TEMPERATURES", "run_frontier"]

STUDY = "frontier"
STEPS = (8, 128, 1024)
TEMPERATURES = tuple(setting.temperature for setting in GRID if setting.precision == "float64")
RUNS = ("run",)


def run_frontier(
    checkpoint: str,
    sampling: Sampling,
    *,
    out: Path,
    steps: Sequence[int] = STEPS,
    temperatures: Sequence[float] = TEMPERATURES,
    precisions: Sequence[str] = ("float64", "float32"),
) -> dict[str, Any]:
    """Sample and score every temperature at every budget."""
    points = [
        (m, Setting(tau, precision))
        for precision in precisions
        for m in steps
        for tau in temperatures
    ]
    with Folder.open(out, STUDY, runs=RUNS, force=sampling.force) as folder:
        scored = sampling.run(checkpoint, points, out / RUNS[0])
        guard = scored[0].summary.guard
        rows = [
            {
                "steps": one.steps,
                "temperature": one.setting.temperature,
                "precision": one.setting.precision,
                "perplexity": one.value().value,
                "low": one.value().low,
                "high": one.value().high,
                "entropy": None if one.summary.entropy is None else one.summary.entropy.value,
                "below_guard": one.summary.below_guard,
            }
            for one in scored
        ]
        result = {
            "asked": {"checkpoint": checkpoint, **sampling.asked()},
            "guard": {"threshold": guard.threshold, "source": guard.source},
            "rows": rows,
        }
        folder.finish(result, rows)
        from strop.studies.sampled_figures import save_frontier

        save_frontier(result, folder.figures())
    return result
