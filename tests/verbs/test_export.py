"""strop export: what stands in a result stands in every file."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import strop
from strop.errors import UserError
from strop.stats.interval import Interval
from strop.store.run import StudyFolder
from strop.table import Column, Table
from strop.verbs.export import FORMATS, exported
from strop.verbs.verb import Result

ROWS = [
    {"steps": 4, "sampler": {"top_p": 1.0}, "gain": Interval(1.5, 1.25, 1.75), "note": "a & b"},
    {
        "steps": 16,
        "sampler": {"name": "=x", "top_p": 0.9, "settings": {"eta": 0.02}},
        "gain": Interval(2.0, 1.5, 2.5, 0.99),
        "note": "=1+1",
    },
    {"steps": 64, "note": {"not": "a text"}},
]
TABLE = Table("Gains", (Column("steps", "M"), Column("gain", digits=3), Column("note")), ROWS)
MORE = Table("More", (Column("x"),), [{"x": 1}], shown=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A finished study of nobody's, without a figure."""
    path = tmp_path / "study"
    made = StudyFolder(path, "study", "made")
    with made.writing({}):
        made.finish(Result({}, TABLE, {"more": MORE}).document(), TABLE.csv())
    return path


def test_every_table_is_written_in_every_format(folder: Path, tmp_path: Path) -> None:
    for kind in FORMATS:
        files = strop.export(folder, format=kind, out=tmp_path / kind).value
        assert [one.name for one in files] == [f"table.{kind}", f"more.{kind}"]
    assert strop.export(folder).value[0] == folder / "export" / "table.csv"


def test_the_files_have_the_numbers_and_say_which_intervals() -> None:
    rows = list(csv.DictReader(io.StringIO(exported(TABLE, "csv").decode())))
    assert [rows[1][key] for key in ("gain", "gain_low", "gain_high")] == ["2.0", "1.5", "2.5"]
    assert rows[1]["note"] == "'=1+1", "nothing that a spreadsheet would run"
    columns = pq.read_table(io.BytesIO(exported(TABLE, "parquet"))).to_pydict()
    assert columns["gain_low"] == [1.25, 1.5, None]
    document = json.loads(exported(TABLE, "json"))
    assert document["rows"][0]["gain"]["high"] == 1.75
    tex, markdown = exported(TABLE, "tex").decode(), exported(TABLE, "md").decode()
    assert tex.startswith("% Gains. Intervals: 95%, 99%.\n\\begin{tabular}{lll}\n\\toprule")
    assert r"4 & 1.50 [1.25, 1.75] & a \& b \\" in tex
    assert "| 16 | 2.00 [1.50, 2.50] |" in markdown
    assert "{'not': 'a text'} |" in markdown
    assert markdown.endswith("\nGains. Intervals: 95%, 99%.\n")
    assert exported(MORE, "md").decode().endswith("\nMore.\n")


def test_what_has_names_of_its_own_has_a_column_for_each() -> None:
    spread = ["sampler_top_p", "sampler_name", "sampler_settings_eta"]
    gain = ["gain", "gain_low", "gain_high"]
    wanted = ["steps", *spread, *gain, "note", "note_not"]
    lines = exported(TABLE, "csv").decode().splitlines()
    assert lines[0].split(",") == wanted
    assert lines[2].split(",") == ["16", "0.9", "'=x", "0.02", "2.0", "1.5", "2.5", "'=1+1", ""]
    columns = pq.read_table(io.BytesIO(exported(TABLE, "parquet"))).to_pydict()
    assert list(columns) == wanted
    assert columns["sampler_top_p"] == [1.0, 0.9, None]
    assert columns["note_not"] == [None, None, "a text"]


def test_a_directory_without_a_result_is_refused(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(UserError, match="no finished result") as caught:
        strop.export(tmp_path)
    assert "strop ls" in str(caught.value)
    with pytest.raises(UserError, match="format"):
        strop.export(folder, format="xlsx")  # type: ignore[arg-type]
    for out, told in (("", "empty"), ("a\0b", "NUL")):
        with pytest.raises(UserError, match=told):
            strop.export(folder, out=out)
    shutil.rmtree(folder)
    with pytest.raises(UserError, match="no finished result"):
        strop.export(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"tables": {"../../outside": MORE.document()}},
        {"tables": {"/outside": MORE.document()}},
        {"tables": {"a\0b": MORE.document()}},
        {"tables": {"a" * 101: MORE.document()}},
        {"tables": 5},
        {"rows": [5]},
        {"columns": [{"name": 5}]},
        {"columns": [{"name": "x", "digits": "many"}]},
        {"rows": [{"x": {"value": "high", "low": None, "high": None}}]},
        {"rows": [{"x": {"value": 1, "low": [], "high": None}}]},
        {"notes": 5},
        {"asked": 5},
    ],
    ids=str,
)
def test_a_result_that_strop_cannot_have_written_is_refused(
    folder: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    file = folder / "result.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match="damaged") as caught:
        strop.export(folder, out=tmp_path / "export")
    assert caught.value.where == str(file)
    assert sorted(tmp_path.rglob("*")) == before
