"""The paper's first figure: three findings, three panels, one command.

(a) The sharpened baseline among its successors. (b) Judged quality and diversity of the same pools
against their token entropy. (c) The loss that sharpening worsens against the samples it improves.
Each panel is a study of its own, in a directory inside this one's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from strop.assets import CHECKPOINT
from strop.spec import MOST_STEPS, OperatingPoint, SamplerSpec
from strop.stats.interval import Interval, value_of
from strop.table import Column, Table
from strop.verbs import cross_model, groupeval, paper, parameters, posterior
from strop.verbs.families import MODELS
from strop.verbs.paper import PaperItem
from strop.verbs.points import measure_cells
from strop.verbs.study import SMOKE_NOTE, Ask, Parameter, Result, Sources, Study, carry_out, find

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME = "overview"
PANELS = {"cross-model": "a", "groupeval": "b", "posterior": "c"}
CELLS = "cells"
SHARED = ("steps", "seed", "device", "dtype", "engine", "devices", "ray_address")
LOSS, RATIO = "posterior loss at .9 minus at 1", "perplexity at 1 over perplexity at .9"


def _run(ask: Ask) -> Result:
    source = CHECKPOINT if ask.smoke else MODELS["MDLM-Small"].source
    shared: dict[str, Any] = {k: v for k, v in ask.some(*SHARED).items() if v is not None}
    shared |= {"smoke": ask.smoke, "progress": ask.progress, "note": ask.note}
    shared |= ask.given("n")
    among = _panel(ask, "cross-model", sources=ask.sources, **shared)
    asked: dict[str, Any] = {"partition": parameters.PAPERS_GROUPS}
    if not ask.smoke:
        asked |= {"evaluator": "gpt2", "steps": (16, 64, 256, 1024)}
    judged = _panel(ask, "groupeval", sources=[source], **asked | shared)
    held = {"held_out": ask["held_out"]}
    loss = _panel(ask, "posterior", sources=[source], **held, **shared)
    cells = [
        (m, OperatingPoint.of(SamplerSpec(temperature=tau)))
        for m in loss.asked["steps"]
        for tau in (1.0, loss.asked["sharpened"])
    ]
    measured = measure_cells(ask, source, cells, ask.out / CELLS)
    table, _ = posterior.beside_cells(loss, measured)
    notes = tuple(
        dict.fromkeys((*among.notes, *judged.notes, *((SMOKE_NOTE,) if ask.smoke else ())))
    )
    more = {"among": among.table, "judged": judged.table}
    return Result(ask.said(checkpoint=source), table, more, notes=notes)


def _panel(ask: Ask, name: str, sources: Sequence[str], **given: Any) -> Result:
    """A study in this one's directory, whose cells pass the guard by this one's rule."""
    asked = find(name).ask(ask.out / name, sources, **given)
    rule = {key: ask.values[key] for key in ("guard_rule",) if key in ask.values}
    return carry_out(replace(asked, values={**asked.values, **rule}))


def _draw(result: Result) -> Figure:
    return three_panels(result.more["among"].rows, result.more["judged"].rows, result.table.rows)


def three_panels(
    among: Sequence[Mapping[str, Any]],
    judged: Sequence[Mapping[str, Any]],
    losses: Sequence[Mapping[str, Any]],
) -> Figure:
    """The figure, from measured rows or from printed ones."""
    from strop.figures import legend_below, log_y, panels, steps_axis

    figure, axes = panels(1, 3.2, 3, 2.4)
    cross_model.lines_on(among, axes[0])
    axes[0].set(ylabel="perplexity", xlabel="configured updates M", title="(a) among successors")
    log_y(axes[0])
    steps_axis(axes[0], {row["steps"] for row in among if row["steps"] is not None})
    _judged_on(axes[1], judged)
    posterior.scatter_on(axes[2], losses)
    axes[2].set_title("(c) worse loss, better samples")
    legend_below(figure, axes[0], 4, fontsize=6, handlelength=3)
    return figure


def _judged_on(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """From standard (open) to sharpened (filled): scores upwards, token entropy across.

    Of one judge, since judges are no one scale: a language model if there is one.
    """
    from strop.figures import BLUE, GREEN

    judges = sorted({row.get("judge", "") for row in rows}, key=lambda one: "offline" in one)
    rows = [row for row in rows if row.get("judge", "") == judges[0]]
    for name, label, colour in (("geq", "GEQ", BLUE), ("ged", "GED", GREEN)):
        for row in rows:
            pair = [(value_of(row[f"entropy_{s}"]), row[f"{name}_{s}"]) for s in groupeval.SETTINGS]
            if any(None in one for one in pair):
                continue
            (x0, y0), (x1, y1) = cast(list[tuple[float, float]], pair)
            axes.annotate("", (x1, y1), (x0, y0), arrowprops={"arrowstyle": "->", "color": colour})
            axes.plot([x0], [y0], "o", ms=4, mec=colour, mfc="white")
            axes.plot([x1], [y1], "o", ms=4, color=colour)
            look: dict[str, Any] = {"textcoords": "offset points", "fontsize": 6, "ha": "center"}
            axes.annotate(f"{row['steps']:,}", (x1, y1), (0, 5), color=colour, **look)
        axes.plot([], [], "o", color=colour, label=label)
    axes.invert_xaxis()
    axes.set(xlabel="token entropy H (nats), falling →", ylabel="score, 0 to 10")
    axes.set_title("(b) standard (open) to sharpened")
    axes.legend(fontsize=6)


def _beside(result: Result, ask: Ask, roles: Mapping[str, str]) -> Table:
    """The ranges that the paper prints, and those over the cells here."""
    del ask, roles
    printed = paper.table(NAME).by("what")
    rows = []
    for what, column in ((LOSS, "masked"), (RATIO, "ratio")):
        found: list[Interval] = [row[column] for row in result.table.rows]
        for end, pick in (("low", min), ("high", max)):
            measured = pick(found, key=lambda one: one.value)
            said = printed[what,][end]
            rows.append({"what": what, "end": end, "paper": said, "measured": measured})
    return paper.beside("ranges over the cells of panel c", (Column("what"), Column("end")), rows)


STUDY = Study(
    name=NAME,
    title="Three findings in one figure",
    about="Draw the paper's first figure from studies of the baseline and its successors.",
    sources=Sources(("MODEL...",), "As for `strop study cross-model`.", smoke=()),
    parameters=(
        Parameter.counts("steps", "Instead of each panel's own.", None, most=MOST_STEPS + 1),
        parameters.outputs(128, smoke=16, words="Outputs per cell; 128 is panel c's alone."),
        parameters.evaluator("gpt2", smoke=parameters.evaluator().default),
        Parameter.file("held_out", "JSON lines of texts for the loss."),
        *parameters.DRAWN,
        *parameters.ENGINE,
    ),
    run=_run,
    draw=_draw,
    runs=(*PANELS, CELLS),
    examples=("strop study overview --smoke -o runs/overview",),
    items=(
        PaperItem(
            NAME,
            (NAME,),
            "the three findings in one figure",
            "six public checkpoints, gpt2 and gpt2-large, held-out text of OpenWebText, a judge's "
            "endpoint, a GPU",
            _beside,
            {name: one.source for name, one in MODELS.items()},
            named=True,
            flags="--held-out FILE",
        ),
    ),
)
