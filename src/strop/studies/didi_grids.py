"""DiDi-Instruct with and without its reward: every temperature and precision at every budget."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strop.studies import paper
from strop.studies.audit import GRID_STEPS
from strop.studies.contenders import CHECKPOINTS, MODELS, PROTOCOL
from strop.studies.dressed import dressed
from strop.studies.folder import Folder
from strop.studies.frontier import TEMPERATURES, grid
from strop.studies.sampled import Sampling

__all__ = ["GRIDS", "SOURCE", "STUDY", "run_didi_grids"]

STUDY = "didi-grids"
SOURCE = MODELS["DiDi-Instruct"].source
GRIDS = {"guided": "didi-guided", "ancestral": "didi-ancestral"}
"""The samplers, by the name that their run directories and the paper's tables have."""


def run_didi_grids(
    checkpoint: str | None,
    sampling: Sampling,
    *,
    out: Path,
    steps: Sequence[int] = GRID_STEPS,
    temperatures: Sequence[float] = TEMPERATURES,
    precisions: Sequence[str] = ("float64", "float32"),
) -> dict[str, Any]:
    """Sample and score both grids, and put the paper's numbers beside them.

    Without a checkpoint it is a smoke run: the embedded model as the student, with a discriminator
    of random weights.
    """
    points = grid(steps, temperatures, precisions)
    keys = ("steps", "temperature", "precision")
    with Folder.open(out, STUDY, runs=(CHECKPOINTS, *GRIDS), force=sampling.force) as folder:
        checkpoint = dressed(out / CHECKPOINTS)["didi"] if checkpoint is None else checkpoint
        rows = []
        guard = None
        for name, sampler in GRIDS.items():
            scored = sampling.run(checkpoint, points, out / name, sampler=sampler)
            guard = scored[0].summary.guard
            printed = {
                tuple(row[key] for key in keys): row
                for row in paper.table(f"grid-didi-{name}").records()
            }
            for one in scored:
                row = one.row()
                said = printed.get(tuple(row[key] for key in keys), {})
                more = {"paper": said.get("perplexity"), "paper_entropy": said.get("entropy")}
                rows.append({"sampler": name, **row, **more})
        assert guard is not None
        result = {
            "asked": {"checkpoint": checkpoint, **sampling.asked()},
            "guard": {"threshold": guard.threshold, "source": guard.source},
            "protocol": list(PROTOCOL),
            "rows": rows,
        }
        folder.finish(result, rows)
        from strop.studies.family_figures import save_didi_grids

        save_didi_grids(result, folder.figures())
    return result
