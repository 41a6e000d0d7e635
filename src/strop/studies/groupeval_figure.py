"""The quality-diversity figure: an arrow from standard to sharpened for every budget and judge."""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from strop.studies.groupeval_panel import Panel
from strop.theory.figures.style import BLUE, COLUMN, GREY, ORANGE, STYLE, tidy

__all__ = ["draw", "save"]

ACROSS = 3


def draw(panel: Panel) -> Figure:
    """One small plot per judge, the default judge first; GED across, GEQ upwards."""
    judges = [panel.default_judge, *(j for j in panel.judges if j != panel.default_judge)]
    rows = math.ceil(len(judges) / ACROSS)
    figure = Figure(figsize=(2 * COLUMN, 0.35 + 2.0 * rows), layout="constrained")
    grid = figure.subplots(rows, ACROSS, sharex=True, sharey=True, squeeze=False).reshape(-1)
    for axes, judge in zip(grid, judges, strict=False):
        _judge(axes, panel, judge)
    for axes in grid[len(judges) :]:
        axes.set_axis_off()
    for place, axes in enumerate(grid[: len(judges)]):
        # The lowest plot of each column carries the axis.
        axes.tick_params(labelbottom=place + ACROSS >= len(judges))
    _legend(grid[len(judges) :], figure)
    figure.supxlabel("GED: do the outputs differ?", fontsize=8)
    figure.supylabel("GEQ: is each output good?", fontsize=8)
    return figure


def _judge(axes: Axes, panel: Panel, judge: str) -> None:
    for row in panel.of(judge):
        start, end = (row.ged[0], row.geq[0]), (row.ged[1], row.geq[1])
        axes.annotate(
            "",
            end,
            start,
            arrowprops={"arrowstyle": "-|>", "color": GREY, "lw": 0.9, "shrinkA": 2, "shrinkB": 2},
        )
        axes.plot(*start, "o", ms=3.5, mfc="white", mec=BLUE, mew=1.1, zorder=3)
        axes.plot(*end, "o", ms=3.5, color=ORANGE, zorder=3)
    _label_steps(axes, panel, judge)
    default = " (default)" if judge == panel.default_judge else ""
    axes.set_title(f"{judge}{default}", loc="left")
    axes.set(xlim=(-0.6, 10.6), ylim=(-0.4, 8.4), xticks=range(0, 11, 5), yticks=range(0, 9, 2))
    tidy(axes)


def _label_steps(axes: Axes, panel: Panel, judge: str) -> None:
    """The number of steps at the tail of each arrow, where it does not cover another label."""
    taken: list[tuple[float, float]] = []
    for row in panel.of(judge):
        x, y = row.ged[0], row.geq[0]
        if all(abs(x - a) > 1.6 or abs(y - b) > 0.75 for a, b in taken):
            taken.append((x, y))
            axes.annotate(
                str(row.steps), (x, y), (-4, -3), textcoords="offset points", ha="right",
                va="top", fontsize=6.5, color=BLUE,
            )  # fmt: skip


def _legend(free: list[Axes], figure: Figure) -> None:
    handles = [
        matplotlib.lines.Line2D([], [], marker="o", ls="", ms=3.5, mfc="white", mec=BLUE),
        matplotlib.lines.Line2D([], [], marker="o", ls="", ms=3.5, color=ORANGE),
    ]
    names = ["standard, with its steps", "sharpened"]
    if len(free):
        free[0].legend(handles, names, loc="center", frameon=False)
    else:
        figure.legend(handles, names, loc="outside upper right", ncols=2, frameon=False)


def save(panel: Panel, path: str | Path) -> Path:
    """Write the figure; the suffix (.svg, .png, .pdf) decides the format."""
    path = Path(path)
    with matplotlib.rc_context(STYLE):
        figure = draw(panel)
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, metadata=metadata)
    return path
