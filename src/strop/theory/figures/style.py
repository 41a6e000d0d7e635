"""One look for all theory figures: 3.3 inches wide, 8 point type, colours that survive grey."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

__all__ = [
    "BLUE",
    "COLUMN",
    "GREEN",
    "GREY",
    "ORANGE",
    "PURPLE",
    "STYLE",
    "log_y",
    "panels",
    "tidy",
]

COLUMN = 3.3
BLUE, ORANGE, GREEN, PURPLE, GREY = "#1f5fa8", "#d1660b", "#2a8a57", "#7b4fa3", "#8a8a8a"

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


def panels(rows: int, height: float) -> tuple[Figure, list[Axes]]:
    """A figure of one column with panels below each other."""
    figure = Figure(figsize=(COLUMN, height), layout="constrained")
    axes = figure.subplots(rows, 1, squeeze=False)
    return figure, [row[0] for row in axes]


def tidy(axes: Axes) -> None:
    """Only the two axes that carry numbers."""
    axes.spines[["top", "right"]].set_visible(False)


def log_y(axes: Axes) -> None:
    """A log axis with plain numbers, enough of them to read a value off."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    wide = high / low > 30
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 3.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
