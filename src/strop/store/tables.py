"""A cell's tables (outputs, scores, prompts), checked when they are written and when they are read.

Scores are one file per metric with a row per output. The tables are small, so adding rows means
reading the table and renaming a new one into place: a file is always complete, and scoring that was
interrupted continues with the rows that are missing.

The prompts that a run's outputs answer are kept in the run, so the file they came from is not
needed again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from strop.disk import TEMPORARY, disk, locked, reading, replacing, write
from strop.errors import UserError
from strop.pool import EARLIER, Output, counted, padded
from strop.prompts.canvas import Canvas, Canvases
from strop.spec.generator import CellSpec, PromptSpec
from strop.spec.value import MetricSpec
from strop.store.folder import (
    FORMAT,
    HOW,
    METRIC_ID,
    PROMPTS,
    check_format,
    damaged,
    parquet,
    parquet_file,
    read_json,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


# ---------------------------------------------------------------------------------------- prompts

Pieces = Sequence[str | int]
"""Texts of what is given, and sizes of the gaps between them, in order."""


@dataclass(frozen=True)
class KeptPrompts:
    """Canvases, and the texts of what they give."""

    canvases: Canvases
    pieces: Sequence[Pieces | None]
    """Per prompt; None where no tokenizer was known."""

    def pieces_of(self, output: int) -> Pieces | None:
        """Of the prompt that an output answers."""
        return self.pieces[output % len(self.pieces)]


def keep_prompts(
    run: Path, canvases: Canvases, pieces: Sequence[Sequence[str | int] | None]
) -> KeptPrompts:
    """Keep prompts in a run directory; what is there already, with its names, stays."""
    path = _path(run, canvases.spec)
    with disk(path):
        exists = path.exists()
    if not exists:
        rows = [
            {"id": prompt.id, "ids": prompt.given, "pieces": texts, "reference": prompt.reference}
            for prompt, texts in zip(canvases.prompts, pieces, strict=True)
        ]
        with disk(path):
            path.parent.mkdir(exist_ok=True)
        content = {"format": FORMAT, "sha256": canvases.spec.sha256, "prompts": rows}
        # Compact: a line per id would be a long file.
        write(path, (json.dumps(content, separators=(",", ":")) + "\n").encode())
    return read_prompts(run, canvases.spec)


def read_prompts(run: Path, spec: PromptSpec) -> KeptPrompts:
    """The prompts of a cell, if they are those that its spec names."""
    path = _path(run, spec)
    try:
        rows = read_json(path, "prompts", list)["prompts"]
        prompts = tuple(Canvas(row["id"], tuple(row["ids"]), row["reference"]) for row in rows)
        stored = KeptPrompts(Canvases(prompts), [row["pieces"] for row in rows])
        same = stored.canvases.spec == spec
    except UserError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, error) from None
    if not same:
        raise damaged(path, "its prompts are not those of the cells")
    return stored


def _path(run: Path, spec: PromptSpec) -> Path:
    return run / PROMPTS / f"{spec.sha256[:16]}.json"


# ----------------------------------------------------------------------------------------- tables

CHANGED = "changed"
"""A column of lists, as long as the output."""
PROMPT, TOKENS, PIECES = "prompt", "tokens", "pieces"
"""Columns of outputs that answer prompts: the prompt's id; how many ids count, where prompts may
leave different numbers open; and the texts of the gaps."""
CHANCE, BEFORE = "chance", "earlier"
"""How likely each token was when it came, and what stood there before: files that were written
earlier have neither, nor has an output of which it is not known."""
MAY_BE_NULL = ("text", PIECES, CHANCE, BEFORE)
INTEGERS = (EARLIER.names or ())[:-1]
COMPARED = ("ids", "text", "nfe", "leftover_masks", PROMPT)
"""What is the same in two runs of one cell."""
ROWS = 1024
"""Rows that are read, merged or scored at a time, and that a row group of a file holds."""
BUFFER = 2**20
"""Bytes of a column that are read ahead."""


def output_table(rows: list[Output], spec: CellSpec) -> pa.Table:
    """Outputs as a table that says what it depends on."""
    import pyarrow as pa

    length = spec.generator.length
    flat = padded([row.ids for row in rows], spec).ravel()
    columns = {
        "index": pa.array([row.index for row in rows], pa.int64()),
        "seed": pa.array([spec.seed] * len(rows), pa.int64()),
        "ids": pa.FixedSizeListArray.from_arrays(pa.array(flat, pa.int32()), length),
        "text": pa.array([row.text for row in rows], pa.string()),
        "nfe": pa.array([row.nfe for row in rows], pa.int64()),
        "seconds": pa.array([row.seconds for row in rows], pa.float64()),
        "leftover_masks": pa.array([row.leftover_masks for row in rows], pa.int64()),
        CHANGED: pa.array([row.changed for row in rows], pa.list_(pa.int32())),
        CHANCE: pa.array([row.chance for row in rows], pa.list_(pa.float32())),
        BEFORE: pa.array(
            [None if row.earlier is None else np.asarray(row.earlier).tolist() for row in rows],
            pa.list_(pa.struct([*((n, pa.int32()) for n in INTEGERS), (CHANCE, pa.float32())])),
        ),
    }
    columns |= {name: pa.array(counts, pa.int64()) for name, counts in counted(rows, spec).items()}
    if spec.generator.prompts is not None:
        columns[PROMPT] = pa.array([row.prompt for row in rows], pa.string())
    if spec.generator.prompts is not None or spec.generator.checkpoint.family == "served":
        columns[TOKENS] = pa.array([len(row.ids) for row in rows], pa.int64())
    if spec.generator.prompts is not None and spec.generator.prompts.form == "gaps":
        columns[PIECES] = pa.array([row.pieces for row in rows], pa.list_(pa.string()))
    # A table that travels alone still says what it depends on.
    metadata = {"strop.format": str(FORMAT), "strop.cell": spec.canonical()}
    return pa.table(columns).replace_schema_metadata(metadata)


def token_ids(table: pa.Table, spec: CellSpec) -> NDArray[np.int64]:
    """The ids of every row [n, L]; -1 beyond what counts of it."""
    length = spec.generator.length
    ids = table["ids"].combine_chunks().flatten().to_numpy()
    ids = ids.reshape(table.num_rows, length).astype(np.int64)
    if TOKENS in table.column_names:
        ids[np.arange(length) >= table[TOKENS].to_numpy()[:, None]] = -1
    return ids


def same_outputs(left: pa.Table, right: pa.Table, spec: CellSpec) -> NDArray[np.bool_]:
    """Row by row, whether two tables tell the same of an output, as far as both know it.

    Equal seeds give equal outputs; only seconds may differ, and a text that one could not write.
    """
    same = np.ones(left.num_rows, bool)
    names = [name for name in (*COMPARED, TOKENS) if name in left.column_names]
    for name in names:
        if name == "ids":
            same &= (token_ids(left, spec) == token_ids(right, spec)).all(1)
            continue
        pairs = zip(left[name].to_pylist(), right[name].to_pylist(), strict=True)
        same &= np.array([None in pair or pair[0] == pair[1] for pair in pairs], bool)
    return same


def lists(column: pa.ChunkedArray) -> list[np.ndarray]:
    """Lists of numbers as arrays, without a Python object for every number; empty where null."""
    arrays: list[np.ndarray] = []
    for chunk in column.chunks:
        values, ends = chunk.values.to_numpy(zero_copy_only=False), chunk.offsets.to_numpy()
        arrays += [values[start:stop] for start, stop in pairwise(ends)]
    return arrays


def chances(column: pa.ChunkedArray) -> list[np.ndarray | None]:
    """How likely tokens were, output by output; None where it is not known."""
    present = column.is_valid().to_pylist()
    return [
        numbers if is_there else None
        for numbers, is_there in zip(lists(column), present, strict=True)
    ]


def replaced(column: pa.ChunkedArray) -> list[NDArray[np.void] | None]:
    """What stood before, output by output (`EARLIER`); None where it is not kept."""
    rows = column.to_pylist()
    names = EARLIER.names or ()
    return [
        None if row is None else np.array([tuple(step[n] for n in names) for step in row], EARLIER)
        for row in rows
    ]


def write_parquet(path: Path, table: pa.Table) -> None:
    """A table at `path`, whole."""
    write(path, parquet(table))


def write_stream(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Many tables as one file at `path`, whole; no more than one of them is in memory."""
    import pyarrow.parquet as pq

    with replacing(path) as file, pq.ParquetWriter(file, schema, **HOW) as writer:
        for table in tables:
            writer.write_table(table)


def read_parquet(path: Path, schema: pa.Schema, columns: list[str] | None) -> pa.Table:
    """The rows of one file, or a message if they are not rows of this cell."""
    import pyarrow as pa

    empty = pa.schema([schema.field(name) for name in columns or schema.names], schema.metadata)
    batches = list(read_batches(path, schema, columns, ROWS))
    return pa.concat_tables(batches) if batches else empty.empty_table()


def read_batches(
    path: Path, schema: pa.Schema, columns: list[str] | None, rows: int, after: int = -1
) -> Iterator[pa.Table]:
    """As `read_parquet`, up to `rows` at a time; groups of rows up to an index are passed over."""
    import pyarrow as pa

    target = pa.schema([schema.field(name) for name in columns or schema.names])
    with reading(path), path.open("rb") as content:
        try:
            file = parquet_file(content, buffer_size=BUFFER, pre_buffer=False)
            stored = file.schema_arrow
            late = [name for name in (CHANCE, BEFORE) if name not in stored.names]
            expected = [name for name in schema.names if name not in late]
            if stored.names != expected or stored.metadata != schema.metadata:
                raise damaged(path, "it is not a table of this cell")
            groups = _beyond(file, after)
            names = [name for name in target.names if name not in late]
            for batch in file.iter_batches(rows, groups, names, use_threads=False):
                table = pa.Table.from_batches([batch])
                for name in set(late) & set(target.names):
                    table = table.append_column(name, pa.nulls(len(table), target.field(name).type))
                table = table.select(target.names).cast(target)
                table.validate(full=True)
                if any(table[n].null_count for n in target.names if n not in MAY_BE_NULL):
                    raise damaged(path, "it has empty entries")
                _check_ids(path, table, schema)
                yield table
        except (UserError, GeneratorExit):
            raise
        except Exception as error:  # damaged bytes make the reader raise nearly anything
            raise damaged(path, error) from None


def _beyond(file: pq.ParquetFile, after: int) -> list[int]:
    """The groups of rows that may hold an index beyond `after`, by what the file says of them."""
    column, groups = file.schema_arrow.get_field_index("index"), range(file.num_row_groups)
    if after < 0 or column < 0:
        return list(groups)
    # Columns before the index hold one leaf each, or the file is read whole.
    index_columns = [file.metadata.row_group(group).column(column) for group in groups]
    last = [
        chunk.statistics.max if chunk.path_in_schema == "index" else None for chunk in index_columns
    ]
    return [group for group, most in zip(groups, last, strict=True) if most is None or most > after]


def _check_ids(path: Path, table: pa.Table, schema: pa.Schema) -> None:
    """Refuse tokens that the cell's checkpoint does not have."""
    if "ids" not in table.column_names or not table.num_rows:
        return
    shape = json.loads(schema.metadata[b"strop.cell"])["generator"]["checkpoint"]["shape"]
    most = max(shape.get("vocab_size", np.inf), 1 + shape.get("mask_id", 0))
    tokens = table["ids"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    if tokens.size and not 0 <= tokens.min() <= tokens.max() < most:
        span = f"{tokens.min()} to {tokens.max()}"
        raise damaged(path, f"its tokens go from {span}, and the vocabulary has {most}")


def checked_table(path: Path, wanted: Callable[[pa.Schema], pa.Schema]) -> pa.Table:
    """The columns that `wanted` names, given the file's own schema, as the types it gives them."""
    import pyarrow as pa

    with reading(path):
        content = path.read_bytes()
    try:
        file = parquet_file(pa.BufferReader(content))
        schema = wanted(file.schema_arrow)
        # No threads: arrow's pool can abort the interpreter when it ends right after a read.
        table = file.read(schema.names, use_threads=False).cast(schema)
        table.validate(full=True)
    except UserError:
        raise
    except Exception as error:  # damaged bytes make the reader raise nearly anything
        raise damaged(path, error) from None
    return table


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
    tables = {}
    for path in sorted(folder.glob("*.parquet")):
        if METRIC_ID.fullmatch(path.stem):
            table = _read_score_file(path, cell)
            if table is not None:  # else it was removed a moment ago
                tables[path.stem] = table
    return tables


def read_score(folder: Path, cell: CellSpec, metric: MetricSpec) -> ScoreTable | None:
    """One metric, if it is there."""
    return _read_score_file(_place(folder, metric), cell)


def add_scores(
    folder: Path, cell: CellSpec, metric: MetricSpec, columns: Mapping[str, np.ndarray]
) -> None:
    """Merge rows into the metric's file; a row that is there already stays as it is."""
    new = _sorted_scores(metric, columns)
    with disk(folder):
        folder.mkdir(exist_ok=True)
    with locked(folder):
        with disk(folder):
            for leftover in folder.glob(TEMPORARY + "*"):
                leftover.unlink(missing_ok=True)
        old = read_score(folder, cell, metric)
        write_parquet(_place(folder, metric), _arrow(cell, new if old is None else _join(old, new)))


def add_words(
    folder: Path, metric: MetricSpec, words: Mapping[int, Mapping[str, Mapping[str, str]]]
) -> None:
    """Keep what was said beside some scores; of an output that is there already, the new words."""
    if not words:
        return
    with disk(folder):
        folder.mkdir(exist_ok=True)
    with locked(folder):
        merged = {**read_words(folder, metric), **words}
        lines = [{"index": index, "said": merged[index]} for index in sorted(merged)]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        write(folder / f"{metric.id}.jsonl", text.encode())


def read_words(folder: Path, metric: MetricSpec) -> dict[int, dict[str, dict[str, str]]]:
    """What was said beside scores, by output; nothing where nothing was kept."""
    path = folder / f"{metric.id}.jsonl"
    try:
        with reading(path):
            lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        return {
            int(line["index"]): {
                str(name): {str(kind): str(text) for kind, text in by_kind.items()}
                for name, by_kind in line["said"].items()
            }
            for line in lines
        }
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(path, error) from None


def _place(folder: Path, metric: MetricSpec) -> Path:
    return folder / f"{metric.id}.parquet"


def _sorted_scores(metric: MetricSpec, columns: Mapping[str, np.ndarray]) -> ScoreTable:
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


def _read_score_file(path: Path, cell: CellSpec) -> ScoreTable | None:
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
        layout, fields = int(metadata[b"strop.format"]), json.loads(metadata[b"strop.metric"])
    except (KeyError, ValueError):
        raise damaged(path, "it does not say which metric it holds") from None
    check_format({"format": layout}, path)
    try:
        metric = MetricSpec(**fields)
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
