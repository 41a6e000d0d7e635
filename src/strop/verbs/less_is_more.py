"""Less is more, until the sampler is fixed: two checkpoints against each other.

The perplexity of the longer trained (or larger) model over that of the other, at equal steps, under
three samplers. Above one, less is more. The paper finds that at few standard steps and not under
sharper samplers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strop.assets import CHECKPOINT, EMBEDDED
from strop.table import Column, Pivot, Table
from strop.verbs import parameters
from strop.verbs.paper import BUDGETS, OWN, PaperItem, RowByRow
from strop.verbs.points import (
    SHARPENED,
    budgets,
    guard_notes,
    load,
    measure_cells,
    named_points,
    points,
)
from strop.verbs.result import Result
from strop.verbs.study import Sources, Study
from strop.verbs.verb import Ask, Parameter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EARLY, TINY = EMBEDDED + "tales-early", EMBEDDED + "tales-tiny"
SAMPLERS: dict[str, dict[str, Any]] = {
    "standard": {},
    "sharpened": SHARPENED,
    "stronger": {"temperature": 0.8, "precision": "float32"},
}
RUNS = ("more", "less")
COLUMNS = (
    Column("sampler"),
    Column("point", "setting"),
    Column("steps", "M"),
    Column("ratio", "more over less", digits=3),
    Column("more", "perplexity of more"),
    Column("less", "perplexity of less"),
    Column("inverted", help="Whether the whole interval lies above 1."),
)


def _run(ask: Ask) -> Result:
    from strop.measure.frame import perplexity_ratio

    more, less = (load(ask, source) for source in ask.sources)
    chosen, told = named_points(more.spec.family, ask["sampler"], SAMPLERS)
    if ask["axis"]:
        found = points(more.spec.family, ask["sampler"], ask["axis"], {"temperature": (1.0,)})
        chosen, told = {str(point): point for point in found.points}, found.left_out
    counts = budgets(more, ask["steps"])
    cells = [(m, point) for point in chosen.values() for m in counts]
    fewer = ask["n_less"] or ask["n"]
    above, below = (
        measure_cells(ask, source, cells, ask.out / name, n=n, model=model)
        for source, name, n, model in zip(
            ask.sources, RUNS, (ask["n"], fewer), (more, less), strict=True
        )
    )
    labels = [name for name in chosen for _ in counts]
    rows = []
    for name, one, other in zip(labels, above, below, strict=True):
        ratio = perplexity_ratio(one, other)
        rows.append(
            {
                "sampler": name,
                **{k: one.row()[k] for k in ("temperature", "precision", "point", "steps")},
                "ratio": ratio,
                "more": one.perplexity().value,
                "less": other.perplexity().value,
                "inverted": ratio.above(1),
            }
        )
    inverted = [f"{row['sampler']} at {row['steps']}" for row in rows if row["inverted"]]
    verdict = (
        "Less is more (the interval lies above 1): " + ", ".join(inverted)
        if inverted
        else "No interval lies above 1: here more training or more weights never hurt."
    )
    title = f"Perplexity of {ask.sources[0]} over that of {ask.sources[1]}, 95% intervals"
    table = Table(title, COLUMNS, rows, Pivot(("steps",), ("sampler",), "ratio"))
    notes = (verdict, *told, *guard_notes([*above, *below])[1:])
    return Result(ask.said(more=ask.sources[0], less=ask.sources[1]), table, notes=notes)


def _draw(result: Result) -> Figure:
    from strop.figures import GREY, PALETTE, errors, log_ticks, panels, steps_axis, tidy

    rows = list(result.table.rows)
    figure, [axes] = panels(1, 2.6)
    axes.axhline(1, color=GREY, lw=0.8)
    names = list(dict.fromkeys(row["sampler"] for row in rows))
    for colour, name in zip(PALETTE * len(names), names, strict=False):
        mine = [row for row in rows if row["sampler"] == name]
        ratios = [p["ratio"] for p in mine]
        x, y = [p["steps"] for p in mine], [one.value for one in ratios]
        look: dict[str, Any] = {"color": colour, "marker": "o", "ms": 3, "capsize": 2, "lw": 1.2}
        axes.errorbar(x, y, errors(ratios), label=name, **look)
    axes.set(xlabel="configured updates M", ylabel="perplexity, more over less", yscale="log")
    steps_axis(axes, [row["steps"] for row in rows])
    lows, highs = zip(*(row["ratio"].ends for row in rows), strict=True)
    ticks = log_ticks(0.9 * min(lows), 1.1 * max(highs))
    axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    figure.legend(loc="outside lower center", ncol=3)
    tidy(axes)
    return figure


def _beside(comparison: str) -> RowByRow:
    return RowByRow(
        "perplexity, more over less",
        (Column("sampler"), Column("steps", "M")),
        "less-is-more",
        {"comparison": comparison},
        paper={"paper": "ratio"},
        measured={"measured": "ratio"},
    )


STUDY = Study(
    name="less-is-more",
    title="Do more training and more weights help few-step generation?",
    about="Compare MORE with LESS at equal steps, under a standard and two sharper samplers.",
    sources=Sources(
        ("MORE", "LESS"),
        "The longer trained, or larger, checkpoint, and the other one.",
        (CHECKPOINT, EARLY),
    ),
    parameters=(
        parameters.steps(2, 4, 8, 16, 64, smoke=(2, 4)),
        parameters.outputs(128, smoke=16),
        Parameter("n_less", "Outputs of LESS, where they are other than -n.", kind="int", least=1),
        parameters.evaluator(),
        *parameters.POINTED,
        *parameters.SCORED,
    ),
    run=_run,
    draw=_draw,
    runs=RUNS,
    examples=("strop study less-is-more --steps 2,8 -n 32 -o runs/less",),
    items=(
        PaperItem(
            "less-is-more-training",
            ("less-is-more",),
            "does longer training hurt few-step generation?",
            f"a late and an early MDLM-Small ({OWN.format('mdlm-small')}), gpt2, a GPU",
            _beside("training"),
            {"late": None, "early": None},
            {"late": CHECKPOINT, "early": EARLY},
            values={"steps": BUDGETS, "n": 128, "evaluator": "gpt2"},
            smoke_values={"steps": (2, 4, 8), "n": 32, "evaluator": None},
        ),
        PaperItem(
            "less-is-more-size",
            ("less-is-more",),
            "does a larger model hurt few-step generation?",
            "MDLM-Small and MDLM-Tiny of your own, gpt2, a GPU",
            _beside("size"),
            {"small": None, "tiny": None},
            {"small": CHECKPOINT, "tiny": TINY},
            values={"steps": BUDGETS, "n": 128, "n_less": 256, "evaluator": "gpt2"},
            smoke_values={"steps": (2, 4, 8), "n": 32, "n_less": None, "evaluator": None},
        ),
    ),
)
