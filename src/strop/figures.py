"""The house's look for figures, and writing them: 3.3 inches wide, colours that survive grey."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from strop.disk import write
from strop.stats.interval import Interval

COLUMN = 3.3
BLUE, ORANGE, GREEN, PURPLE, GREY = "#1f5fa8", "#d1660b", "#2a8a57", "#7b4fa3", "#8a8a8a"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, GREY)
LINES: dict[str, Any] = {"float64": "-", "float32": (0, (4, 1.6))}
"""The precision of the draw, in every figure that tells precisions apart."""
IMPLEMENTATIONS: dict[str, Any] = {"fast": "-", "dense": (0, (4, 1.6))}
"""The implementation, in every figure that tells implementations apart."""

STYLE: Any = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "axes.linewidth": 0.7,
    "lines.linewidth": 1.4,
    "savefig.dpi": 300,
    "svg.hashsalt": "strop",
}


def panels(
    rows: int, height: float, across: int = 1, wide: float = 1, **share: Any
) -> tuple[Figure, list[Axes]]:
    """A figure, `wide` columns of a page wide, with panels below and beside each other."""
    figure = Figure(figsize=(wide * COLUMN, height), layout="constrained")
    axes = list(figure.subplots(rows, across, squeeze=False, **share).flat)
    for panel in axes:
        tidy(panel)
    return figure, axes


def tidy(axes: Axes) -> None:
    """Only the two axes that carry numbers."""
    axes.spines[["top", "right"]].set_visible(False)


def legend_below(figure: Figure, axes: Axes, columns: int = 2, **look: Any) -> None:
    """One legend below all panels, from the lines of one of them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncol=columns, **look)


def log_y(axes: Axes) -> None:
    """A log axis with plain numbers, enough of them to read a value off."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    wide = high / low > 30
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 3.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def log_ticks(low: float, high: float) -> list[float]:
    """Ratios to mark on a log axis between two ends; one is always among them."""
    marks = (0.1, 0.2, 0.25, 0.33, 0.5, 0.67, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 7, 10)
    return [mark for mark in marks if mark == 1 or low <= mark <= high]


def steps_axis(axes: Axes, steps: Iterable[int]) -> None:
    """A log axis with every budget written out."""
    ticks = sorted(set(steps))
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{m:,}" for m in ticks], rotation=0 if len(ticks) < 8 else 45)
    axes.minorticks_off()


def grouped(
    rows: Iterable[Mapping[str, Any]], *keys: str
) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """Rows by the values of some keys: what is one line of a figure."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def plain_ticks(axis: Axis, ticks: Sequence[float]) -> None:
    """Ticks at these values, written in full, with none between them."""
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.axes.minorticks_off()


def bars(axes: Axes, x: Sequence[float], intervals: Sequence[Interval], **look: Any) -> None:
    """Values with their intervals."""
    axes.errorbar(x, [interval.value for interval in intervals], errors(intervals), **look)


def errors(intervals: Sequence[Interval]) -> Any:
    """How far the ends of some intervals lie from their values, as matplotlib wants it.

    Nan, which has no bar, where an end is not there.
    """
    return [
        [
            math.nan if interval.low is None else interval.value - interval.low
            for interval in intervals
        ],
        [
            math.nan if interval.high is None else interval.high - interval.value
            for interval in intervals
        ],
    ]


def line(axes: Axes, x: Sequence[float], y: Sequence[Any], below: Sequence[bool], **look: Any):
    """A line through values or intervals, these with their bars; markers are open where `below`."""
    values = [entry.value if isinstance(entry, Interval) else entry for entry in y]
    colour = look["color"]
    if isinstance(y[0], Interval):
        axes.errorbar(x, values, errors(y), fmt="none", ecolor=colour, capsize=2, lw=0.8)
    axes.plot(x, values, **{"lw": 1.1, **look})
    for open_, fill in ((False, colour), (True, "white")):
        points = [i for i, is_below in enumerate(below) if is_below == open_]
        at = {"ls": "none", "marker": "o", "ms": 3.5, "color": colour, "mfc": fill, "zorder": 3}
        axes.plot([x[i] for i in points], [values[i] for i in points], **at)


def shades(count: int) -> Any:
    """Colours from dark to light, for what has an order."""
    import numpy as np

    return matplotlib.colormaps["viridis"](np.linspace(0.0, 0.85, count))


def write_figure(draw: Callable[[], Figure], files: Sequence[Path]) -> None:
    """Draw in the house style and write every file whole; a file's ending is its kind.

    A date in the file would make equal figures differ. The first file's layout is that of all.
    """
    with matplotlib.rc_context(STYLE):
        figure = draw()
        for path in files:
            content = io.BytesIO()
            kind = path.suffix[1:]
            figure.savefig(content, format=kind, metadata={"Date": None} if kind == "svg" else None)
            write(path, content.getvalue())
            figure.set_layout_engine(None)  # half of a figure's time
