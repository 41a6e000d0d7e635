"""Scores on disk: complete or absent, continued, refused when they are not this cell's."""

from __future__ import annotations

import re
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from strop.errors import UserError
from strop.spec import EvaluatorSpec, MetricSpec
from strop.store import Cell, Run
from test_store import cell_of, only_cell, prepared, row_of

EVALUATOR = EvaluatorSpec(name="gpt2", sha256="0" * 64, tokenizer="1" * 64, context=16)
METRIC = MetricSpec(
    name="perplexity", evaluator=EVALUATOR, span="full-stream", settings={"clean_up": False}
)


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    cell = only_cell(tmp_path / "run")
    cell.add(row_of(i) for i in range(6))
    cell.merge()
    return cell


def scores_of(*index: int) -> dict[str, Any]:
    rows = np.array(index)
    return {"index": rows, "nll": rows + 0.5, "tokens": rows * 2}


def test_what_is_added_is_read(cell: Cell) -> None:
    assert cell.scores() == {}
    assert cell.score(METRIC) is None
    cell.add_scores(METRIC, scores_of(3, 0))
    cell.add_scores(METRIC, scores_of(1))
    table = Cell.open(cell.path).scores()[METRIC.id]
    assert table.metric == METRIC
    assert table.index.tolist() == [0, 1, 3]
    assert table.columns["nll"].tolist() == [0.5, 1.5, 3.5]
    assert table.columns["tokens"].tolist() == [0, 2, 6]
    assert table.columns["tokens"].dtype == np.int64
    again = cell.score(METRIC)
    assert again is not None
    assert len(again) == 3


def test_without_an_index_the_rows_are_all_outputs(cell: Cell) -> None:
    metric = MetricSpec(name="entropy")
    cell.add_scores(metric, {"entropy": np.linspace(0, 1, 6)})
    assert cell.scores()[metric.id].index.tolist() == list(range(6))
    with pytest.raises(ValueError, match="row per output"):
        cell.add_scores(metric, {"entropy": np.zeros(5)})


def test_vectors_keep_their_shape(cell: Cell) -> None:
    metric = MetricSpec(name="vendi", evaluator=EVALUATOR)
    vectors = np.arange(18, dtype=np.float32).reshape(6, 3)
    cell.add_scores(metric, {"embedding": vectors})
    stored = cell.scores()[metric.id].columns["embedding"]
    assert stored.dtype == np.float32
    assert (stored == vectors).all()


def test_a_row_that_is_there_stays(cell: Cell) -> None:
    cell.add_scores(METRIC, scores_of(0))
    other = {name: values + 100 for name, values in scores_of(0).items() if name != "index"}
    cell.add_scores(METRIC, {"index": np.array([0]), **other})
    assert cell.scores()[METRIC.id].columns["nll"].tolist() == [0.5]


def test_each_metric_has_its_own_file(cell: Cell) -> None:
    other = METRIC.model_copy(update={"settings": {"clean_up": True}})
    cell.add_scores(METRIC, scores_of(0))
    cell.add_scores(other, scores_of(1))
    assert {name: table.index.tolist() for name, table in cell.scores().items()} == {
        METRIC.id: [0],
        other.id: [1],
    }
    names = sorted(p.name for p in (cell.path / "scores").glob("*.parquet"))
    assert names == sorted([f"{METRIC.id}.parquet", f"{other.id}.parquet"])
    metadata = pq.read_schema(cell.path / "scores" / names[0]).metadata
    assert b"strop.metric" in metadata


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_a_number_is_refused(cell: Cell, bad: float) -> None:
    with pytest.raises(ValueError, match="not a number"):
        cell.add_scores(METRIC, {"index": np.array([0]), "nll": np.array([bad])})
    assert cell.score(METRIC) is None


def test_an_output_twice_and_other_columns_are_refused(cell: Cell) -> None:
    with pytest.raises(ValueError, match="every output once"):
        cell.add_scores(METRIC, scores_of(0, 0))
    cell.add_scores(METRIC, scores_of(0))
    with pytest.raises(ValueError, match="do not continue"):
        cell.add_scores(METRIC, {"index": np.array([1]), "nll": np.array([0.0])})


def test_two_writers_lose_nothing(cell: Cell) -> None:
    """Without the lock the later rename would drop the other's rows."""
    threads = [
        threading.Thread(target=cell.add_scores, args=(METRIC, scores_of(i))) for i in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cell.scores()[METRIC.id].index.tolist() == list(range(6))


def test_a_session_of_the_cell_leaves_the_scores_alone(cell: Cell) -> None:
    cell.add_scores(METRIC, scores_of(0))
    mine = cell.path / "scores" / ".tmp-of-a-writer"
    mine.write_bytes(b"")
    with cell.writing():
        assert mine.exists()
    cell.add_scores(METRIC, scores_of(1))
    assert not mine.exists()  # whoever holds the scores' own lock may sweep


@pytest.mark.parametrize("content", [b"", b"not a table", "half"])
def test_a_damaged_file_is_named_and_its_remedy_works(cell: Cell, content: Any) -> None:
    cell.add_scores(METRIC, scores_of(0, 1))
    path = cell.path / "scores" / f"{METRIC.id}.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    with pytest.raises(UserError, match="damaged") as caught:
        cell.scores()
    assert caught.value.fix == f"delete {path} and score again"
    path.unlink()
    assert cell.scores() == {}


def test_a_file_of_another_metric_or_cell_is_refused(cell: Cell, tmp_path: Path) -> None:
    cell.add_scores(METRIC, scores_of(0))
    path = cell.path / "scores" / f"{METRIC.id}.parquet"
    stranger = path.with_name("0" * 16 + ".parquet")
    shutil.copy(path, stranger)
    with pytest.raises(UserError, match="another cell or metric"):
        cell.scores()
    stranger.unlink()
    elsewhere = prepared(tmp_path / "other", cell_of(seed=5)).cells()[0]
    (elsewhere.path / "scores").mkdir()
    shutil.copy(path, elsewhere.path / "scores")
    with pytest.raises(UserError, match="another cell or metric"):
        elsewhere.scores()


def test_force_removes_scores_and_only_them(cell: Cell, tmp_path: Path) -> None:
    cell.add_scores(METRIC, scores_of(0))
    notes = cell.path / "scores" / "notes.txt"
    notes.write_text("mine")
    prepared(tmp_path / "run", force=True)
    assert Run.open(tmp_path / "run").cells()[0].scores() == {}
    assert notes.exists()


def test_scores_of_a_run_that_went_away_are_refused(cell: Cell) -> None:
    shutil.rmtree(cell.path)
    with pytest.raises(UserError, match="removed or started anew"):
        cell.add_scores(METRIC, scores_of(0))
    assert not cell.path.exists()


@pytest.mark.parametrize("name", ["", "Perplexity", "a/b"])
def test_a_metric_needs_a_plain_name(name: str) -> None:
    with pytest.raises(UserError, match="name"):
        MetricSpec(name=name)


def test_a_flipped_name_of_a_column_is_told(cell: Cell) -> None:
    """Parquet's checksums cover pages; names stand in the footer, which has none."""
    cell.add_scores(METRIC, scores_of(0, 1, 2))
    path = cell.path / "scores" / f"{METRIC.id}.parquet"
    whole = path.read_bytes()
    places = [found.start() for found in re.finditer(b"nll", whole)]
    assert len(places) > 2
    path.write_bytes(whole.replace(b"nll", b"nlm"))  # as a reader takes the name from any of them
    with pytest.raises(UserError, match="damaged"):
        cell.scores()
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(changed)
        try:
            table = cell.scores()[METRIC.id]
        except UserError as error:
            assert error.where == str(path)  # noqa: PT017
        else:
            assert list(table.columns) == ["nll", "tokens"]
