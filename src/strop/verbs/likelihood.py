"""How likely does a finite-step sampler make real text? Bounds that tighten with reveal paths.

With one path the bound is the schedule-matched posterior loss, which sharpening worsens. With more
it falls towards the cross-entropy of the output law, which sharpening may improve: the credit for
mixing paths that held-out loss does not see.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.assets import HELD_OUT
from strop.stats.interval import LEVEL, Interval
from strop.table import Column, Pivot, Table
from strop.verbs import parameters
from strop.verbs.study import Study
from strop.verbs.verb import Ask, Parameter, Result

if TYPE_CHECKING:
    from strop.theory.mpath import PathScores

COLUMNS = (
    Column("steps", "M"),
    Column("temperature", "tau", digits=None),
    Column("paths", "paths m"),
    Column("bound", "nats per token, at most", digits=4),
    Column("credit", "below one path", digits=3, signed=True),
)


def _run(ask: Ask) -> Result:
    from strop.denoisers import load_denoiser
    from strop.denoisers.base import usable_length
    from strop.instruments.posterior import path_scores
    from strop.measure.guard import read_rows
    from strop.samplers.machinery.start import reveal_grid
    from strop.spec.generator import SamplerSpec

    model = load_denoiser(ask.sources[0], device=ask["device"], dtype=ask["dtype"])
    length = usable_length(model, ask["length"])
    file = Path(ask["held_out"] or HELD_OUT)
    held = read_rows(file, model, length=length, most=ask["n"], least=2)
    taus = [float(tau) for tau in ask["temperature"]]
    rows = []
    for steps in ask["steps"]:
        masses = reveal_grid(SamplerSpec(steps=steps)).masses
        ask.note(f"M = {steps}: {len(held.ids)} sequences of {length} tokens")
        settings: dict[str, Any] = {"paths": max(ask["paths"]), "lams": [1 / t for t in taus]}
        scores = path_scores(model, held.ids, masses, seed=ask["seed"], **settings)
        rows += _rows(scores, steps, taus, ask["paths"], length)
    title = f"{ask.sources[0]}: cross-entropy of the sampler's output law, upper bounds"
    table = Table(title, COLUMNS, rows, Pivot(("steps", "paths"), ("temperature",), "bound"))
    most = [row for row in rows if row["paths"] == max(ask["paths"])]
    best = {}
    for row in sorted(most, key=lambda row: row["bound"].value):
        best.setdefault(row["steps"], f"temperature {row['temperature']:g} at M = {row['steps']}")
    words = ", ".join(best[m] for m in ask["steps"])
    facts = {
        "answer": [f"Least bound: {words}, with {max(ask['paths'])} paths."],
        "heldout": {"sha256": held.sha256, "sequences": len(held.ids), "length": length},
    }
    notes = (
        "Every bound lies above the cross-entropy in the mean and falls towards it as paths grow; "
        "one path is the posterior loss J. Intervals are Student's, over sequences, 95%.",
        "Draws are taken as exact (float64); a float32 draw has another law.",
    )
    return Result(ask.said(checkpoint=ask.sources[0]), table, facts=facts, notes=notes)


def _rows(
    scores: PathScores, steps: int, taus: list[float], counts: tuple[int, ...], length: int
) -> list[dict[str, Any]]:
    """The first m paths of the most: what more paths change is not another draw."""
    from strop.stats.resample import student
    from strop.theory.mpath import bound_from_scores

    curves = {
        m: bound_from_scores(scores.lams, scores.log_q[:, :, :m], scores.slope[:, :, :m])
        for m in sorted({1, *counts})
    }
    rows, n = [], scores.log_q.shape[1]
    reach = student(LEVEL, n - 1) / length
    for m in counts:
        for k, tau in enumerate(taus):
            value, half = curves[m].value[k] / length, reach * curves[m].stderr[k]
            bound = Interval(value, value - half, value + half, n=n, how="Student's t")
            more = {"bound": bound, "credit": value - curves[1].value[k] / length}
            rows.append({"steps": steps, "temperature": tau, "paths": m, **more})
    return rows


STUDY = Study(
    name="likelihood",
    title="How likely a sampler makes real text: bounds from several reveal paths",
    about="Bound the cross-entropy of CHECKPOINT's output law on held-out text, at every "
    "temperature from the same network calls. For short texts: calls grow with paths and rounds.",
    parameters=(
        parameters.steps(2, 8, smoke=(2,)),
        Parameter("temperature", "1 must be among them.", (0.8, 0.9, 1.0, 1.1), "numbers"),
        Parameter.counts("paths", "Numbers of paths m.", (1, 4, 16), smoke=(1, 4), most=2**12),
        parameters.outputs(64, smoke=8, words="Held-out sequences, at most.", least=2),
        Parameter("length", "Tokens of a sequence.", 16, "int", 8, least=2, most=2**20),
        Parameter.file("held_out", "JSON lines with `text` or `ids`.", shown="the rows that ship"),
        *parameters.DRAWN,
    ),
    run=_run,
    check=lambda ask: parameters.refuse_sweep_without_one(ask["temperature"]),
    examples=("strop study likelihood --steps 2 -n 8 --length 8 --paths 1,4 -o runs/likelihood",),
)
