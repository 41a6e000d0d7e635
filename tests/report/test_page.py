"""The page and the table without a browser: what is said, what is left out, what it weighs."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import EVALUATOR, report

from strop.errors import UserError
from strop.report.data import CORNERS, DAGGER, STANDARD, Estimate, Report
from strop.report.figures import drawings
from strop.report.page import render, write
from strop.report.svg import VARIABLES, as_file, inline
from strop.report.tables import corner_table, corner_text, interval, number


@pytest.mark.parametrize(
    ("value", "digits", "told"),
    [
        (None, 3, "–"),
        (0.0, 3, "0"),
        (1234.5, 3, "1,234"),
        (22.46, 3, "22.5"),
        (0.04567, 2, "0.046"),
        (-0.5, 2, "−0.50"),
        (float("inf"), 3, "∞"),
        (1.5e12, 3, "1.50e+12"),
    ],
)
def test_numbers(value: float | None, digits: int, told: str) -> None:
    assert number(value, digits) == told


def test_intervals() -> None:
    assert interval(Estimate(2.0, 1.5, 2.5), 2) == "(1.5–2.5)"
    assert interval(Estimate(0.0, -1.0, 1.0), 2) == "(−1.0 to 1.0)"
    assert interval(Estimate(2.0)) == interval(None) == ""


def test_the_best_of_a_row_passes_the_guard() -> None:
    model = report().models[0]
    table = corner_table(model, EVALUATOR)
    assert table.settings == [setting.label for setting in CORNERS]
    for steps, row in zip(table.steps, table.entries, strict=True):
        cells = [model.at(steps, setting) for setting in CORNERS]
        passing = [cell for cell in cells if cell is not None and not cell.below_guard]
        lowest = min(passing, key=lambda cell: cell.perplexity[EVALUATOR].value)
        best = [e is not None and e.best for e in row]
        assert best == [cell is lowest for cell in cells]
        assert [e is not None and e.below_guard for e in row] == [
            cell is not None and cell.below_guard for cell in cells
        ]
        assert [e is not None and e.standard for e in row] == [s == STANDARD for s in CORNERS]
    # The lowest perplexity of all fails the guard somewhere, else the rule was not tested.
    assert any(cell.below_guard for cell in model.cells)


def test_the_table_as_text() -> None:
    model = report(steps=(4,), settings=CORNERS[:1]).models[0]
    cell = replace(
        model.cells[0],
        perplexity={EVALUATOR: Estimate(41.234, 38.1, 44.9)},
        entropy=Estimate(5.014),
        below_guard=True,
    )
    header, rows = corner_text(replace(model, cells=(cell,)), EVALUATOR)
    assert header == ["M", "τ 1 · float64"]
    assert rows == [["4", f"41.23{DAGGER} [5.01] (38.1–44.9)"]]
    assert corner_text(replace(model, cells=(cell,)), None)[1] == [["4", f"{DAGGER} [5.01]"]]


def test_absent_parts_say_which_command_adds_them() -> None:
    full = report(steps=(4,))
    cells = tuple(replace(cell, perplexity={}, pool={}) for cell in full.models[0].cells)
    bare = Report(
        title="bare",
        models=(replace(full.models[0], cells=cells),),
        commands={
            part: f"strop add-{part}" for part in ("score", "cost", "posterior", "groupeval")
        },
    )
    html = render(bare).html
    for part in ("score", "cost", "posterior", "groupeval"):
        assert f"<code>strop add-{part}</code> adds it" in html
    assert "Entropy in nats" in html
    assert "Entropy against steps" in html
    assert "The frontier" not in html
    assert "adds it" not in render(replace(full, commands={"score": "strop score X"})).html


def test_no_cells_at_all() -> None:
    assert "0 generators of 0 checkpoints" in render(Report(title="empty", models=())).html


def packs(html: str) -> list[list[list[object]]]:
    found = re.findall(r'id="pack-\d+">([^<]*)<', html)
    return [json.loads(zlib.decompress(base64.b64decode(one))) for one in found]


def test_what_is_packed_is_what_was_given() -> None:
    full = report(steps=(4,))
    held = packs(render(full).html)
    assert len(held) == len(full.models[0].cells)
    for rows, cell in zip(held, full.models[0].cells, strict=True):
        assert [row[1] for row in rows] == [one.text for one in cell.outputs]
        assert [row[0] for row in rows] == [one.index for one in cell.outputs]
        for row, one in zip(rows, cell.outputs, strict=True):
            assert row[2] == pytest.approx(one.values, rel=1e-4)


def test_a_page_that_would_be_too_large_holds_fewer_outputs() -> None:
    full = report(steps=(4,), n=24, tokens=400)
    whole = render(full)
    assert whole.outputs == 24
    least = len(render(full, outputs=0).html.encode())
    limit = (least + len(whole.html.encode())) // 2
    cut = render(full, most_bytes=limit)
    assert 6 <= cut.outputs < 24
    assert len(cut.html.encode()) <= limit
    assert all(len(rows) == cut.outputs for rows in packs(cut.html))
    assert '"n": 24' in cut.html  # so that the page can say how many there are
    assert render(full, outputs=30, most_bytes=limit).outputs == 24  # asked for: no limit


def test_figures_follow_the_page_and_stand_alone() -> None:
    drawn = drawings(report())
    assert [d.name for d in drawn] == [
        "perplexity-1",
        "entropy-1",
        "frontier-1",
        "cost",
        "two-bits",
        "posterior",
        "groupeval",
    ]
    for drawing in drawn:
        svg = inline(drawing.figure, drawing.name, 'a "name" <b>')
        assert 'aria-label="a &#34;name&#34; &lt;b&gt;"' in svg
        assert "var(--ink)" in svg
        # Every colour is the page's to choose; black and white would vanish in one of its schemes.
        assert not re.findall(r"#[0-9a-f]{6}\b", svg)
        own = set(re.findall(r'id="([^"]*)"', svg))
        assert all(one.startswith(drawing.name + "-") for one in own)
        assert set(re.findall(r'(?:href="|url\()#([^")]*)', svg)) <= own
        alone = as_file(drawing.figure, "svg").decode()
        assert "var(" not in alone
        assert any(colour in alone for colour in VARIABLES)
        assert as_file(drawing.figure, "png").startswith(b"\x89PNG")


def test_figures_of_a_whole_grid_show_the_corners() -> None:
    settings = tuple(
        replace(STANDARD, temperature=tau, precision=precision)
        for tau in (0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1)
        for precision in ("float64", "float32")
    )
    page = render(
        report(steps=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024), settings=settings, n=2)
    )
    svg = page.html[page.html.index("perplexity-1-figure_1") :]
    svg = svg[: svg.index("</svg>")]
    assert all(setting.label in svg for setting in CORNERS)
    assert "τ 1.05" not in svg
    assert page.html.count('<th scope="col">τ') == len(settings)


def test_written_page_and_figures(tmp_path: Path) -> None:
    page = render(report(steps=(4,)))
    files = write(page, tmp_path / "new" / "audit.html")
    assert files[0].read_text(encoding="utf-8") == page.html
    names = sorted(str(file.relative_to(tmp_path / "new")) for file in files[1:])
    assert names == sorted(
        f"figures/audit/{d.name}.{kind}" for d in page.drawings for kind in ("svg", "png")
    )
    before = {file: file.read_bytes() for file in files}
    write(render(report(steps=(4,))), tmp_path / "new" / "audit.html")
    assert {file: file.read_bytes() for file in files} == before  # same numbers, same bytes


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    page = render(report(steps=(4,), n=2))
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="leads through one"):
        write(page, tmp_path / "file" / "report.html")
    assert (tmp_path / "file").read_text() == "mine"
