"""The quality-diversity figure: from standard to sharpened, for every budget and judge."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from strop.studies.groupeval_panel import Panel
from strop.theory.figures.style import COLUMN, STYLE, tidy

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
    _legend(list(grid[len(judges) :]), figure, _colours(panel))
    figure.supxlabel("GED: do the outputs differ?", fontsize=8)
    figure.supylabel("GEQ: is each output good?", fontsize=8)
    return figure


def _colours(panel: Panel) -> dict[int, Any]:
    """A colour for each number of steps."""
    steps = sorted({row.steps for row in panel.rows})
    shades = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.85, len(steps)))
    return dict(zip(steps, shades, strict=True))


def _judge(axes: Axes, panel: Panel, judge: str) -> None:
    colours = _colours(panel)
    for row in panel.of(judge):
        colour = colours[row.steps]
        axes.plot(row.ged, row.geq, "-", lw=1.0, color=colour)
        # The open end is standard, the full end sharpened.
        axes.plot(row.ged[0], row.geq[0], "o", ms=4, mfc="white", mec=colour, mew=1.1, zorder=3)
        axes.plot(row.ged[1], row.geq[1], "o", ms=4, color=colour, zorder=3)
    default = " (default)" if judge == panel.default_judge else ""
    axes.set_title(f"{judge}{default}", loc="left")
    axes.set(xlim=(-0.6, 10.6), ylim=(-0.4, 8.4), xticks=range(0, 11, 5), yticks=range(0, 9, 2))
    tidy(axes)


def _legend(free: list[Axes], figure: Figure, colours: dict[int, Any]) -> None:
    def point(colour: Any, full: bool) -> Line2D:
        fill = colour if full else "white"
        return Line2D([], [], marker="o", ls="", ms=4, mec=colour, mfc=fill)

    handles = [point("black", False), point("black", True)]
    handles += [point(colour, True) for colour in colours.values()]
    names = ["standard", "sharpened", *(f"{steps} steps" for steps in colours)]
    if free:
        free[0].legend(handles, names, loc="center", frameon=False)
    else:
        figure.legend(handles, names, loc="outside upper center", ncols=4, frameon=False)


def save(panel: Panel, path: str | Path) -> Path:
    """Write the figure; the suffix (.svg, .png, .pdf) decides the format."""
    path = Path(path)
    with matplotlib.rc_context(STYLE):
        figure = draw(panel)
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, metadata=metadata)
    return path
