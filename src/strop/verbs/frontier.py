"""The frontier: perplexity and entropy against temperature at fixed budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strop.assets import CHECKPOINT
from strop.verbs import parameters, points
from strop.verbs.paper import PUBLIC, PaperItem, RowByRow
from strop.verbs.result import Result
from strop.verbs.sharpened import below_guard
from strop.verbs.study import Sources, Study
from strop.verbs.verb import Ask, Parameter

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from strop.denoisers import Model
    from strop.measure.frame import Measured

RUNS = ("run",)
TEMPERATURE = Parameter("temperature", "The sweep.", points.TEMPERATURES, "floats")
PRECISION = Parameter(
    "precision",
    "Of the draw.",
    kind="words",
    choices=("float64", "float32"),
    shown="those with a fast form",
)


def swept(
    ask: Ask, source: str, model: Model, sampler: str | None, folder: str
) -> tuple[Sequence[Measured], tuple[str, ...]]:
    """Every temperature in every precision and along other axes, and what was left out."""
    axes = dict(ask["axis"] or {})
    if ask["precision"]:
        axes.setdefault("precision", ask["precision"])
    found = points.points(model.spec.family, sampler, axes, {"temperature": ask["temperature"]})
    ordered = sorted(found.points, key=lambda p: p.sampler.precision != "float64")
    cells = [(m, point) for m in points.budgets(model, ask["steps"]) for point in ordered]
    return points.measure_cells(ask, source, cells, ask.out / folder, model=model), found.left_out


def _run(ask: Ask) -> Result:
    [source] = ask.sources
    scored, left_out = swept(ask, source, points.load(ask, source), ask["sampler"], RUNS[0])
    title = f"{source}: perplexity [entropy] under {ask.evaluator.spec.name}"
    table = points.cell_table(title, [one.row() for one in scored], down="temperature")
    drawn = ", ".join(dict.fromkeys(one.point.sampler.precision for one in scored))
    told = f"precision of the draw: {drawn}; the paper does not say that of its frontier"
    notes = (told, *left_out, *points.guard_notes(scored))
    return Result(
        ask.said(checkpoint=source), table, facts=points.guard_facts(scored[0]), notes=notes
    )


def sweep_lines(
    axes: Axes, rows: Sequence[Mapping[str, Any]], column: str, threshold: float | None
) -> None:
    """A column against temperature, a colour per budget; float32 dashed, the guard by markers."""
    from strop.figures import GREY, LINES, PALETTE, line, tidy

    steps = sorted({row["steps"] for row in rows})
    for colour, m in zip(PALETTE * len(steps), steps, strict=False):
        for precision, style in LINES.items():
            mine = [r for r in rows if (r["steps"], r["precision"]) == (m, precision)]
            mine.sort(key=lambda row: row["temperature"])
            if mine:
                x, y = [r["temperature"] for r in mine], [r[column] for r in mine]
                label = f"M={m:,}, {precision}"
                line(axes, x, y, below_guard(mine, threshold), color=colour, ls=style, label=label)
    for tau, style in (
        (1.0, ":"),
        (points.SHARPENED["temperature"], "--"),
    ):  # standard and sharpened
        axes.axvline(tau, color=GREY, lw=0.6, ls=style, zorder=0)
    tidy(axes)


def _draw(result: Result) -> Figure:
    from strop.figures import GREY, legend_below, log_y, panels

    rows = list(result.table.rows)
    threshold = result.facts["guard"]["threshold"]
    figure, axes = panels(2, 4.0)
    for one, column in zip(axes, ("perplexity", "entropy"), strict=True):
        sweep_lines(one, rows, column, threshold)
    if threshold is not None:
        axes[1].axhline(threshold, color=GREY, lw=0.8)
        place = (max(r["temperature"] for r in rows), threshold)
        axes[1].annotate("guard", place, fontsize=7, color=GREY, ha="right", va="bottom")
    axes[0].set(ylabel="perplexity")
    log_y(axes[0])
    axes[1].set(ylabel="entropy (nats)", xlabel="temperature")
    legend_below(figure, axes[0], fontsize=6)
    axes[0].set_title("open: below the entropy guard", loc="right", fontsize=6.5)
    return figure


STUDY = Study(
    name="frontier",
    title="Perplexity and entropy against temperature",
    about="Sweep the temperature of CHECKPOINT at fixed numbers of steps.",
    sources=Sources(("CHECKPOINT",), "As for `strop sample`.", (CHECKPOINT,)),
    parameters=(
        parameters.steps(8, 128, 1024, smoke=(8, 64)),
        TEMPERATURE,
        PRECISION,
        parameters.outputs(128, smoke=16),
        parameters.evaluator(),
        *parameters.POINTED,
        *parameters.ANSWERING,
        *parameters.SCORED,
    ),
    run=_run,
    draw=_draw,
    runs=RUNS,
    examples=("strop study frontier --steps 8,64 --temperature 0.8,0.9,1.0 -n 32 -o runs/front",),
    items=(
        PaperItem(
            "frontier",
            ("frontier",),
            "perplexity and entropy against temperature (numbers at .85, .9 and 1 are printed)",
            f"{PUBLIC}, gpt2, a GPU",
            RowByRow(
                "perplexity",
                points.POINT_COLUMNS,
                ("headline", "headline-full"),
                {"checkpoint": "public"},
                model="MDLM-Small",
            ),
            {"public": PUBLIC},
            {"public": CHECKPOINT},
            values={"precision": ("float32",), "evaluator": "gpt2"},
            smoke_values={"steps": (8, 64), "n": 32, "evaluator": None},
        ),
    ),
)
