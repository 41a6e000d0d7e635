"""Progress: which cell of how many, how long it still takes, a line a minute, or nothing."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from strop.cli import output
from strop.cli.main import run
from strop.cli.progress import Bar, Lines, _Stage
from strop.spec import CellSpec
from strop.table import duration
from test_store import cell_of


def cell(steps: int, seed: int = 0) -> CellSpec:
    """Of a generator of length 4."""
    return cell_of(seed=seed, steps=steps)


def test_the_rest_is_weighed_by_network_calls() -> None:
    """Cells of 1 and of 4 calls an output; a step beyond the length costs nothing."""
    now = [0.0]
    stage = _Stage(lambda: now[0])
    few, many = cell(1), cell(1024)
    assert many.generator.length == 4
    stage.expect([(few, 10), (many, 10)])
    stage.start(few, 10, 0, "")
    assert (stage.which, stage.to_go) == ("cell 1 of 2", "")
    now[0] = 10.0
    stage.advance(10, 40)
    assert stage.left == 40
    assert stage.to_go == "40 s to go"
    assert stage.share == pytest.approx(10 / 50)
    assert stage.speed == "4 tok/s"
    # Four of the second are on disk already: six are left, of four calls each.
    stage.start(many, 10, 4, "")
    assert (stage.which, stage.left, stage.to_go) == ("cell 2 of 2", 24, "24 s to go")
    stage.advance(6, 24)
    assert (stage.done, stage.left, stage.share, stage.to_go) == (10, 0, 1.0, "")


def test_scores_cost_the_same_at_any_number_of_steps() -> None:
    stage = _Stage()
    stage.expect([(cell(1), 3), (cell(4), 3)], "perplexity")
    assert stage.left == 6


def test_a_call_that_did_not_say_what_comes_is_one_of_its_own() -> None:
    stage = _Stage()
    stage.expect([(cell(1), 3), (cell(2), 3)])
    stage.start(cell(1), 3, 0, "")
    stage.start(None, 5, 0, "texts")
    assert (stage.which, stage.left) == ("", 5)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (119, "119 s"),
        (120, "2.0 min"),
        (720, "12 min"),
        (7199, "120 min"),
        (7200, "2.0 h"),
    ],
)
def test_times_have_one_unit(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_log_gets_a_line_a_minute(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]
    lines = Lines(lambda: now[0])
    one, two = cell(1), cell(2)
    lines.expect([(one, 30), (two, 30)])
    lines.start(one, 30, 0)
    for _ in range(30):
        now[0] += 5
        lines.advance(1, 4)
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2, told
    # 12 of 30 in 60 s; 18 of one call and 30 of two are left.
    assert told[0] == "cell 1 of 2, M=1 tau=1 float64: 12/30, 1 tok/s, 6.5 min to go"


def test_a_terminal_shows_two_bars_and_keeps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    page = io.StringIO()
    bar = Bar()
    shown = Console(file=page, force_terminal=True, width=100)
    monkeypatch.setattr(bar._progress.live, "console", shown)
    cells = [cell(2, seed) for seed in range(40)]
    bar.expect([(one, 2) for one in cells])
    with bar:
        for one in cells:
            bar.start(one, 2, 0)
            bar.advance(2, 8)
        assert len(bar._progress.tasks) == 2, "finished bars are gone"
        told = [task.description for task in bar._progress.tasks]
        assert told == ["cell 40 of 40", "M=2 tau=1 float64"]
        assert bar._progress.tasks[0].completed == 1.0
    assert bar._progress.live.transient


def test_quiet_prints_the_result_only(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    line = ["sample", "embedded:tales-tiny", "--steps", "1", "-n", "1", "--length", "4"]
    assert run([*line, "-o", str(tmp_path / "a")]) == 0
    assert "next: strop show" in capsys.readouterr().err
    assert run([*line, "-o", str(tmp_path / "b"), "--quiet", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert len(json.loads(out)["cells"]) == 1
    assert run(["sample", "embedded:nothing", "-n", "1", "--quiet", "-o", str(tmp_path / "c")]) == 1
    assert "no embedded model" in capsys.readouterr().err, "errors are no chatter"


# Tables

NOTE = "0.85 is the lowest temperature tried in float32; not above the guard in the table"
OTHER = "fewer than 32 outputs: the interval is too short to rely on"
HEADER = ["rule", "M", "setting", "gain on fresh outputs", "entropy", "guard", "evaluator", "note"]
ROWS = [
    ["frozen", "4", "(0.85, float32)", "1.04 [0.962, 1.12]", "4.81", "above", "tales-ar", NOTE],
    ["frozen", "16", "(0.9, float64)", "1.88 [1.71, 2.06]", "4.92", "above", "tales-ar", OTHER],
    ["sharpest", "64", "(0.85, float32)", "1.60 [1.4, 1.8]", "4.7", "above", "tales-ar", NOTE],
    ["sharpest", "256", "(1, float64)", "1 [0.9, 1.1]", "4.99", "above", "tales-ar", ""],
]


def printed(
    columns: int | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", str(columns))
    output.table(HEADER, ROWS)
    return capsys.readouterr().out.splitlines()


def test_a_piped_table_is_as_wide_as_columns_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(100, monkeypatch, capsys)
    assert max(len(line.rstrip()) for line in lines) <= 100
    assert lines[0] == "guard: above; evaluator: tales-ar"
    assert "evaluator" not in lines[1]
    rows = [line.split() for line in lines if line.startswith(("frozen", "sharpest"))]
    assert [row[-1] for row in rows[:3]] == ["a", "b", "a"], "one letter per note"
    assert len(rows) == len(ROWS), "one line per row"
    assert f"a  {NOTE}" in lines
    assert f"b  {OTHER}" in lines


def test_without_columns_it_is_as_wide_as_a_usual_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = printed(None, monkeypatch, capsys)  # 400 columns in tests
    assert NOTE in whole[2]
    assert sum("tales-ar" in line for line in whole) == len(ROWS)
    assert len(whole) == 2 + len(ROWS)
    monkeypatch.setattr(output, "PIPED", 100)
    lines = printed(None, monkeypatch, capsys)
    assert lines == printed(100, monkeypatch, capsys)
    assert lines != whole
