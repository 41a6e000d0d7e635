"""What a figure shows, as plain values: panels, and marks with their intervals and places.

A figure is drawn once, and everything else is read off it: the marks that answer to the pointer on
the page, the table beside it, and the CSV file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.ticker import FixedLocator

from strop.stats.interval import Interval
from strop.table import Column, Table, number

LONGEST = 60
"""Points of a line without markers from which on it is a curve, and its points no marks."""
CAPS = ("_", "|", "None", "none", " ", "", None)
"""Markers that are no marks: the ends of intervals, and nothing."""
POINTS = 72
"""In an inch: what SVG counts in."""


@dataclass(frozen=True)
class ChartMark:
    """One value of a figure."""

    panel: int
    series: str
    x: Interval
    """Without ends where it has none."""
    y: Interval
    colour: str
    left: float
    top: float
    """Its place, in points from the upper left corner."""
    at: str = ""
    """What stands at the axis where `x` is, if that is no number."""
    line: bool = False
    """Whether it stands on a line with others of its series."""
    cell: str | None = None
    """The cell whose outputs it is about."""


@dataclass(frozen=True)
class Panel:
    """The axes of a figure: where they are, and how values become places."""

    title: str
    labels: tuple[str, str]
    log: tuple[bool, bool]
    limits: tuple[float, float, float, float]
    """x from, x to, y from, y to."""
    box: tuple[float, float, float, float]
    """left, right, bottom, top, in points from the upper left corner."""


@dataclass(frozen=True)
class Chart:
    """A figure as plain values."""

    panels: tuple[Panel, ...]
    marks: tuple[ChartMark, ...]

    def table(self, title: str) -> Table:
        """One row per mark."""
        several = len({mark.panel for mark in self.marks}) > 1
        named = any(mark.series for mark in self.marks)
        labels = self.panels[self.marks[0].panel].labels if self.marks else ("x", "y")
        columns = [
            *([Column("panel")] if several else []),
            *([Column("series", "")] if named else []),
            Column("x", labels[0] or "x", digits=4),
            Column("y", labels[1] or "y", digits=4),
        ]
        rows = [
            {
                "panel": self.panels[mark.panel].title or mark.panel + 1,
                "series": mark.series,
                "x": mark.at or _bare(mark.x),
                "y": mark.y,
            }
            for mark in self.marks
        ]
        return Table(title, tuple(columns), rows)

    def words(self, mark: ChartMark) -> str:
        """A mark for the pointer and for readers of screens."""
        labels = self.panels[mark.panel].labels
        y = f"{labels[1] or 'value'} {_interval_text(mark.y)}"
        whole = not mark.x.bounded and mark.x.value == round(mark.x.value)
        x_text = mark.at or (f"{mark.x.value:,.0f}" if whole else _interval_text(mark.x))
        x = f"{labels[0]} {x_text}".strip()
        return ": ".join(filter(None, [mark.series, f"{y}, {x}"]))

    def document(self) -> dict[str, Any]:
        """For the page's script."""
        return {
            "panels": [vars(panel) for panel in self.panels],
            "marks": [
                [m.panel, m.series, m.x.value, m.y.value, m.line, m.colour] for m in self.marks
            ],
        }


def _bare(value: Interval) -> Any:
    return value if value.bounded else value.value


def _interval_text(value: Interval) -> str:
    ends = f" [{number(value.low)}, {number(value.high)}]" if value.bounded else ""
    return f"{number(value.value, 4)}{ends}"


def chart(figure: Figure, cells: Mapping[str, Iterable[float]] = {}) -> Chart:
    """Read a figure whose layout is fixed; `cells` are known by values that are theirs alone."""
    whose = {_key(value): cell for cell, values in cells.items() for value in values}
    panels, marks = [], list[ChartMark]()
    height = figure.get_figheight() * POINTS
    scale = POINTS / figure.dpi
    for axes in figure.axes:
        box = axes.get_window_extent()
        left, right = box.x0 * scale, box.x1 * scale
        bottom, top = height - box.y0 * scale, height - box.y1 * scale
        labels = _clean(axes.get_xlabel()), _clean(axes.get_ylabel())
        log = axes.get_xscale() == "log", axes.get_yscale() == "log"
        title = _clean(axes.get_title() or axes.get_title("left"))
        limits = (*axes.get_xlim(), *axes.get_ylim())
        panels.append(Panel(title, labels, log, limits, (left, right, bottom, top)))
        names, ticks = _names(figure, axes), _ticks(axes)
        seen: set[tuple[float, float]] = set()
        points = [
            *_marker_points(axes),
            *_bar_points(axes),
            *_scatter_points(axes),
            *_bare_line_points(axes),
        ]
        for label, colour, x, y, (px, py), line in points:
            if not (np.isfinite([x, y, px, py]).all() and (_key(x), _key(y)) not in seen):
                continue
            if not (box.x0 - 1 <= px <= box.x1 + 1 and box.y0 - 1 <= py <= box.y1 + 1):
                continue
            if line or label:  # of other series at the same place only one is reached
                seen.add((_key(x), _key(y)))
            series = label or names.get(colour, "")
            cell = whose.get(_key(y)) or whose.get(_key(x))
            point = ChartMark(
                len(panels) - 1,
                series,
                Interval(x),
                Interval(y),
                colour,
                px * scale,
                height - py * scale,
                ticks.get(_key(x), ""),
                line,
                cell,
            )
            marks.append(_with_ends(point, axes))
    return Chart(tuple(panels), tuple(marks))


PlottedPoint = tuple[str, str, float, float, tuple[float, float], bool]


def _marker_points(axes: Axes) -> Iterator[PlottedPoint]:
    """Points that have a marker of their own."""
    for line in axes.lines:
        if line.get_marker() not in CAPS and not isinstance(line.get_marker(), int):
            yield from _points(line, axes)


def _bare_line_points(axes: Axes) -> Iterator[PlottedPoint]:
    """Points of short lines without markers."""
    for line in axes.lines:
        bare = line.get_marker() in ("None", "none", " ", "", None)
        count = len(np.atleast_1d(line.get_xdata()))
        if bare and 2 <= count <= LONGEST and line.get_linestyle() != "None":
            yield from _points(line, axes)


def _points(line: Any, axes: Axes) -> Iterator[PlottedPoint]:
    data = np.asarray(line.get_xydata(), float)
    if sum(line.get_transform().contains_branch_seperately(axes.transData)) == 1:
        return  # a line across the axes
    places = line.get_transform().transform(data)
    many = len(data) > 1 and line.get_linestyle() not in ("None", "none", " ", "")
    for (x, y), pixel in zip(data.tolist(), places.tolist(), strict=True):
        yield _label(line), to_hex(line.get_color()), x, y, tuple(pixel), many


def _scatter_points(axes: Axes) -> Iterator[PlottedPoint]:
    for collection in axes.collections:
        if not isinstance(collection, PathCollection):
            continue
        colours = np.asarray(collection.get_edgecolor(), float).tolist()
        offsets = np.ma.filled(np.ma.asarray(collection.get_offsets(), float), np.nan)
        places = collection.get_offset_transform().transform(offsets)
        for i, ((x, y), pixel) in enumerate(zip(offsets.tolist(), places.tolist(), strict=True)):
            colour = to_hex(colours[i % len(colours)]) if len(colours) else ""
            yield _label(collection), colour, x, y, tuple(pixel), False


def _bar_points(axes: Axes) -> Iterator[PlottedPoint]:
    for bars in axes.containers:
        if not isinstance(bars, BarContainer):
            continue
        for bar in bars.patches:
            across = bars.orientation == "horizontal"
            x = bar.get_x() + (bar.get_width() if across else bar.get_width() / 2)
            y = bar.get_y() + (bar.get_height() / 2 if across else bar.get_height())
            pixel = axes.transData.transform((x, y))
            yield _label(bars), to_hex(bar.get_facecolor()), x, y, tuple(pixel.tolist()), False


def _with_ends(mark: ChartMark, axes: Axes) -> ChartMark:
    """The mark with its interval, if a bar or a band of its colour runs through it."""
    x, y = mark.x.value, mark.y.value
    for collection in axes.collections:
        if isinstance(collection, PolyCollection):
            mark = _with_band(mark, collection)
        if not isinstance(collection, LineCollection):
            continue
        colours = [to_hex(c) for c in np.asarray(collection.get_colors(), float).tolist()]
        for i, segment in enumerate(collection.get_segments()):
            if len(segment) != 2 or colours[i % len(colours)] != mark.colour:
                continue
            (x0, y0), (x1, y1) = np.asarray(segment, float).tolist()
            if x0 == x1 == x and min(y0, y1) <= y <= max(y0, y1):
                mark = replace(mark, y=Interval(y, min(y0, y1), max(y0, y1)))
            elif y0 == y1 == y and min(x0, x1) <= x <= max(x0, x1):
                mark = replace(mark, x=Interval(x, min(x0, x1), max(x0, x1)))
    return mark


def _with_band(mark: ChartMark, band: PolyCollection) -> ChartMark:
    """The mark with what `fill_between` has drawn above and below it."""
    colours = np.asarray(band.get_facecolor(), float).tolist()
    if not colours or to_hex(colours[0]) != mark.colour:
        return mark
    corners = np.concatenate([path.vertices for path in band.get_paths()])
    at = corners[corners[:, 0] == mark.x.value, 1].tolist()
    if not at or not min(at) <= mark.y.value <= max(at):
        return mark
    return replace(mark, y=Interval(mark.y.value, min(at), max(at)))


def _names(figure: Figure, axes: Axes) -> dict[str, str]:
    """What a legend calls a colour, where lines have no label of their own."""
    names: dict[str, str] = {}
    legends: list[Legend | None] = [axes.get_legend(), *figure.legends]
    for legend in legends:
        if legend is None:
            continue
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=False):
            get = getattr(handle, "get_color", None) or getattr(handle, "get_facecolor", None)
            colour = None if get is None else get()
            if colour is not None and np.ndim(colour) <= 1 and len(colour):
                names.setdefault(to_hex(colour), _clean(text.get_text()))
    return names


def _ticks(axes: Axes) -> dict[float, str]:
    """What is written at the x axis where its ticks are given one by one."""
    if not isinstance(axes.xaxis.get_major_locator(), FixedLocator):
        return {}
    labels = [label.get_text() for label in axes.get_xticklabels()]
    ticks = zip(axes.get_xticks().tolist(), map(_clean, labels), strict=False)
    return {_key(x): words for x, words in ticks if words and not _numeric(words)}


def _numeric(words: str) -> bool:
    return words.replace(",", "").replace("−", "-").lstrip("-").replace(".", "", 1).isdigit()


def _label(artist: Any) -> str:
    label = str(artist.get_label())
    return "" if label.startswith("_") else _clean(label)


def _clean(text: str) -> str:
    """Without the signs of formulas, in one line."""
    return " ".join(text.replace("$", "").replace("\\", "").split())


def _key(value: float) -> float:
    return float(f"{value:.12g}")
