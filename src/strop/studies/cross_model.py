"""MDLM among its successors: every family by its own sampler, under one protocol.

Seven rows by the number of updates, and a causal model as the reference that has no such number.
Updates are not network calls, so rows are not matched in compute; each family ends by its own
convention, which the result names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from strop.assets import CHECKPOINT, EVALUATOR
from strop.facts import SAMPLERS
from strop.studies import paper
from strop.studies.cells import Scored
from strop.studies.contenders import CHECKPOINTS, MODELS, PROTOCOL, run_folder
from strop.studies.dressed import dressed
from strop.studies.folder import Folder
from strop.studies.sampled import Sampling

__all__ = ["STEPS", "STUDY", "run_cross_model", "smoke_sources"]

STUDY = "cross-model"
STEPS = (4, 16, 64, 128, 256, 1024)


def smoke_sources(out: Path) -> dict[str, str]:
    """The embedded model in every family's layout; both DUO rows are one checkpoint."""
    made = dressed(out / CHECKPOINTS)
    return {
        "MDLM-Small": CHECKPOINT,
        "DUO": made["duo"],
        "DUO-DCD": made["duo"],
        "SEDD": made["sedd"],
        "DiDi-Instruct": made["didi"],
        "GPT-2": EVALUATOR,
    }


def run_cross_model(
    sources: Mapping[str, str] | None,
    sampling: Sampling,
    *,
    out: Path,
    steps: Sequence[int] = STEPS,
) -> dict[str, Any]:
    """Sample and score every row, and put the paper's numbers beside them.

    Without sources it is a smoke run on the embedded model in every family's layout.
    """
    runs = (CHECKPOINTS, *(run_folder(name) for name in MODELS))
    with Folder.open(out, STUDY, runs=runs, force=sampling.force) as folder:
        sources = smoke_sources(out) if sources is None else sources
        rows = []
        guards = []
        for name, source in sources.items():
            budgets = (0,) if MODELS[name].reference else sorted(set(steps))
            points = [(m, setting) for setting in MODELS[name].settings for m in budgets]
            scored = sampling.run(source, points, out / run_folder(name))
            guards.append(scored[0].summary.guard)
            rows += [_row(name, one) for one in scored]
        result = {
            "asked": {"checkpoints": dict(sources), **sampling.asked()},
            "guards": [
                {"threshold": threshold, "source": source}
                for threshold, source in dict.fromkeys((g.threshold, g.source) for g in guards)
            ],
            "protocol": list(PROTOCOL),
            "rows": rows,
        }
        folder.finish(result, rows)
        from strop.studies.family_figures import save_cross_model

        save_cross_model(result, folder.figures())
    return result


def _row(name: str, one: Scored) -> dict[str, Any]:
    generator = one.summary.cell.spec.generator
    sampler = generator.sampler
    causal = SAMPLERS[sampler.name].causal
    where: dict[str, Any] = {"steps": None, "temperature": None, "precision": None}
    if not causal:
        where = {"steps": one.steps, **vars(one.setting)}
    [printed] = paper.table(STUDY).records(model=name, **where) or [{}]
    return {
        "model": name,
        **one.row(),
        "steps": None if causal else one.steps,
        "sampler": sampler.name,
        "finish": sampler.finish,
        "length": generator.length,
        "outputs": one.summary.outputs,
        "network_calls": float(one.summary.cell.pool(one.summary.outputs).nfe.mean()),
        "paper": printed.get("perplexity"),
        "paper_entropy": printed.get("entropy"),
    }
