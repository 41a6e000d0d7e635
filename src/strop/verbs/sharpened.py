"""Standard against sharpened sampling at every budget: the gap of one checkpoint in one figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strop.assets import CHECKPOINT, EMBEDDED
from strop.stats.interval import value_of
from strop.table import Column, Pivot, Table
from strop.verbs import parameters
from strop.verbs.paper import BUDGETS, OWN, PaperItem, RowByRow
from strop.verbs.points import (
    POINT_COLUMNS,
    SHARPENED,
    budgets,
    guard_notes,
    load,
    measure_cells,
    named_points,
)
from strop.verbs.result import Result
from strop.verbs.study import Sources, Study
from strop.verbs.verb import Ask

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SETTINGS: dict[str, dict[str, Any]] = {"standard": {}, "sharpened": SHARPENED}
RUNS = ("run",)
COLUMNS = (
    *POINT_COLUMNS,
    Column("perplexity", mark="mark"),
    Column("entropy", digits=3),
    Column("ratio", "standard over sharpened", digits=3),
)


def _run(ask: Ask) -> Result:
    from strop.measure.frame import perplexity_ratio

    model = load(ask, ask.sources[0])
    chosen, told = named_points(model.spec.family, ask["sampler"], SETTINGS)
    counts = budgets(model, ask["steps"])
    cells = [(m, point) for point in chosen.values() for m in counts]
    scored = measure_cells(ask, ask.sources[0], cells, ask.out / RUNS[0], model=model)
    labels = [name for name in chosen for _ in counts]
    rows = [
        {"sampler": name, **one.row(), "ratio": None if i < len(counts) else ratio}
        for i, (name, one) in enumerate(zip(labels, scored, strict=True))
        for ratio in [perplexity_ratio(scored[i % len(counts)], one)]
    ]
    guard = scored[0].guard
    title = f"{ask.sources[0]}: perplexity [entropy] under {ask.evaluator.spec.name}"
    table = Table(title, COLUMNS, rows, Pivot(("steps",), ("sampler",), "perplexity", ("entropy",)))
    facts = {"guard": {"threshold": guard.threshold, "source": guard.source}}
    notes = (*told, *guard_notes(scored))
    return Result(ask.said(checkpoint=ask.sources[0]), table, facts=facts, notes=notes)


def below(row: Mapping[str, Any], threshold: float | None) -> bool:
    """Whether a cell's mean entropy lies below the guard: drawn open, as in the paper."""
    entropy = value_of(row.get("entropy"))
    return threshold is not None and entropy is not None and entropy < threshold


def points_by_guard(axes: Axes, x: Sequence[float], y: Sequence[float], rows: Any, **look: Any):
    """A line with filled markers, open where the guard is not held; `rows` are the pairs' cells."""
    threshold, colour = look.pop("threshold"), look["color"]
    axes.plot(x, y, **look)
    for open_, fill in ((False, colour), (True, "white")):
        mine = [i for i, row in enumerate(rows) if below(row, threshold) == open_]
        at = {"ls": "none", "marker": "o", "ms": 3.5, "color": colour, "mfc": fill, "zorder": 3}
        axes.plot([x[i] for i in mine], [y[i] for i in mine], **at)


def _draw(result: Result) -> Figure:
    from strop.figures import BLUE, ORANGE, log_y, panels, steps_axis, tidy

    rows = list(result.table.rows)
    threshold = result.facts["guard"]["threshold"]
    figure, [axes] = panels(1, 2.6)
    looks = {"standard": (ORANGE, "--"), "sharpened": (BLUE, "-")}
    for name, (colour, line) in looks.items():
        mine = [row for row in rows if row["sampler"] == name]
        x, y = [p["steps"] for p in mine], [value_of(p["perplexity"]) or 0.0 for p in mine]
        look = {"color": colour, "ls": line, "lw": 1.2, "label": name, "threshold": threshold}
        points_by_guard(axes, x, y, mine, **look)
    axes.set(xlabel="configured updates M", ylabel="perplexity")
    log_y(axes)
    steps_axis(axes, [row["steps"] for row in rows])
    figure.legend(loc="outside lower center", ncol=2, title="open: below the entropy guard")
    tidy(axes)
    return figure


STUDY = Study(
    name="sharpened",
    title="Standard against sharpened sampling at every budget",
    about="Sample CHECKPOINT at (1, float64) and (.9, float32), budget by budget.",
    sources=Sources(("CHECKPOINT",), "As for `strop sample`.", (CHECKPOINT,)),
    parameters=(
        parameters.steps(*BUDGETS, smoke=(4, 16)),
        parameters.outputs(128, smoke=16),
        parameters.evaluator(),
        parameters.GUARD_RULE,
        parameters.SAMPLER,
        parameters.LENGTH,
        *parameters.SCORED,
    ),
    run=_run,
    draw=_draw,
    runs=RUNS,
    examples=("strop study sharpened --steps 4,16 -n 32 -o runs/sharpened",),
    items=(
        PaperItem(
            "tiny",
            ("tiny", "grid-tiny-late"),
            "standard against sharpened MDLM-Tiny, against steps (figure)",
            f"an MDLM-Tiny of your own ({OWN.format('mdlm-tiny')}), gpt2, a GPU",
            RowByRow("perplexity; paper: late", POINT_COLUMNS, ("grid-tiny-late",)),
            {"late": None},
            {"late": EMBEDDED + "tales-tiny"},
            values={"n": 256, "evaluator": "gpt2", "guard_rule": "mean"},
            smoke_values={"steps": (4, 16), "n": 32, "evaluator": None},
        ),
    ),
)
