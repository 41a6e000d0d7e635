"""Perplexity and entropy over temperatures and budgets: three studies of one checkpoint.

`frontier` sweeps the temperature at fixed budgets. `didi-grids` draws DiDi-Instruct with and
without its reward at every temperature, precision and budget. `sharpened` compares standard with
sharpened sampling at every budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strop.stats.interval import value_of
from strop.table import Column, Pivot, Table
from strop.verbs import paper, parameters, points
from strop.verbs.families import CHECKPOINTS, MODELS, PROTOCOL, small_checkpoints
from strop.verbs.study import SMOKE_NOTE, Sources, Study
from strop.verbs.verb import Ask, Parameter, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from strop.denoisers import Model
    from strop.measure.frame import Measured


RUNS = ("run",)
TEMPERATURE = Parameter("temperature", "Temperatures of the sweep.", points.TEMPERATURES, "floats")
PRECISION = Parameter(
    "precision",
    "Precision of the draw.",
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
    usual = {"temperature": ask["temperature"]}
    combinations, left_out = points.points(model.spec.family, sampler, axes, usual)
    ordered = sorted(combinations, key=lambda p: p.sampler.precision != "float64")
    cells = [(m, point) for m in points.budgets(model, ask["steps"]) for point in ordered]
    return points.measure_cells(ask, source, cells, ask.out / folder, model=model), left_out


def _run(ask: Ask) -> Result:
    [source] = ask.sources
    scored, left_out = swept(ask, source, points.load(ask, source), ask["sampler"], RUNS[0])
    title = f"{source}: perplexity [entropy] under {ask.evaluator.spec.name}"
    table = points.cell_table(title, [cell.row() for cell in scored], down="temperature")
    drawn = ", ".join(dict.fromkeys(cell.point.sampler.precision for cell in scored))
    precision_note = f"precision of the draw: {drawn}; the paper does not say that of its frontier"
    notes = (precision_note, *left_out, *points.guard_notes(scored))
    facts = points.guard_facts(scored[0])
    return Result(ask.said(checkpoint=source), table, facts=facts, notes=notes)


def below_guard(rows: Sequence[Mapping[str, Any]], threshold: float | None) -> list[bool]:
    """Whether each cell's mean entropy lies below the guard: drawn open, as in the paper."""
    entropies = [value_of(row.get("entropy")) for row in rows]
    return [threshold is not None and h is not None and h < threshold for h in entropies]


def sweep_lines(
    axes: Axes, rows: Sequence[Mapping[str, Any]], column: str, threshold: float | None
) -> None:
    """A column against temperature, a colour per budget; float32 dashed, the guard by markers.

    A schedule has no place on the axis: the table alone has it.
    """
    from strop.figures import GREY, LINES, PALETTE, grouped, line

    rows = [row for row in rows if not isinstance(row["temperature"], str)]
    lines = grouped(sorted(rows, key=lambda row: row["temperature"]), "steps", "precision")
    steps = sorted({m for m, _ in lines})
    for colour, m in zip(PALETTE * len(steps), steps, strict=False):
        for precision, style in LINES.items():
            if cells := lines.get((m, precision)):
                x, y = [r["temperature"] for r in cells], [r[column] for r in cells]
                label = f"M={m:,}, {precision}"
                line(axes, x, y, below_guard(cells, threshold), color=colour, ls=style, label=label)
    # standard and sharpened
    axes.axvline(1.0, color=GREY, lw=0.6, ls=":", zorder=0)
    axes.axvline(points.SHARPENED["temperature"], color=GREY, lw=0.6, ls="--", zorder=0)


def _draw(result: Result) -> Figure:
    from strop.figures import GREY, legend_below, log_y, panels

    rows = list(result.table.rows)
    threshold = result.facts["guard"]["threshold"]
    figure, axes = panels(2, 4.0)
    for panel, column in zip(axes, ("perplexity", "entropy"), strict=True):
        sweep_lines(panel, rows, column, threshold)
    if threshold is not None:
        axes[1].axhline(threshold, color=GREY, lw=0.8)
        temperatures = [r["temperature"] for r in rows if not isinstance(r["temperature"], str)]
        corner = (max(temperatures, default=1.0), threshold)
        axes[1].annotate("guard", corner, fontsize=7, color=GREY, ha="right", va="bottom")
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
    items=(paper.item("frontier"),),
)


DIDI = MODELS["DiDi-Instruct"].source
GRIDS = {"guided": "didi-guided", "ancestral": "didi-ancestral"}
"""The samplers, by the name that their run directories and the paper's tables have."""
KEYS = ("steps", "temperature", "precision")


def _run_grids(ask: Ask) -> Result:
    source = ask.sources[0] if ask.sources else small_checkpoints(ask.out / CHECKPOINTS)["didi"]
    model = points.load(ask, source)
    rows, measured, left_out = [], [], ()
    for name, sampler in GRIDS.items():
        scored, left_out = swept(ask, source, model, sampler, name)
        printed = paper.table(f"grid-didi-{name}").by(*KEYS)
        for row in (cell.row() for cell in scored):
            printed_row = printed.get(tuple(row[key] for key in KEYS), {})
            more = {
                "paper": printed_row.get("perplexity"),
                "paper_entropy": printed_row.get("entropy"),
            }
            rows.append({"sampler": name, **row, **more})
        measured += scored
    table = points.cell_table(
        "Measured perplexity [entropy], and the paper's",
        rows,
        extra=(Column("sampler"), Column("paper"), Column("paper_entropy", "paper's entropy")),
    )
    facts = {**points.guard_facts(measured[0]), "protocol": list(PROTOCOL)}
    small = (f"{SMOKE_NOTE} The discriminator has random weights.",) if ask.smoke else ()
    notes = (*left_out, *points.guard_notes(measured), *PROTOCOL, *small)
    return Result(ask.said(checkpoint=source), table, facts=facts, notes=notes)


def _draw_grids(result: Result) -> Figure:
    from strop.figures import grouped, legend_below, log_y, panels

    grids = grouped(result.table.rows, "sampler")
    figure, axes = panels(len(grids), 2.4 * len(grids))
    for panel, ((name,), rows) in zip(axes, grids.items(), strict=True):
        sweep_lines(panel, rows, "perplexity", result.facts["guard"]["threshold"])
        panel.set(ylabel="perplexity", title=f"{name}; open: below the entropy guard")
        log_y(panel)
    axes[-1].set_xlabel("temperature")
    legend_below(figure, axes[0], fontsize=6)
    return figure


DIDI_GRIDS = Study(
    name="didi-grids",
    title="DiDi-Instruct with and without its reward",
    about="Sample DiDi-Instruct over the paper's two grids: guided by its reward, and not.",
    sources=Sources(
        ("CHECKPOINT",), "As for `strop sample`; by default the public one.", (DIDI,), ()
    ),
    parameters=(
        parameters.steps(*paper.BUDGETS, smoke=(2, 8)),
        TEMPERATURE,
        PRECISION,
        parameters.outputs(40, smoke=8),
        parameters.evaluator("gpt2-large", smoke=parameters.evaluator().default),
        parameters.AXES,
        parameters.LENGTH,
        *parameters.SCORED,
    ),
    run=_run_grids,
    draw=_draw_grids,
    runs=(CHECKPOINTS, *GRIDS),
    examples=("strop study didi-grids --smoke --steps 8 --temperature 0.9,1.0 -o runs/didi",),
    items=(paper.item("didi-grids", sources={"DiDi-Instruct": DIDI}),),
)


SHARPENED_COLUMNS = (
    *points.POINT_COLUMNS,
    Column("perplexity", mark="mark"),
    Column("entropy", digits=3),
    Column("ratio", "standard over sharpened", digits=3),
)


def _run_sharpened(ask: Ask) -> Result:
    from strop.measure.frame import perplexity_ratio

    model = points.load(ask, ask.sources[0])
    chosen, left_out = points.named_points(model.spec.family, ask["sampler"], points.SETTINGS)
    counts = points.budgets(model, ask["steps"])
    cells = [(m, point) for point in chosen.values() for m in counts]
    scored = points.measure_cells(ask, ask.sources[0], cells, ask.out / RUNS[0], model=model)
    labels = [name for name in chosen for _ in counts]
    rows = [
        {"sampler": name, **cell.row(), "ratio": None if i < len(counts) else ratio}
        for i, (name, cell) in enumerate(zip(labels, scored, strict=True))
        for ratio in [perplexity_ratio(scored[i % len(counts)], cell)]
    ]
    title = f"{ask.sources[0]}: perplexity [entropy] under {ask.evaluator.spec.name}"
    table = Table(
        title, SHARPENED_COLUMNS, rows, Pivot(("steps",), ("sampler",), "perplexity", ("entropy",))
    )
    settings, notes = ask.said(checkpoint=ask.sources[0]), (*left_out, *points.guard_notes(scored))
    return Result(settings, table, facts=points.guard_facts(scored[0]), notes=notes)


def _draw_sharpened(result: Result) -> Figure:
    from strop.figures import PALETTE, line, log_y, panels, steps_axis

    rows = list(result.table.rows)
    figure, [axes] = panels(1, 2.6)
    for name, colour, style in zip(points.SETTINGS, PALETTE, ("--", "-"), strict=False):
        cells = [row for row in rows if row["sampler"] == name]
        open_ = below_guard(cells, result.facts["guard"]["threshold"])
        x, y = [p["steps"] for p in cells], [p["perplexity"] for p in cells]
        line(axes, x, y, open_, color=colour, ls=style, label=name)
    axes.set(xlabel="configured updates M", ylabel="perplexity")
    log_y(axes)
    steps_axis(axes, [row["steps"] for row in rows])
    figure.legend(loc="outside lower center", ncol=2, title="open: below the entropy guard")
    return figure


SHARPENED = Study(
    name="sharpened",
    title="Standard against sharpened sampling at every budget",
    about="Sample CHECKPOINT at (1, float64) and (.9, float32), budget by budget.",
    parameters=(
        parameters.steps(*paper.BUDGETS, smoke=(4, 16)),
        parameters.outputs(128, smoke=16),
        parameters.evaluator(),
        parameters.GUARD_RULE,
        parameters.SAMPLER,
        parameters.LENGTH,
        *parameters.SCORED,
    ),
    run=_run_sharpened,
    draw=_draw_sharpened,
    runs=RUNS,
    examples=("strop study sharpened --steps 4,16 -n 32 -o runs/sharpened",),
    items=(paper.item("tiny"),),
)
