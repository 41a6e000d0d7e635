"""What is read off a figure, against the numbers that it was drawn from."""

from __future__ import annotations

import csv
import io
from typing import Any

import matplotlib
import pytest
from matplotlib.figure import Figure
from synthetic import CORNERS, report

from strop.figures import COLUMN, STYLE, errors, panels
from strop.page.figures import drawings
from strop.page.marks import Chart, chart
from strop.page.svg import as_file, inline, mended
from strop.stats.interval import Interval


def read(figure: Figure, cells: dict[str, list[float]] | None = None) -> Chart:
    with matplotlib.rc_context(STYLE):
        figure.draw_without_rendering()
    figure.set_layout_engine(None)
    return chart(figure, cells or {})


def values(found: Chart) -> list[tuple[Any, ...]]:
    return [(m.series, m.x.value, m.y.value, m.y.low, m.y.high) for m in found.marks]


def test_markers_bars_of_intervals_and_labels() -> None:
    figure, (axes,) = panels(1, 2.0)
    found = [Interval(3, 2, 5), Interval(4, 2.5, 4.25)]  # each runs past the other
    axes.errorbar([1, 2], [3, 4], errors(found), fmt="none", ecolor="#1f5fa8", capsize=2)
    axes.plot([1, 2], [3, 4], "o-", color="#1f5fa8", label="a $model$")
    axes.plot([1, 2], [6, 7], "o-", color="#d1660b", label="another")
    axes.set(xlabel="steps", ylabel="loss", xscale="log", title="a title")
    told = read(figure)
    assert values(told) == [
        ("a model", 1, 3, 2, 5),
        ("a model", 2, 4, 2.5, 4.25),
        ("another", 1, 6, None, None),
        ("another", 2, 7, None, None),
    ]
    assert told.words(told.marks[0]) == "a model: loss 3.000 [2.00, 5.00], steps 1"
    (panel,) = told.panels
    assert (panel.title, panel.labels, panel.log) == ("a title", ("steps", "loss"), (True, False))
    # Places are where the picture has them: a pixel of the saved figure has the marker's colour.
    first, last = told.marks[0], told.marks[1]
    assert panel.box[0] < first.left < last.left < panel.box[1]
    assert panel.box[3] < last.top < first.top < panel.box[2]


def test_places_are_those_of_the_picture() -> None:
    import numpy as np

    figure, (axes,) = panels(1, 2.0)
    axes.plot([1, 2, 5], [3, 9, 4], "s", color="#ff0000", ms=3)
    told = read(figure)
    figure.set_dpi(72)
    pixels = np.asarray(_picture(figure))
    for mark in told.marks:
        assert tuple(pixels[round(mark.top), round(mark.left), :3]) == (255, 0, 0)


def _picture(figure: Figure) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return canvas.buffer_rgba()


def test_bars_categories_scatter_and_names_of_a_legend() -> None:
    figure, (axes,) = panels(1, 2.0)
    bars = axes.bar([0, 1], [2.0, 3.0], color="#22754a", label="bars")
    axes.set_xticks([0, 1], ["lower", "higher"])
    axes.scatter([0.5], [1.0], s=20, color="#7b4fa3")
    axes.axhline(1.5, color="#8a8a8a")
    axes.plot(range(100), [2.2] * 100, color="#000000")  # a curve
    point = matplotlib.lines.Line2D([], [], color="#7b4fa3", marker="o")
    figure.legend([bars, point], ["bars", "a point"], loc="outside upper left")
    axes.set_xlim(-1, 2)
    told = read(figure)
    assert [(m.series, m.at, m.y.value) for m in told.marks] == [
        ("bars", "lower", 2.0),
        ("bars", "higher", 3.0),
        ("a point", "", 1.0),
    ]
    assert told.words(told.marks[0]) == "bars: value 2.000, lower"


def test_a_band_is_the_interval_of_its_line() -> None:
    figure = Figure()
    axes = figure.subplots()
    axes.plot([250, 500, 750], [3.0, 2.0, 1.5], "o-", color="#102030", label="held out")
    axes.plot([250, 750], [2.9, 1.4], "o-", color="#302010", label="another colour")
    axes.fill_between([250, 500], [2.5, 1.5], [3.25, 2.5], color="#102030", alpha=0.2)
    axes.set(xlabel="step", ylabel="loss")
    axes.legend()
    figure.draw_without_rendering()
    found = chart(figure)
    assert [found.words(one) for one in found.marks] == [
        "held out: loss 3.000 [2.50, 3.25], step 250",
        "held out: loss 2.000 [1.50, 2.50], step 500",
        "held out: loss 1.500, step 750",
        "another colour: loss 2.900, step 250",
        "another colour: loss 1.400, step 750",
    ]


def test_what_cannot_be_seen_is_no_mark() -> None:
    figure, (axes,) = panels(1, 2.0)
    axes.plot([1, 2, float("nan"), 9], [1, float("nan"), 3, 4], "o", color="#1f5fa8")
    axes.set_xlim(0, 3)
    assert values(read(figure)) == [("", 1, 1, None, None)]


def test_two_panels_and_a_table() -> None:
    figure, (top, bottom) = panels(2, 4.0)
    top.plot([1], [2], "o", color="#1f5fa8")
    bottom.plot([3], [4], "o", color="#1f5fa8")
    top.set(title="first", xlabel="x", ylabel="y")
    table = read(figure).table("both")
    assert [row["panel"] for row in table.rows] == ["first", 2]
    assert [(row["x"], row["y"].value) for row in table.rows] == [(1, 2), (3, 4)]


def test_marks_lead_to_the_cells_whose_numbers_they_are() -> None:
    figure = Figure(figsize=(COLUMN, 2))
    figure.subplots().plot([5.123456789012, 5.2], [30.5, 31.5], "o")
    told = read(figure, {"one": [30.5], "other": [5.2]})
    assert [mark.cell for mark in told.marks] == ["one", "other"]


def test_the_reports_own_figures_say_every_cell_with_its_interval() -> None:
    full = report(steps=(4, 16))
    (group,) = full.groups
    by_name = {one.name: one for one in drawings(full)}
    known = {c.measured.id: [c.measured.perplexity().value] for c in full.cells}
    _, told = inline(by_name["perplexity-1"].figure, "perplexity-1", "a title", known)
    assert len(told.marks) == len(group.cells) == 2 * len(CORNERS)
    for mark in told.marks:
        cell = next(c for c in full.cells if c.measured.id == mark.cell).measured
        level = cell.perplexity()
        assert (mark.series, mark.x.value) == (str(cell.point), cell.steps)
        assert mark.y.value == level.value
        assert (mark.y.low, mark.y.high) == pytest.approx((level.low, level.high))
    lines = list(csv.reader(io.StringIO(as_file(by_name["perplexity-1"].figure, "csv").decode())))
    assert lines[0] == ["panel", "series", "x", "y", "y_low", "y_high"]
    assert {(row[1], float(row[3])) for row in lines[1:]} == {
        (mark.series, mark.y.value) for mark in told.marks
    }


def test_the_second_figure_of_a_group_has_the_same_picture_without_the_legend() -> None:
    drawing = drawings(report(steps=(4, 16)))[1]
    whole, first = inline(drawing.figure, "x", "t")
    bare, second = inline(drawing.figure, "x", "t", bare=True)
    assert first == second
    assert whole.count("(0.9, float64)") > bare.count("(0.9, float64)") > 0  # marks alone
    assert 'viewBox="0 0 ' in whole
    assert 'viewBox="0 0 ' not in bare
    assert all(legend.get_visible() for legend in drawing.figure.legends)


def test_a_formula_in_one_line_of_two_is_kept_and_a_broken_one_is_plain(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """matplotlib reads line by line; a line break in what is checked would be a missing glyph."""
    figure = Figure()
    kept = figure.text(0, 0, "$c(a)$ at 1,\nnats")
    broken = figure.text(0, 1, "$\\nothing{$\nof $5")
    with caplog.at_level("WARNING"):
        mended(figure, str)
    assert (kept.get_parse_math(), broken.get_parse_math()) == (True, False)
    assert caplog.text == ""
