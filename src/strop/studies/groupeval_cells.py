"""GroupEval of standard against sharpened pools, from sampling to the panel.

Every judge that has a series in OUT/groupeval takes part; where there is none yet, the offline
judge makes the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strop.denoisers import load_model
from strop.errors import UserError
from strop.facts import default_sampler
from strop.generate import sample_cells
from strop.groupeval.series import list_series
from strop.groupeval.verdicts import load
from strop.spec import SamplerSpec
from strop.studies.figure import write_figure
from strop.studies.folder import Folder
from strop.studies.groupeval_panel import Panel, measured
from strop.studies.groupeval_study import summary
from strop.studies.judged import judge_texts

if TYPE_CHECKING:
    from strop.studies.item import Setup

__all__ = ["run_groupeval"]

SETTINGS: dict[str, dict[str, Any]] = {
    "standard": {"temperature": 1.0, "precision": "float64"},
    "sharpened": {"temperature": 0.9, "precision": "float32"},
}
RUNS = ("run", "groupeval")


def run_groupeval(setup: Setup, study: str) -> tuple[Panel, dict[str, Any]]:
    """Sample the cells, judge them offline if nobody has, and compare."""
    model = load_model(setup.checkpoints[0], device=setup.device)
    sampler = default_sampler(model.spec.family)
    points = [(steps, name) for steps in setup.steps for name in SETTINGS]
    specs = [SamplerSpec(name=sampler, steps=m, **SETTINGS[name]) for m, name in points]
    with Folder.open(setup.out, study, runs=RUNS) as folder:
        pools = sample_cells(
            model,
            specs,
            n=setup.n,
            seed=setup.seed,
            out=setup.out / RUNS[0],
            progress=setup.progress,
        )
        texts = {}
        for (steps, name), pool in zip(points, pools, strict=True):
            if pool.texts is None:
                raise UserError("The outputs have no texts to judge.", where=setup.out / RUNS[0])
            texts[f"{name} {steps}"] = pool.texts
        where = setup.out / RUNS[1]
        judge_texts(texts, where, seed=setup.seed)
        series = {one.name: load(f"{where}@{one.id}") for one in list_series(where)}
        pairs = {m: (f"standard {m}", f"sharpened {m}") for m in setup.steps}
        panel = measured(setup.checkpoints[0], series, pairs, seed=setup.seed)
        document = {"asked": {"checkpoint": setup.checkpoints[0], "n": setup.n}, **summary(panel)}
        rows = [
            {
                "judge": row.judge,
                "steps": row.steps,
                "geq standard": row.geq[0],
                "geq sharpened": row.geq[1],
                "low": row.interval[0],
                "high": row.interval[1],
                "ged standard": row.ged[0],
                "ged sharpened": row.ged[1],
            }
            for row in panel.rows
        ]
        folder.finish({**document, "rows": rows}, rows)
        from strop.studies.groupeval_figure import draw

        write_figure(lambda: draw(panel), folder.figures())
    return panel, document
