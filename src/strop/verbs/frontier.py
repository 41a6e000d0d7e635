"""The frontier: perplexity and entropy against temperature at fixed budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strop.assets import CHECKPOINT
from strop.verbs import parameters
from strop.verbs.paper import PUBLIC, PaperItem, RowByRow
from strop.verbs.points import (
    POINT_COLUMNS,
    SHARPENED,
    TEMPERATURES,
    budgets,
    cell_table,
    guard_notes,
    load,
    measure_cells,
    points,
)
from strop.verbs.result import Result
from strop.verbs.sharpened import points_by_guard
from strop.verbs.study import Sources, Study
from strop.verbs.verb import Ask, Parameter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RUNS = ("run",)
TEMPERATURE = Parameter("temperature", "The sweep.", TEMPERATURES, "floats")
PRECISION = Parameter(
    "precision",
    "Of the draw.",
    kind="words",
    choices=("float64", "float32"),
    shown="those with a fast form",
)


def sweep(ask: Ask, family: str, sampler: str | None) -> Any:
    """Every temperature in every precision, and whatever other axes were asked for."""
    axes = dict(ask["axis"] or {})
    if ask["precision"]:
        axes.setdefault("precision", ask["precision"])
    return points(family, sampler, axes, {"temperature": ask["temperature"]})


def _run(ask: Ask) -> Result:
    model = load(ask, ask.sources[0])
    found = sweep(ask, model.spec.family, ask["sampler"])
    ordered = sorted(found.points, key=lambda p: p.sampler.precision != "float64")
    cells = [(m, point) for m in budgets(model, ask["steps"]) for point in ordered]
    scored = measure_cells(ask, ask.sources[0], cells, ask.out / RUNS[0], model=model)
    guard = scored[0].guard
    title = f"{ask.sources[0]}: perplexity [entropy] under {ask.evaluator.spec.name}"
    table = cell_table(title, [one.row() for one in scored], down="temperature")
    facts = {"guard": {"threshold": guard.threshold, "source": guard.source}}
    drawn = ", ".join(dict.fromkeys(point.sampler.precision for point in ordered))
    told = f"precision of the draw: {drawn}; the paper does not say that of its frontier"
    notes = (told, *found.left_out, *guard_notes(scored))
    return Result(ask.said(checkpoint=ask.sources[0]), table, facts=facts, notes=notes)


def _draw(result: Result) -> Figure:
    from strop.figures import GREY, LINES, PALETTE, log_y, panels, tidy

    rows = list(result.table.rows)
    threshold = result.facts["guard"]["threshold"]
    figure, axes = panels(2, 4.0)
    budgets = sorted({row["steps"] for row in rows})
    for colour, m in zip(PALETTE * len(budgets), budgets, strict=False):
        for precision, line in LINES.items():
            mine = [r for r in rows if (r["steps"], r["precision"]) == (m, precision)]
            if not mine:
                continue
            mine.sort(key=lambda row: row["temperature"])
            x = [p["temperature"] for p in mine]
            look = {"color": colour, "lw": 1.0, "ls": line, "threshold": threshold}
            levels = [p["perplexity"].value for p in mine]
            points_by_guard(axes[0], x, levels, mine, label=f"M={m:,}, {precision}", **look)
            points_by_guard(axes[1], x, [p["entropy"] for p in mine], mine, **look)
    for one in axes:  # standard and sharpened
        for tau, style in ((1.0, ":"), (SHARPENED["temperature"], "--")):
            one.axvline(tau, color=GREY, lw=0.6, ls=style, zorder=0)
    if threshold is not None:
        axes[1].axhline(threshold, color=GREY, lw=0.8)
        place = (max(r["temperature"] for r in rows), threshold)
        axes[1].annotate("guard", place, fontsize=7, color=GREY, ha="right", va="bottom")
    axes[0].set(ylabel="perplexity")
    log_y(axes[0])
    axes[1].set(ylabel="entropy (nats)", xlabel="temperature")
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncol=2, fontsize=6
    )
    axes[0].set_title("open: below the entropy guard", loc="right", fontsize=6.5)
    for one in axes:
        tidy(one)
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
                POINT_COLUMNS,
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
