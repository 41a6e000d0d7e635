"""`strop task run` and `strop task score` at the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strop.cli.main import run

AR = "embedded:sums-ar"


def _call(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str, str]:
    code = run([str(word) for word in argv])
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("task_run") / "sums"
    asked = ["task", "run", "sums", AR, "--temperature", "0,1", "--seeds", "2", "--limit", "2"]
    assert run([*asked, "-o", str(out), "--json"]) == 0
    return out


def test_score_prints_the_table_and_draws_the_figure(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (made / "accuracy.png").unlink()
    code, out, err = _call(capsys, "task", "score", made)
    assert code == 0
    assert "sums: 2 problems" in out
    assert "accuracy" in out.splitlines()[1]
    assert "next: strop show" in err
    assert (made / "accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert (made / "accuracy.svg").read_text().lstrip().startswith("<?xml")


def test_json_is_one_document(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _call(capsys, "task", "score", made, "--json", "--against", "2")
    told = json.loads(out)
    assert code == 0
    assert (told["task"], told["length"]) == ("sums", 24)
    assert [(row["temperature"], row["seeds"]) for row in told["settings"]] == [(0, 1), (1, 2)]
    assert told["settings"][0]["against"] == 2


def test_run_tells_what_was_decided(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["task", "run", "sums", AR, "--temperature", "0", "--limit", "1", "-o", made]
    code, _, err = _call(capsys, *asked)
    assert code == 0
    assert "sums-ar: problems as plain text; a response ends at <|endoftext|>" in err


def test_other_verbs_see_the_run(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _call(capsys, "ls", made.parent)
    assert code == 0
    assert "task sums" in out
    code, out, _ = _call(capsys, "score", made / "sums-ar", "--evaluator", "none")
    assert code == 0
    assert "accuracy" in out
    code, _, err = _call(capsys, "show", made)
    assert code == 1
    assert f"strop task score {made}" in err


def test_the_page_has_tables_figure_and_responses(
    made: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    code, out, _ = _call(capsys, "report", made, "-o", page, "--json")
    assert code == 0
    told = json.loads(out)
    assert any("task-sums" in file for file in told["figures"])
    assert told["cells"] == 3
    html = page.read_text()
    assert "Accuracy against temperature" in html
    assert "sums: 2 problems" in html


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["task", "run", "sumz", AR, "-o", "x"], "did you mean 'sums'?"),
        (["task", "run", "sums", "embedded:nobody", "-o", "x"], "no embedded model"),
        (["task", "run", "sums", AR, "-o", "x", "--temperature", "hot"], "--temperature"),
        (["task", "run", "sums", AR, "-o", "x", "--limit", "0"], "--limit"),
        (["task", "run", "sums", AR, "-o", "x", "--seeds", "0"], "--seeds"),
        (["task", "run", "sums", AR, "-o", "x", "--steps", "a"], "--steps"),
        (["task", "run", "sums", AR, "-o", "x", "--bos", "maybe"], "--bos"),
        (["task", "run", "sums", AR, "-o", "x", "--chat", "--limit", "1"], "no chat template"),
        (["task", "run", "sums", AR, "-o", "x", "--load", "a"], "--load"),
        (["task", "run", "sums", AR, "-o", ""], "path is empty"),
        (["task", "score", "nowhere"], "not a task run"),
    ],
)
def test_wrong_input(
    argv: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = _call(capsys, *argv)
    assert code == 1
    assert told in err
    assert not out


def test_a_row_that_is_not_there(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = _call(capsys, "task", "score", made, "--against", "3")
    assert code == 1
    assert "a number from 1 to 2" in err
