"""Outputs as a table, and Parquet files that are checked at both ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strop.disk import reading, replacing, write
from strop.errors import UserError
from strop.pool import Output, counted, padded
from strop.spec import CellSpec
from strop.store.documents import FORMAT, damaged

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

CHANGED = "changed"
"""A column of lists, as long as the output."""
PROMPT, TOKENS, PIECES = "prompt", "tokens", "pieces"
"""Columns of outputs that answer prompts: the prompt's id; how many ids count, where prompts may
leave different numbers open; and the texts of the gaps."""
MAY_BE_NULL = ("text", PIECES)
COMPARED = ("ids", "text", "nfe", "leftover_masks", PROMPT)
"""What is the same in two runs of one cell."""
HOW: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
"""Parquet checks its pages only if asked to, at both ends."""
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
    }
    columns |= {name: pa.array(found, pa.int64()) for name, found in counted(rows, spec).items()}
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


def same_outputs(ours: pa.Table, theirs: pa.Table, spec: CellSpec) -> NDArray[np.bool_]:
    """Row by row, whether two tables tell the same of an output, as far as both know it.

    Equal seeds give equal outputs; only seconds may differ, and a text that one could not write.
    """
    same = np.ones(ours.num_rows, bool)
    known = [name for name in (*COMPARED, TOKENS) if name in ours.column_names]
    for name in known:
        if name == "ids":
            same &= (token_ids(ours, spec) == token_ids(theirs, spec)).all(1)
            continue
        pairs = zip(ours[name].to_pylist(), theirs[name].to_pylist(), strict=True)
        same &= np.array([None in pair or pair[0] == pair[1] for pair in pairs], bool)
    return same


def lists(column: pa.ChunkedArray) -> list[np.ndarray]:
    """Lists of numbers as arrays, without a Python object for every number."""
    found: list[np.ndarray] = []
    for chunk in column.chunks:
        values, ends = chunk.values.to_numpy(), chunk.offsets.to_numpy()
        found += [values[start:stop] for start, stop in pairwise(ends)]
    return found


def parquet(table: pa.Table) -> bytes:
    """The content of a file with checksums in its pages."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **HOW)
    return sink.getvalue().to_pybytes()


def parquet_file(source: Any, **options: Any) -> pq.ParquetFile:
    """A file to read, strop's or anybody's, whose checksums are looked at if it has any."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(source, page_checksum_verification=True, **options)


def write_parquet(path: Path, table: pa.Table) -> None:
    """A table at `path`, whole."""
    write(path, parquet(table))


def write_stream(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Many tables as one file at `path`, whole; no more than one of them is in memory."""
    import pyarrow.parquet as pq

    with replacing(path) as file, pq.ParquetWriter(file, schema, **HOW) as writer:
        for one in tables:
            writer.write_table(one)


def read_parquet(path: Path, schema: pa.Schema, columns: list[str] | None) -> pa.Table:
    """The rows of one file, or a message if they are not rows of this cell."""
    import pyarrow as pa

    wanted = pa.schema([schema.field(name) for name in columns or schema.names], schema.metadata)
    found = list(read_batches(path, schema, columns, ROWS))
    return pa.concat_tables(found) if found else wanted.empty_table()


def read_batches(
    path: Path, schema: pa.Schema, columns: list[str] | None, rows: int, after: int = -1
) -> Iterator[pa.Table]:
    """As `read_parquet`, up to `rows` at a time; groups of rows up to an index are passed over."""
    import pyarrow as pa

    wanted = pa.schema([schema.field(name) for name in columns or schema.names])
    with reading(path), path.open("rb") as content:
        try:
            file = parquet_file(content, buffer_size=BUFFER, pre_buffer=False)
            found = file.schema_arrow
            if found.names != schema.names or found.metadata != schema.metadata:
                raise damaged(path, "it is not a table of this cell")
            groups = _beyond(file, after)
            for batch in file.iter_batches(rows, groups, wanted.names, use_threads=False):
                table = pa.Table.from_batches([batch]).cast(wanted)
                table.validate(full=True)
                if any(table[n].null_count for n in wanted.names if n not in MAY_BE_NULL):
                    raise damaged(path, "it has empty entries")
                _check_ids(path, table, schema)
                yield table
        except (UserError, GeneratorExit):
            raise
        except Exception as error:  # damaged bytes make the reader raise nearly anything
            raise damaged(path, error) from None


def _beyond(file: pq.ParquetFile, after: int) -> list[int]:
    """The groups of rows that may hold an index beyond `after`, by what the file says of them."""
    place, groups = file.schema_arrow.get_field_index("index"), range(file.num_row_groups)
    if after < 0 or place < 0:
        return list(groups)
    # Columns before the index hold one leaf each, or the file is read whole.
    said = [file.metadata.row_group(group).column(place) for group in groups]
    last = [one.statistics.max if one.path_in_schema == "index" else None for one in said]
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
