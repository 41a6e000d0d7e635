"""Standard against sharpened sampling at every budget: the gap of one checkpoint in one figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strop.assets import CHECKPOINT
from strop.stats.interval import value_of
from strop.table import Column, Pivot, Table
from strop.verbs import parameters, points
from strop.verbs.paper import BUDGETS, RowByRow, item
from strop.verbs.result import Result
from strop.verbs.study import Sources, Study
from strop.verbs.verb import Ask

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETTINGS: dict[str, dict[str, Any]] = {"standard": {}, "sharpened": points.SHARPENED}
RUNS = ("run",)
COLUMNS = (
    *points.POINT_COLUMNS,
    Column("perplexity", mark="mark"),
    Column("entropy", digits=3),
    Column("ratio", "standard over sharpened", digits=3),
)


def _run(ask: Ask) -> Result:
    from strop.measure.frame import perplexity_ratio

    model = points.load(ask, ask.sources[0])
    chosen, told = points.named_points(model.spec.family, ask["sampler"], SETTINGS)
    counts = points.budgets(model, ask["steps"])
    cells = [(m, point) for point in chosen.values() for m in counts]
    scored = points.measure_cells(ask, ask.sources[0], cells, ask.out / RUNS[0], model=model)
    labels = [name for name in chosen for _ in counts]
    rows = [
        {"sampler": name, **one.row(), "ratio": None if i < len(counts) else ratio}
        for i, (name, one) in enumerate(zip(labels, scored, strict=True))
        for ratio in [perplexity_ratio(scored[i % len(counts)], one)]
    ]
    title = f"{ask.sources[0]}: perplexity [entropy] under {ask.evaluator.spec.name}"
    table = Table(title, COLUMNS, rows, Pivot(("steps",), ("sampler",), "perplexity", ("entropy",)))
    said, notes = ask.said(checkpoint=ask.sources[0]), (*told, *points.guard_notes(scored))
    return Result(said, table, facts=points.guard_facts(scored[0]), notes=notes)


def below_guard(rows: Sequence[Mapping[str, Any]], threshold: float | None) -> list[bool]:
    """Whether each cell's mean entropy lies below the guard: drawn open, as in the paper."""
    entropies = [value_of(row.get("entropy")) for row in rows]
    return [threshold is not None and one is not None and one < threshold for one in entropies]


def _draw(result: Result) -> Figure:
    from strop.figures import PALETTE, line, log_y, panels, steps_axis, tidy

    rows = list(result.table.rows)
    figure, [axes] = panels(1, 2.6)
    for name, colour, style in zip(SETTINGS, PALETTE, ("--", "-"), strict=False):
        mine = [row for row in rows if row["sampler"] == name]
        open_ = below_guard(mine, result.facts["guard"]["threshold"])
        x, y = [p["steps"] for p in mine], [p["perplexity"] for p in mine]
        line(axes, x, y, open_, color=colour, ls=style, label=name)
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
        item(
            "tiny", RowByRow("perplexity; paper: late", points.POINT_COLUMNS, ("grid-tiny-late",))
        ),
    ),
)
