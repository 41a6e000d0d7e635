"""The cost study as one figure: peak memory, seconds and network calls against steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from strop.studies.figure import write_figure
from strop.theory.figures.style import BLUE, ORANGE, panels, tidy

__all__ = ["draw", "save"]

COLOURS = {"standard": BLUE, "sharpened": ORANGE}
LINES = {"dense": "--", "fast": "-"}
PANELS = (
    ("peak_gib", "peak memory, GiB"),
    ("seconds", "seconds per sequence"),
    ("calls", "network calls\nper sequence"),
)


def draw(result: dict[str, Any]) -> Figure:
    """Colour: standard or sharpened; dashes: dense or fast. What was not measured is not there."""
    rows = [row for row in result["rows"] if row["failure"] is None]
    shown = [panel for panel in PANELS if any(row[panel[0]] is not None for row in rows)]
    figure, axes = panels(max(len(shown), 1), 1.9 * max(len(shown), 1) + 0.5)
    for (field, title), one in zip(shown, axes, strict=False):
        _lines(one, rows, field)
        one.set(ylabel=title, xscale="log", yscale="log")
        ticks = sorted({row["updates"] for row in rows})
        one.set_xticks(ticks, [f"{m:,}" for m in ticks])
        one.minorticks_off()
        tidy(one)
    if shown:
        axes[0].legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncol=2)
        axes[len(shown) - 1].set_xlabel("configured updates M")
    return figure


def _lines(axes: Axes, rows: list[dict[str, Any]], field: str) -> None:
    for name, dashes in LINES.items():
        for setting, colour in COLOURS.items():
            points = [
                (row["updates"], row[field])
                for row in rows
                if (row["implementation"], row["setting"]) == (name, setting)
                and row[field] is not None
            ]
            if points:
                x, y = zip(*sorted(points), strict=True)
                label = f"{name}, {setting}"
                axes.plot(x, y, color=colour, ls=dashes, marker="o", ms=2.5, lw=1.2, label=label)


def save(result: dict[str, Any], files: Sequence[Path]) -> None:
    """Write the figure as SVG and PNG."""
    write_figure(lambda: draw(result), files)
