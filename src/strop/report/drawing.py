"""What every figure of the report is made of: a name, a caption, a blank, a bar for an interval."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from strop.report.data import Estimate
from strop.report.plain import visible
from strop.theory.figures.style import COLUMN

__all__ = ["Drawing", "bar", "blank", "short"]

LONGEST = 32
"""Characters of a name in a figure; its end tells more than its beginning."""


@dataclass(frozen=True)
class Drawing:
    """A figure and what the page says about it."""

    name: str
    title: str
    caption: str
    figure: Figure
    model: int | None = None
    """Which of the report's models it is about."""


def short(name: str) -> str:
    """A name from outside as a label: harmless, and no longer than the figure bears."""
    name = visible(name).replace("\n", " ")
    return name if len(name) <= LONGEST else "…" + name[1 - LONGEST :]


def blank() -> tuple[Figure, Axes]:
    """A figure of one column with one pair of axes."""
    figure = Figure(figsize=(COLUMN, 2.6), layout="constrained")
    return figure, figure.subplots()


def bar(axes: Axes, x: float, estimate: Estimate, colour: str) -> None:
    """The interval of an estimate as a vertical line."""
    if estimate.low is not None and estimate.high is not None:
        axes.plot([x, x], [estimate.low, estimate.high], color=colour, lw=0.9, zorder=2)
