"""The report's figures. Colour says the sampler, the line says the precision of its draws.

Markers are full above the entropy guard (or without one), open below it and half full where it is
undecided, everywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox, ScaledTranslation, Transform

from strop.errors import UserError
from strop.figures import (
    BLUE,
    GREEN,
    GREY,
    LINES,
    ORANGE,
    PURPLE,
    log_y,
    panels,
    steps_axis,
    tidy,
)
from strop.measure.guard import MARKS
from strop.page.data import CellGroup, Report, Shown, StudyPart, short, value_of
from strop.page.svg import INK, PAPER, STUDY_STYLE, Drawing, any_script
from strop.spec.value import MetricSpec
from strop.stats.interval import Interval
from strop.table import Table

COLOURS = (BLUE, ORANGE, PURPLE, GREEN, GREY, INK)
MARKERS = {"float64": "o", "float32": "D"}
GUARD_LINE: Any = {"color": INK, "lw": 0.8, "ls": (0, (1, 1.5)), "zorder": 1}
MOST_LINES = 6
"""Beyond these a figure shows the standard sampler and the sharpest others."""
PLACES = ((5, 2, "left"), (5, -8, "left"), (-5, 2, "right"), (-5, -8, "right"), (0, 6, "center"))
"""Where a label may stand beside its point, in the order in which they are tried."""


def drawings(report: Report) -> list[Drawing]:
    """Every figure of the report's own."""
    first, name = next(iter(report.perplexities.items()), (None, ""))
    with matplotlib.rc_context({**STUDY_STYLE, "text.parse_math": False}):
        drawn = [
            drawing
            for i, group in enumerate(report.groups if report.measured else (), 1)
            for drawing in _of_group(i, group, first, name)
        ]
        for i, series in enumerate(report.series, 1):
            rows = [row for row in series.table.rows if None not in (row["geq"], row["ged"])]
            drawn += [_quality_drawing(i, series.name, rows)] if rows else []
    if report.measured:
        with matplotlib.rc_context(STUDY_STYLE):
            drawn.append(_two_bits())
    return drawn


def study_drawings(i: int, part: StudyPart, report: Report) -> tuple[list[Drawing], Table | None]:
    """What a study's record draws of its result, and its table beside the report's cells."""
    record, owner = part.record, f"study-{i}"
    result_drawings: list[Drawing] = []
    beside: Table | None = None
    if record is None:
        return result_drawings, beside
    try:
        with matplotlib.rc_context(STUDY_STYLE):
            if record.draw is not None:
                figure = record.draw(part.result)
                result_drawings.append(Drawing(f"{part.name}-{i}", part.title, "", figure, owner))
            if record.beside_cells is not None and report.cells:
                cells = [cell.measured for cell in report.cells]
                beside, drawn = record.beside_cells(part.result, cells)
                if drawn is not None:
                    result_drawings.append(
                        Drawing(f"{part.name}-{i}-cells", beside.title, "", drawn, owner)
                    )
    except (LookupError, TypeError, AttributeError, StopIteration) as error:
        raise UserError(
            "A study's result does not have what its figure needs.",
            where=part.path,
            got=f"{type(error).__name__}: {error}"[:200],
            fix=f"run the study `{part.name}` again: it writes the file anew",
        ) from None
    return result_drawings, beside if beside is not None and beside.rows else None


# ---------------------------------------------------------------------------- cells


def _of_group(i: int, group: CellGroup, first: MetricSpec | None, name: str) -> Iterable[Drawing]:
    lines, part = _Lines(group), f"group-{i}"
    note, guard = lines.note(), lines.guard
    several = len(group.steps) > 1  # a causal model has one budget: nothing to draw against
    if several and first is not None and lines.of(first):
        caption = f"Generative perplexity under {name}, 95% intervals; lower is more predictable."
        figure = _against_steps(lines, first, "perplexity")
        yield Drawing(f"perplexity-{i}", "Perplexity against steps", caption + note, figure, part)
    if several and lines.of(None):
        caption = "Unigram entropy of single outputs, averaged."
        caption += "" if guard is None else f" The dotted line is the guard, {guard:.2f}."
        figure = _against_steps(lines, None, "entropy, nats")
        yield Drawing(f"entropy-{i}", "Entropy against steps", caption + note, figure, part)
    if first is not None and lines.of(first) and lines.of(None):
        caption = "Down is more predictable, right is more varied."
        caption += " Numbers at the points are steps." if several else ""
        yield Drawing(
            f"frontier-{i}", "The frontier", caption + note, _frontier(lines, first), part
        )


class _Lines:
    """What the figures of a group draw, and how each sampler looks in all of them."""

    def __init__(self, group: CellGroup) -> None:
        self.group = group
        self.cells = {name: [c for c in group.ordered if c.label == name] for name in group.labels}
        if len(self.cells) > MOST_LINES:
            kept = sorted(self.cells, key=self._rank)[:MOST_LINES]
            self.cells = {name: cells for name, cells in self.cells.items() if name in kept}
        # A colour for everything but the precision, a line and a marker for the precision.
        kinds: dict[str, str] = {}
        self.looks: dict[str, dict[str, Any]] = {}
        for name, cells in self.cells.items():
            fields = cells[0].measured.point.fields()
            kind = f"{name.partition(' #')[2]} { {**fields, 'precision': ''} }"
            colour = kinds.setdefault(kind, COLOURS[len(kinds) % len(COLOURS)])
            self.looks[name] = {"color": colour, "ls": LINES[fields["precision"]], "lw": 1.2}

    def _rank(self, name: str) -> tuple[bool, float]:
        """The standard sampler first, then by mean entropy: the sharpest have the least."""
        measured = [cell.measured for cell in self.cells[name]]
        entropies = [cell.entropy.value for cell in measured if cell.entropy is not None]
        return measured[0].point != self.group.standard, float(
            np.mean(entropies)
        ) if entropies else np.inf

    def of(self, wanted: MetricSpec | None) -> dict[str, list[tuple[Shown, Interval]]]:
        """Of every sampler that was measured, its cells by budget, with their values."""
        by_sampler = {
            name: [
                (cell, v) for cell in cells if (v := value_of(cell.measured, wanted)) is not None
            ]
            for name, cells in self.cells.items()
        }
        return {name: cells for name, cells in by_sampler.items() if cells}

    @property
    def guard(self) -> float | None:
        """The one threshold of all cells, if there is one."""
        return self.group.guards[0].threshold if len(self.group.guards) == 1 else None

    def note(self) -> str:
        """What a caption must say of the markers and of what is left out."""
        verdicts = {cell.measured.verdict for cells in self.cells.values() for cell in cells}
        note = (
            f" Open markers ({MARKS['below']}) lie below the guard." if "below" in verdicts else ""
        )
        if "undecided" in verdicts:
            note += f" Half-full ones ({MARKS['undecided']}) are undecided."
        drawn, every = len(self.cells), len(self.group.labels)
        left_out = f" {drawn} of {every} samplers: the standard and the sharpest."
        return note + (left_out if drawn < every else "")

    def blank(self, names: Collection[str]) -> tuple[Figure, Axes]:
        """Axes below a legend that fits: fewer columns for longer names."""
        longest = max(len(short(name)) for name in names)
        across = 3 if longest <= 14 else 2 if longest <= 22 else 1
        rows = -(-len(names) // across)
        figure, (axes,) = panels(1, 2.4 + 0.14 * rows)
        handles = [
            Line2D([], [], marker=_marker(self.cells[name][0]), ms=3.6, **self.looks[name])
            for name in names
        ]
        figure.legend(
            handles,
            map(short, names),
            loc="outside upper left",
            ncol=-(-len(handles) // rows),
            fontsize=6.8,
            columnspacing=1.0,
            handletextpad=0.5,
            borderpad=0,
        )
        return figure, axes

    def draw(
        self,
        axes: Axes,
        name: str,
        points: Sequence[tuple[float, float, Shown]],
        beside: Transform | None = None,
    ) -> str:
        """A line with its markers, perhaps moved a little; the colour it has."""
        look = self.looks[name]
        where = axes.transData if beside is None else beside
        xs, ys = [x for x, _, _ in points], [y for _, y, _ in points]
        axes.plot(xs, ys, transform=where, **look)
        for x, y, cell in points:
            filled = _filled(cell.measured.mark, look["color"])
            more = {"label": short(name), "transform": where, "color": look["color"]}
            axes.plot(x, y, _marker(cell), ms=4.2, mew=1.0, zorder=3, **filled, **more)
        return look["color"]


def _against_steps(lines: _Lines, wanted: MetricSpec | None, label: str) -> Figure:
    drawn = lines.of(wanted)
    figure, axes = lines.blank(drawn)
    scale = figure.dpi_scale_trans
    for rank, (name, cells) in enumerate(drawn.items()):
        # Beside each other, so that intervals at the same budget can be told apart.
        aside = ScaledTranslation(1.6 * (rank - (len(drawn) - 1) / 2) / 72, 0, scale)
        beside = axes.transData + aside
        xs = [cell.measured.steps for cell, _ in cells]
        points = [(x, v.value, cell) for x, (cell, v) in zip(xs, cells, strict=True)]
        colour = lines.draw(axes, name, points, beside)
        lows = [v.value if v.low is None else v.low for _, v in cells]
        highs = [v.value if v.high is None else v.high for _, v in cells]
        axes.vlines(xs, lows, highs, color=colour, lw=0.9, zorder=2, transform=beside)
        # What is moved does not tell the axes where it is.
        axes.update_datalim([*zip(xs, lows, strict=True), *zip(xs, highs, strict=True)])
    axes.autoscale_view()
    if wanted is not None:
        log_y(axes)
    elif lines.guard is not None:
        axes.axhline(lines.guard, **GUARD_LINE)
    steps_axis(axes, _spaced_budgets(lines.group.steps))
    axes.set(xlabel="steps M", ylabel=label)
    tidy(axes)
    return figure


def _frontier(lines: _Lines, wanted: MetricSpec) -> Figure:
    drawn, labels = lines.of(wanted), []
    figure, axes = lines.blank(drawn)
    for name, cells in drawn.items():
        entropies = [(cell.measured.entropy, v.value, cell) for cell, v in cells]
        points = [(h.value, y, cell) for h, y, cell in entropies if h is not None]
        colour = lines.draw(axes, name, points)
        ends = points[:1] + points[1:][-1:] if len(lines.group.steps) > 1 else []
        labels += [_label(axes, f"{cell.measured.steps:,}", x, y, colour) for x, y, cell in ends]
    if lines.guard is not None:
        axes.axvline(lines.guard, **GUARD_LINE)
    log_y(axes)
    axes.margins(x=0.1)
    axes.set(xlabel="entropy, nats", ylabel="perplexity")
    tidy(axes)
    _move_apart(figure, labels)
    return figure


def _marker(cell: Shown) -> str:
    return MARKERS[cell.measured.point.sampler.precision]


def _filled(mark: str, colour: str) -> dict[str, Any]:
    """How full a marker is: the guard's verdict."""
    half = {"fillstyle": "left", "mfcalt": PAPER} if mark == MARKS["undecided"] else {}
    return {"mec": colour, "mfc": PAPER if mark == MARKS["below"] else colour, **half}


def _spaced_budgets(steps: Sequence[int]) -> list[int]:
    """Budgets whose labels do not run into each other on a log axis; the ends always."""
    least = np.log2(steps[-1] / steps[0]) / 12 if len(steps) > 1 else 0
    kept = [steps[-1]]
    for budget in reversed(steps[:-1]):
        if np.log2(kept[-1] / budget) >= least:
            kept.append(budget)
    return kept


def _label(axes: Axes, text: str, x: float, y: float, colour: str) -> Annotation:
    return axes.annotate(
        text, (x, y), (0, 0), textcoords="offset points", color=colour, fontsize=6.5
    )


def _move_apart(figure: Figure, labels: Sequence[Annotation]) -> bool:
    """Move labels beside their points, clear of each other and of the edge; whether all fit."""
    with any_script():
        figure.draw_without_rendering()  # fixes the layout, without which nothing has a place
    kept = [box for axes in figure.axes for line in axes.lines for box in _around(axes, line)]
    dropped = False
    for label in labels:
        for dx, dy, side in PLACES:
            label.set(position=(dx, dy), ha=side)
            box = label.get_window_extent()
            inside = label.axes is not None and label.axes.bbox.x0 <= box.x0
            inside = inside and box.x1 < figure.bbox.x1 and box.y1 < figure.bbox.y1
            if inside and not any(box.overlaps(other) for other in kept):
                kept.append(box)
                break
        else:
            label.remove()
            dropped = True
    return not dropped


def _around(axes: Axes, line: Line2D) -> list[Bbox]:
    """Where the markers of a line are, in pixels."""
    if line.get_marker() in ("None", None, ""):
        return []
    reach = line.get_markersize() / 2 * axes.figure.dpi / 72
    points = axes.transData.transform(line.get_xydata())
    return [Bbox([[x - reach, y - reach], [x + reach, y + reach]]) for x, y in points]


# ---------------------------------------------------------------------------- judges, theory


def _quality_drawing(i: int, judge: str, rows: Sequence[Mapping[str, Any]]) -> Drawing:
    """GEQ against GED, of one judge."""
    figure, (axes,) = panels(1, 2.6)
    labels = []
    for rank, row in enumerate(rows):
        geq, y, colour = row["geq"], row["ged"], COLOURS[rank % len(COLOURS)]
        x, ged = geq.value, row.get("ged_interval")
        if geq.bounded:
            axes.plot([geq.low, geq.high], [y, y], color=colour, lw=0.8)
        if ged is not None and ged.bounded:
            axes.plot([x, x], [ged.low, ged.high], color=colour, lw=0.8)
        filled = _filled(row["mark"], colour)
        axes.plot(x, y, "o", ms=4.5, label=short(row["name"]), color=colour, **filled)
        labels.append(_label(axes, short(row["name"]), x, y, colour))
    axes.set(xlim=(-0.3, 10.3), ylim=(-0.3, 10.3))  # a small difference should look small
    axes.set(xlabel="quality GEQ", ylabel="diversity GED")
    tidy(axes)
    both = any(row.get("ged_interval") is not None for row in rows)
    caption = f"By {judge}: quality with its 95% interval, diversity "
    caption += "with its own." if both else "without one."
    caption += "" if _move_apart(figure, labels) else " Names that have no room are left out."
    return Drawing(f"groupeval-{i}", "Quality and diversity", caption, figure, f"series-{i}")


def _two_bits() -> Drawing:
    """Why a worse predictor can be the better generator, on the smallest case there is."""
    from strop.theory.figures import loss_against_error

    return Drawing(
        "two-bits",
        "Two bits, a perfect model",
        "Two bits that agree with probability 0.7, drawn in two equal rounds by a model that "
        "predicts perfectly; λ is one over the temperature. Half the time both are drawn at once "
        "and know nothing of each other. The loss is least at λ = 1, the error of the outputs is "
        "zero at λ*: a sharper sampler.",
        loss_against_error(),
        "why",
    )
