"""Cells of any size: read, merged and scored a bounded number of rows at a time, and the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from strop import SamplerSpec, TabularDenoiser
from strop.errors import UserError
from strop.measure.score import score_outputs
from strop.pool import Output
from strop.spec import CellSpec, GeneratorSpec, MetricSpec
from strop.store import Cell, Run
from strop.store.folder import OUTPUTS, PARTS


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    law = np.random.default_rng(3).random((5, 5, 5)) + 0.05
    checkpoint = TabularDenoiser(law / law.sum()).spec
    spec = CellSpec.of(GeneratorSpec.of(checkpoint, SamplerSpec(), 3), 0, n=1, batch_size=1)
    return Run.prepare(tmp_path / "run", {"n": 0}, [spec]).cell(spec.id)


def output(index: int) -> Output:
    ids = np.array([index % 5, index // 5 % 5, index // 25 % 5])
    changed = np.arange(3, dtype=np.int32) + index
    words = {"text": f"text {index}", "leftover_masks": 0}
    return Output(index=index, ids=ids, nfe=index, seconds=0.5, changed=changed, **words)


def fill(cell: Cell, seed: int, rows: int) -> list[int]:
    """Parts of every kind: interleaved, overlapping, with rows twice; some merged in between."""
    rng = np.random.default_rng(seed)
    for _ in range(6):
        cell.add(output(int(i)) for i in rng.choice(rows, size=rng.integers(1, 9), replace=False))
        if rng.random() < 0.3:
            cell.merge()
    cell.add(output(i) for i in range(seed % 3, rows, 3))
    return sorted(cell.indices())


@pytest.mark.parametrize("seed", range(12))
def test_rows_come_in_order_each_once_and_few_at_a_time(cell: Cell, seed: int) -> None:
    index = fill(cell, seed, 40)
    whole = cell.table()
    for rows in (1, 2, 5, 64):
        found = list(cell.rows(rows=rows))
        assert all(len(one) == rows for one in found[:-1])
        assert 0 < len(found[-1]) <= rows
        assert [i for one in found for i in one["index"].to_pylist()] == index
        for name in whole.column_names:
            assert [v for one in found for v in one[name].to_pylist()] == whole[name].to_pylist()
        some = [i for one in cell.rows(["nfe"], rows=rows) for i in one["nfe"].to_pylist()]
        assert some == index  # each output's calls are its index


def test_a_merge_writes_small_row_groups_and_changes_nothing(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(cell, 1, 40)
    cell.add(output(i) for i in range(40))
    before = cell.table()
    monkeypatch.setattr(Cell.rows, "__kwdefaults__", {"after": -1, "rows": 4})
    cell.merge()
    assert not list((cell.path / PARTS).glob("*.parquet"))
    assert cell.table().equals(before)
    kept = pq.ParquetFile(cell.path / OUTPUTS).metadata
    assert max(kept.row_group(i).num_rows for i in range(kept.num_row_groups)) == 4
    assert [int(one[0]) for one in cell.pool().changed] == list(range(40))


def test_reading_goes_on_in_the_merged_file(cell: Cell) -> None:
    index = fill(cell, 2, 40)
    rows = cell.rows(rows=3)
    seen = next(rows)["index"].to_pylist()
    cell.merge()
    assert seen + [i for one in rows for i in one["index"].to_pylist()] == index


def test_rows_out_of_order_are_told_and_not_lost(cell: Cell) -> None:
    cell.add(output(i) for i in (5, 6))
    [part] = (cell.path / PARTS).glob("*.parquet")
    part.rename(part.with_name("00000006-00000009-" + "0" * 8 + ".parquet"))
    cell.add([output(5)])
    with pytest.raises(UserError, match="damaged"):
        list(cell.rows())


READS: dict[str, Callable[[Cell], object]] = {
    "stream": lambda cell: list(cell.rows(rows=2)),
    "table": lambda cell: cell.table(),
    "some columns": lambda cell: cell.table(["text", "ids", "nfe", "leftover_masks"]),
    "pool": lambda cell: cell.pool(),
    "merge": lambda cell: cell.merge(),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(
    "change", [{"ids": np.array([4, 4, 4])}, {"text": "b"}, {"nfe": 8}, {"leftover_masks": 1}]
)
@pytest.mark.parametrize(("index", "copies"), [(0, 0), (3, 1), (6, 2)])
def test_two_different_rows_under_one_number_are_damage(
    cell: Cell, read: str, change: dict[str, Any], index: int, copies: int
) -> None:
    """Also if equal copies of the row lie in other files, and whichever file comes first."""
    cell.add(output(i) for i in range(7))
    cell.merge()
    for _ in range(copies):
        cell.add([output(index)])
    cell.add([replace(output(index), **change)])
    with pytest.raises(UserError, match="damaged") as caught:
        READS[read](cell)
    assert str(caught.value.got).endswith(f"different outputs with the same index: {index}")
    assert str(cell.path) in str(caught.value.fix)
    assert cell.indices() == set(range(7))


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("change", [{}, {"seconds": 9.0}, {"text": None}])
def test_of_equal_rows_under_one_number_the_merged_one_counts(
    cell: Cell, read: str, change: dict[str, Any]
) -> None:
    cell.add(output(i) for i in range(7))
    cell.merge()
    cell.add([replace(output(3), **change)])
    cell.add([output(3), replace(output(4), **change)])
    READS[read](cell)
    assert cell.table().to_pylist()[3]["seconds"] == 0.5
    assert cell.table()["text"].to_pylist() == [f"text {i}" for i in range(7)]


def test_scoring_sees_few_outputs_at_a_time_and_goes_on(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = fill(cell, 4, 40)
    monkeypatch.setattr("strop.measure.score.ROWS", 4)
    metric, sizes = MetricSpec(name="twice"), []

    def measure(some):
        sizes.append(len(some.index))
        assert some.texts == [f"text {i}" for i in some.index]
        if len(sizes) == 3:
            raise KeyboardInterrupt
        return {"twice": 2 * some.index}

    with pytest.raises(KeyboardInterrupt):
        score_outputs(cell, metric, measure, batch=4)
    score_outputs(cell, metric, measure, batch=4)
    assert max(sizes) == 4
    assert sum(sizes[:2]) + sum(sizes[3:]) == len(index)
    table = cell.score(metric)
    assert table is not None
    assert table.index.tolist() == index
    assert table.columns["twice"].tolist() == [2 * i for i in index]
