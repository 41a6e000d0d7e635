"""Less is more, until the sampler is fixed: two checkpoints against each other.

The perplexity of the longer trained (or larger) model over that of the other, at equal steps, under
three samplers. Above one, less is more. The paper finds that at few standard steps and not under
sharper samplers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from strop.assets import CHECKPOINT, EMBEDDED
from strop.errors import UserError
from strop.table import Column, Pivot, Table
from strop.verbs import paper, parameters, points
from strop.verbs.study import Sources, Study
from strop.verbs.verb import Ask, Parameter, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from strop.measure.frame import Measured

EARLY, TINY = EMBEDDED + "tales-early", EMBEDDED + "tales-tiny"
SAMPLERS = points.SETTINGS | {"stronger": {"temperature": 0.8, "precision": "float32"}}
RUNS = ("more", "less", "less-2")
SAMPLER, STEPS = Column("sampler"), Column("steps", "M")
COLUMNS = (
    Column("against"),
    SAMPLER,
    Column("point", "setting"),
    STEPS,
    Column("ratio", "more over less", digits=3),
    Column("more", "perplexity of more"),
    Column("less", "perplexity of less"),
    Column("inverted", help="Whether the whole interval lies above 1."),
)


def _run(ask: Ask) -> Result:
    more = points.load(ask, ask.sources[0])
    chosen, left_out = points.chosen_points(ask, more.spec.family, SAMPLERS)
    cells = [(m, point) for point in chosen.values() for m in points.budgets(more, ask["steps"])]
    above = points.measure_cells(ask, ask.sources[0], cells, ask.out / RUNS[0], model=more)
    rows, all_cells = [], list(above)
    fewer = ask["n_less"] or (ask["n"],)  # one number, or one for each
    for number, (source, folder) in enumerate(zip(ask.sources[1:], RUNS[1:], strict=False)):
        n = fewer[number % len(fewer)]
        below = points.measure_cells(ask, source, cells, ask.out / folder, n=n)
        labels = [name for name in chosen for _ in range(len(cells) // len(chosen))]
        rows += [_row(source, *pair) for pair in zip(labels, above, below, strict=True)]
        all_cells += below
    words = "{sampler} at {steps} against {against}"
    inverted = [words.format(**row) for row in rows if row["inverted"]]
    verdict = "No interval lies above 1: here more training or more weights never hurt."
    if inverted:
        verdict = "Less is more (the interval lies above 1): " + ", ".join(inverted)
    first, *less = ask.sources
    others = " and ".join(less)
    title = f"Perplexity of {first} over that of {others}, 95% intervals"
    across = ("against", "sampler") if len(ask.sources) > 2 else ("sampler",)
    table = Table(title, COLUMNS, rows, Pivot(("steps",), across, "ratio"))
    notes = (verdict, *left_out, *points.guard_notes(all_cells)[1:])
    return Result(ask.said(more=first, less=others), table, notes=notes)


def _check(ask: Ask) -> None:
    if not 2 <= len(ask.sources) < len(RUNS) + 1:
        raise UserError(
            "One checkpoint is compared with one or two others.",
            where="`checkpoint`",
            got=", ".join(ask.sources),
            expected="MORE LESS, or MORE LESS LESS",
        )
    n_less = ask["n_less"]
    if n_less is not None and len(n_less) not in (1, len(ask.sources) - 1):
        raise UserError(
            "`n_less` has another number of entries than there are LESS.",
            where="`n_less`",
            got=", ".join(map(str, n_less)),
            expected=f"one number, or {len(ask.sources) - 1}",
        )


def _row(source: str, sampler: str, more: Measured, less: Measured) -> dict[str, Any]:
    from strop.measure.frame import perplexity_ratio

    ratio = perplexity_ratio(more, less)
    return {
        "against": source,
        "sampler": sampler,
        **{k: more.row()[k] for k in ("temperature", "precision", "point", "steps")},
        "ratio": ratio,
        "more": more.perplexity().value,
        "less": less.perplexity().value,
        "inverted": ratio.above(1),
    }


def _draw(result: Result) -> Figure:
    """A panel for every LESS, side by side; where less is more is shaded."""
    from strop import figures

    rows = list(result.table.rows)
    lines = figures.grouped(rows, "against", "sampler")
    others, names = (list(dict.fromkeys(part)) for part in zip(*lines, strict=True))
    figure, panels = figures.panels(1, 2.6, len(others), min(len(others), 2), sharey=True)
    lows, highs = zip(*(row["ratio"].ends for row in rows), strict=True)
    low, high = 0.9 * min(*lows, 1), 1.1 * max(*highs, 1)
    for letter, axes, other in zip("abc", panels, others, strict=False):
        axes.axhspan(1, high, color=figures.PALETTE[1], alpha=0.1, lw=0)
        axes.axhline(1, color="black", lw=0.7)
        for i, (colour, name) in enumerate(zip(figures.PALETTE * len(names), names, strict=False)):
            own_rows, apart = lines[other, name], 1.03 ** (i - (len(names) - 1) / 2)
            look: dict[str, Any] = {"color": colour, "marker": "o", "ms": 3, "capsize": 2}
            x, ratios = (
                [row["steps"] * apart for row in own_rows],
                [row["ratio"] for row in own_rows],
            )
            figures.bars(axes, x, ratios, lw=1.2, label=name, **look)
        axes.set(xlabel="configured updates M", yscale="log", ylim=(low, high))
        if len(others) > 1:
            axes.set_title(f"({letter}) against {other.rpartition('/')[2]}", loc="left")
        figures.steps_axis(axes, [row["steps"] for row in rows])
        figures.plain_ticks(axes.yaxis, figures.log_ticks(low, high))
    panels[0].set_ylabel("perplexity, more over less\n(shaded: less is more)")
    figures.legend_below(figure, panels[0], 3)
    return figure


def _beside(result: Result, _: Ask, roles: Mapping[str, str]) -> Table:
    """Each row beside the panel that its LESS stands for."""
    panel = {"early": "training", "tiny": "size"}
    printed = paper.table("less-is-more").by("comparison", "sampler", "steps")
    rows = []
    for row in result.table.rows:
        setting = {
            "comparison": panel[roles[row["against"]]],
            **{k: row[k] for k in ("sampler", "steps")},
        }
        ratio = printed.get(tuple(setting.values()), {}).get("ratio")
        rows.append({**setting, "paper": ratio, "measured": row["ratio"]})
    keys = (SAMPLER, STEPS)
    if len({row["comparison"] for row in rows}) > 1:
        keys = (Column("comparison"), *keys)
    return paper.beside("perplexity, more over less", keys, rows, outputs=128, log=True)


STUDY = Study(
    name="less-is-more",
    title="Do more training and more weights help few-step generation?",
    about="Compare MORE with LESS at equal steps, under a standard and two sharper samplers.",
    sources=Sources(
        ("MORE LESS...",),
        "The longer trained, or larger, checkpoint, then the other one, or two.",
        (CHECKPOINT, EARLY),
    ),
    parameters=(
        parameters.steps(2, 4, 8, 16, 64, smoke=(2, 4)),
        parameters.outputs(128, smoke=16),
        Parameter(
            "n_less",
            "Outputs of LESS, where they are other than -n: one number, or one for each.",
            kind="counts",
            least=1,
        ),
        parameters.evaluator(),
        *parameters.POINTED,
        *parameters.SCORED,
    ),
    run=_run,
    check=_check,
    draw=_draw,
    runs=RUNS,
    examples=("strop study less-is-more --steps 2,8 -n 32 -o runs/less",),
    items=tuple(
        paper.item(f"less-is-more{suffix}", _beside) for suffix in ("", "-training", "-size")
    ),
)
