"""Scores of a cell: one file per metric, a row per output, rewritten whole as rows are added.

The tables are small, so that adding rows to one is reading it and renaming a new one into place:
what is there is always whole, and scoring that was interrupted goes on with the rows it lacks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from strop.disk import TEMPORARY, disk, locked
from strop.errors import UserError
from strop.spec import CellSpec, MetricSpec
from strop.store.documents import FORMAT, METRIC_ID, check_format, damaged
from strop.store.tables import checked_table, write_parquet

if TYPE_CHECKING:
    import pyarrow as pa

INDEX = "index"
NAMES = b"strop.columns"


@dataclass(frozen=True)
class ScoreTable:
    """One metric of one cell."""

    metric: MetricSpec
    """What was measured, with everything the numbers depend on."""
    index: np.ndarray
    """Which outputs, ascending, each once."""
    columns: dict[str, np.ndarray]
    """By name, a number per output (int64 or float64), or a float32 vector per output [n, d]."""

    def __len__(self) -> int:
        return len(self.index)


def read_scores(folder: Path, cell: CellSpec) -> dict[str, ScoreTable]:
    """Every metric in the folder by its id."""
    found = {}
    for path in sorted(folder.glob("*.parquet")):
        if METRIC_ID.fullmatch(path.stem):
            table = _read(path, cell)
            if table is not None:  # else it was removed a moment ago
                found[path.stem] = table
    return found


def read_score(folder: Path, cell: CellSpec, metric: MetricSpec) -> ScoreTable | None:
    """One metric, if it is there."""
    return _read(_place(folder, metric), cell)


def add_scores(
    folder: Path, cell: CellSpec, metric: MetricSpec, columns: Mapping[str, np.ndarray]
) -> None:
    """Merge rows into the metric's file; a row that is there already stays as it is."""
    new = _checked(metric, columns)
    with disk(folder):
        folder.mkdir(exist_ok=True)
    with locked(folder):
        with disk(folder):
            for leftover in folder.glob(TEMPORARY + "*"):
                leftover.unlink(missing_ok=True)
        old = read_score(folder, cell, metric)
        write_parquet(_place(folder, metric), _arrow(cell, new if old is None else _join(old, new)))


def _place(folder: Path, metric: MetricSpec) -> Path:
    return folder / f"{metric.id}.parquet"


def _checked(metric: MetricSpec, columns: Mapping[str, np.ndarray]) -> ScoreTable:
    """The rows in order of their index, in the stored types; a value that is none is a bug."""
    index = np.asarray(columns[INDEX]).astype(np.int64)
    order = np.argsort(index, kind="stable")
    if len(np.unique(index)) < len(index) or (index < 0).any():
        raise ValueError("scores need every output once, by its index")
    typed = {}
    for name, values in columns.items():
        if name == INDEX:
            continue
        array = np.asarray(values)
        if len(array) != len(index) or array.ndim not in (1, 2):
            raise ValueError(f"the column {name!r} does not have a row per output")
        if not np.isfinite(array).all():
            raise ValueError(f"the column {name!r} holds something that is not a number")
        kind = np.float32 if array.ndim == 2 else np.int64 if array.dtype.kind in "iub" else float
        typed[name] = array.astype(kind)[order]
    return ScoreTable(metric, index[order], typed)


def _join(old: ScoreTable, new: ScoreTable) -> ScoreTable:
    if old.columns.keys() != new.columns.keys():
        raise ValueError(f"columns {sorted(new.columns)} do not continue {sorted(old.columns)}")
    fresh = ~np.isin(new.index, old.index)
    index = np.concatenate([old.index, new.index[fresh]])
    order = np.argsort(index)
    columns = {
        name: np.concatenate([values, new.columns[name][fresh]])[order]
        for name, values in old.columns.items()
    }
    return ScoreTable(old.metric, index[order], columns)


def _arrow(cell: CellSpec, table: ScoreTable) -> pa.Table:
    import pyarrow as pa

    columns = {INDEX: pa.array(table.index)}
    for name, values in table.columns.items():
        flat = pa.array(values.reshape(-1))
        wide = values.ndim == 2
        columns[name] = pa.FixedSizeListArray.from_arrays(flat, values.shape[1]) if wide else flat
    metadata = {
        "strop.format": str(FORMAT),
        "strop.cell": cell.canonical(),
        "strop.metric": table.metric.canonical(),
        # Pages have checksums, names of columns do not.
        NAMES.decode(): json.dumps(list(columns)),
    }
    return pa.table(columns).replace_schema_metadata(metadata)


def _read(path: Path, cell: CellSpec) -> ScoreTable | None:
    metrics = []

    def check(schema: pa.Schema) -> pa.Schema:
        metadata = schema.metadata or {}
        metrics.append(_metric(path, cell, metadata))
        if NAMES in metadata and metadata[NAMES] != json.dumps(schema.names).encode():
            raise damaged(path, "its columns have other names than were written")
        return schema

    try:
        table = checked_table(path, check)
    except FileNotFoundError:
        return None
    names = table.column_names
    if not names or names[0] != INDEX or any(table[name].null_count for name in names):
        raise damaged(path, "it is not a table of scores")
    arrays = {name: _numpy(table[name].combine_chunks()) for name in names}
    index = arrays.pop(INDEX)
    if (np.diff(index) <= 0).any():
        raise damaged(path, "its rows are out of order")
    return ScoreTable(metrics[0], index, arrays)


def _metric(path: Path, cell: CellSpec, metadata: Mapping[bytes, bytes]) -> MetricSpec:
    """The metric that the file says it holds, if it is the one that the file is named after."""
    try:
        made, said = int(metadata[b"strop.format"]), json.loads(metadata[b"strop.metric"])
    except (KeyError, ValueError):
        raise damaged(path, "it does not say which metric it holds") from None
    check_format({"format": made}, path)
    try:
        metric = MetricSpec(**said)
    except (UserError, TypeError) as error:
        raise damaged(path, error) from None
    if metric.id != path.stem or metadata.get(b"strop.cell") != cell.canonical().encode():
        raise damaged(path, "it is a table of another cell or metric")
    return metric


def _numpy(column: pa.Array) -> np.ndarray:
    import pyarrow as pa

    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy().reshape(len(column), column.type.list_size)
    return column.to_numpy()
