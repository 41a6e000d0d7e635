"""The run directory: the only module that knows its file names, and how a run is continued.

    runs/<study>/
      study.yaml                   what was asked
      cells/<cell id>/             one generator under one seed
        spec.json                  the cell's spec, whole
        outputs.parquet            its outputs, written whole and renamed into place
        parts/*.parquet            outputs of a session under way, merged at its end
        cost.json                  time, network calls and provenance of every session

Every file is complete or absent: it is written beside its place and renamed. A session that is
killed loses at most what it had not flushed, and the next one draws exactly that.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strop.disk import LOCK, TEMPORARY, disk, locked, reading, write
from strop.errors import UserError
from strop.pool import Pool
from strop.spec import CellSpec
from strop.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FORMAT", "Cell", "Row", "Run", "find_runs"]

FORMAT = 1
"""Version of the layout; a directory of a higher one is refused."""

STUDY, CELLS, SPEC, OUTPUTS, PARTS, COST = (
    "study.yaml",
    "cells",
    "spec.json",
    "outputs.parquet",
    "parts",
    "cost.json",
)
CELL_ID = re.compile(r"[0-9a-f]{16}")
READ_ATTEMPTS = 100
MISSING = "it is missing"


@dataclass(frozen=True)
class Row:
    """One output as it is stored."""

    index: int
    ids: np.ndarray
    text: str | None
    nfe: int
    seconds: float
    leftover_masks: int


class Run:
    """A directory of cells."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @classmethod
    def prepare(
        cls,
        path: str | os.PathLike[str],
        asked: Mapping[str, Any],
        cells: Sequence[CellSpec],
        *,
        force: bool = False,
    ) -> Run:
        """Make a new run, or open one that was made for the same cells.

        `asked` is written to study.yaml for people; the cells' ids decide what is the same.
        """
        if not os.fspath(path):
            raise UserError("The output path is empty.", where="-o/--out", fix="name a directory")
        run = cls(path)
        with disk(run.path):
            run.path.mkdir(parents=True, exist_ok=True)
            in_use = (run.path / LOCK).exists()
        if not in_use:
            run._refuse_strangers()  # before a lock file is left in somebody's directory
        with run._lock():
            run._sweep()
            run._refuse_strangers()
            if force:
                run._clear()
            study, ids = run._study(), [cell.id for cell in cells]
            if study is not None and set(study["cells"]) != set(ids):
                raise UserError(
                    "This run directory was made by another spec.",
                    where=run.path,
                    got=_differences(study["asked"], asked),
                    expected="the same checkpoint, settings and seed (only -n may grow; for dense "
                    "by whole batches, see --batch-size)",
                    fix="choose another -o/--out, or start this one anew with --force",
                )
            n = max(int(asked.get("n", 0)), 0 if study is None else study["asked"].get("n", 0))
            run._write_study({**asked, "n": n}, ids)
            for cell in cells:
                Cell(run.path / CELLS / cell.id, cell)._prepare()
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Run:
        """A run that exists, to read from."""
        run = cls(path)
        with reading(run.path):
            exists = run.path.is_dir()
        if not exists:
            raise UserError("There is no such run directory.", where=run.path, fix="strop ls")
        if run._study() is None:
            raise UserError(
                "This directory is not a run.",
                where=run.path,
                expected=f"a directory with {STUDY}",
                fix="strop ls",
            )
        return run

    @property
    def asked(self) -> dict[str, Any]:
        """What the run was asked to do, as study.yaml has it."""
        study = self._study()
        return {} if study is None else dict(study["asked"])

    def cells(self) -> list[Cell]:
        """The cells of the study, in the order in which they were asked for."""
        study = self._study()
        ids = [] if study is None else study["cells"]
        return [Cell.open(self.path / CELLS / cell_id) for cell_id in ids]

    def cell(self, name: str) -> Cell:
        """One cell by its id or the beginning of it."""
        found = [cell for cell in self.cells() if cell.id.startswith(name)]
        if len(found) == 1:
            return found[0]
        raise UserError(
            f"{'Several cells begin' if found else 'No cell begins'} with {name!r}.",
            where=self.path,
            expected="one of " + ", ".join(cell.id for cell in self.cells()),
            fix=f"strop show {self.path}",
        )

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with locked(self.path):
            yield

    def _sweep(self) -> None:
        """Remove what a session that was killed had not yet renamed into place."""
        with disk(self.path):
            for leftover in self.path.glob(TEMPORARY + "*"):
                leftover.unlink(missing_ok=True)

    def _refuse_strangers(self) -> None:
        """A directory without a study is ours only if it is empty."""
        with disk(self.path):
            names = sorted(
                p.name
                for p in self.path.iterdir()
                if p.name != LOCK and not p.name.startswith(TEMPORARY)
            )
        if names and STUDY not in names:
            raise UserError(
                "The output directory holds files but no run.",
                where=self.path,
                got=", ".join(names[:3]) + (", ..." if len(names) > 3 else ""),
                expected="a new or empty directory, or one made by strop",
                fix="choose another -o/--out",
            )

    def _clear(self) -> None:
        """Remove what strop made here, and nothing else; wait for who is still writing."""
        cells = [p for p in (self.path / CELLS).glob("*") if CELL_ID.fullmatch(p.name)]
        with ExitStack() as held, disk(self.path):
            for cell in sorted(cells):
                if cell.is_dir():
                    held.enter_context(locked(cell))
            for cell in cells:
                made = [cell / SPEC, cell / OUTPUTS, cell / COST, *cell.rglob(TEMPORARY + "*")]
                for file in [*made, *(cell / PARTS).glob("*.parquet"), cell / LOCK]:
                    file.unlink(missing_ok=True)
                for folder in (cell / PARTS, cell):
                    _remove_if_empty(folder)
            _remove_if_empty(self.path / CELLS)
            # Last: a session killed in here leaves a directory that still counts as a run.
            (self.path / STUDY).unlink(missing_ok=True)

    def _study(self) -> dict[str, Any] | None:
        import yaml

        path = self.path / STUDY
        try:
            with reading(path):
                study = yaml.safe_load(path.read_bytes())
        except FileNotFoundError:
            return None
        except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise _damaged(path, error) from None
        if not isinstance(study, dict):
            raise _damaged(path, "it is not a study")
        _check_format(study, path)
        asked, ids = study.get("asked"), study.get("cells")
        if not isinstance(asked, dict) or type(asked.get("n", 0)) is not int:
            raise _damaged(path, "it does not say what was asked")
        if not isinstance(ids, list) or not all(CELL_ID.fullmatch(str(name)) for name in ids):
            raise _damaged(path, "it does not list cells")
        return study

    def _write_study(self, asked: Mapping[str, Any], ids: list[str]) -> None:
        import yaml

        document = {"format": FORMAT, "strop": __version__, "asked": dict(asked), "cells": ids}
        # ASCII, so that names of any bytes that the file system allows can be written.
        content = yaml.safe_dump(document, sort_keys=False).encode()
        path = self.path / STUDY
        with reading(path):
            same = path.exists() and path.read_bytes() == content
        if not same:
            write(path, content)


class Cell:
    """One generator under one seed, on disk."""

    def __init__(self, path: Path, spec: CellSpec, source: str = "") -> None:
        self.path, self.spec, self.source = path, spec, source
        self.id = spec.id

    @classmethod
    def open(cls, path: Path) -> Cell:
        """Read a cell's spec and check that it is the one the folder is named after."""
        document = _read_json(path / SPEC, "spec", dict)
        try:
            cell = cls(path, CellSpec(**document["spec"]))
        except UserError as error:
            raise _damaged(path / SPEC, error) from None
        if cell.id != path.name:
            raise _damaged(path / SPEC, f"its content has the id {cell.id}, the folder {path.name}")
        return cell

    def _prepare(self) -> None:
        with disk(self.path):
            (self.path / PARTS).mkdir(parents=True, exist_ok=True)
        if not (self.path / SPEC).exists():
            document = {
                "format": FORMAT,
                "id": self.id,
                "spec": self.spec.model_dump(mode="json"),
            }
            write(self.path / SPEC, _json(document))
        else:
            Cell.open(self.path)

    @contextmanager
    def writing(self, *, wait: bool = True) -> Iterator[bool]:
        """Hold the cell for writing; yields False at once if it is taken and `wait` is off."""
        self._still_here()  # else taking the lock would make the folder again
        with locked(self.path, wait=wait) as mine:
            if mine:
                self._still_here()
                with disk(self.path):
                    for leftover in self.path.rglob(TEMPORARY + "*"):
                        leftover.unlink(missing_ok=True)
            yield mine

    def _still_here(self) -> None:
        if not (self.path / SPEC).exists():
            raise UserError(
                "The run was removed or started anew by another process.",
                where=self.path,
                fix="run the same command again",
            )

    def indices(self) -> set[int]:
        """Which outputs are on disk."""
        return set(self._read(["index"])["index"].to_pylist())

    def add(self, rows: Iterable[Row]) -> None:
        """Make some outputs durable; they become part of `outputs.parquet` at `merge`."""
        rows = sorted(rows, key=lambda row: row.index)
        if rows:
            name = f"{rows[0].index:08d}-{rows[-1].index:08d}-{uuid.uuid4().hex[:8]}.parquet"
            _write_parquet(self.path / PARTS / name, _table(rows, self.spec))

    def merge(self) -> None:
        """Fold all parts into `outputs.parquet`; the parts go only when that is in place."""
        parts = sorted((self.path / PARTS).glob("*.parquet"))
        if not parts:
            return
        _write_parquet(self.path / OUTPUTS, self.table())
        with disk(self.path):
            for part in parts:
                part.unlink()

    def table(self) -> pa.Table:
        """All outputs, by index, each once."""
        table = self._read()
        # A crash between renaming the merged file and removing its parts leaves rows twice; they
        # are equal, so the first of each index is as good as any.
        index = table["index"].to_numpy()
        _, first = np.unique(index, return_index=True)
        return table.take(first) if len(first) < len(index) or (np.diff(index) < 0).any() else table

    def pool(self, n: int | None = None) -> Pool:
        """The outputs 0 .. n - 1 (all that there are, by default)."""
        table = self.table()
        if n is None:
            n = 1 + max(table["index"].to_pylist(), default=-1)
        have = int((table["index"].to_numpy() < n).sum())
        table = table.slice(0, n)
        if have < n:
            raise UserError(
                "The cell does not hold all of its outputs.",
                where=self.path,
                got=f"{have} of {n} outputs",
                fix="run the command that made it again; it draws what is missing",
            )
        texts = table["text"].to_pylist()
        ids = table["ids"].combine_chunks().flatten().to_numpy()
        return Pool(
            spec=self.spec,
            ids=ids.reshape(n, self.spec.generator.length).astype(np.int64),
            texts=None if any(text is None for text in texts) else texts,
            nfe=table["nfe"].to_numpy(),
            seconds=table["seconds"].to_numpy(),
            leftover_masks=table["leftover_masks"].to_numpy(),
            provenance=self.sessions(),
        )

    def sessions(self) -> list[dict[str, Any]]:
        """Cost and provenance of every session that added outputs."""
        path = self.path / COST
        if not path.exists():
            return []
        sessions = _read_json(path, "sessions", list)["sessions"]
        if not all(isinstance(one, dict) and "session" in one for one in sessions):
            raise _damaged(path, "its sessions have no names")
        return sessions

    def record(self, session: Mapping[str, Any]) -> None:
        """Write or update one session's entry, known by its `session` id."""
        others = [s for s in self.sessions() if s["session"] != session["session"]]
        write(self.path / COST, _json({"format": FORMAT, "sessions": [*others, dict(session)]}))

    def _read(self, columns: list[str] | None = None) -> pa.Table:
        """Whatever is on disk now, also while another process merges."""
        import pyarrow as pa

        empty = _table([], self.spec)
        for _ in range(READ_ATTEMPTS):
            # Parts first: one that is merged after this line is in the merged file, or gone when
            # its turn comes, and then all is read again.
            parts = sorted((self.path / PARTS).glob("*.parquet"))
            whole = self.path / OUTPUTS
            files = [whole, *parts] if whole.exists() else parts
            try:
                tables = [_read_parquet(path, empty.schema, columns) for path in files]
            except FileNotFoundError:
                continue
            return pa.concat_tables([empty.select(columns or empty.column_names), *tables])
        raise UserError(
            "The cell's files change while they are read.",
            where=self.path,
            fix="run the same command again",
        )


def find_runs(root: str | os.PathLike[str]) -> list[Run]:
    """Every run directory at or below `root`."""
    return [Run(path.parent) for path in sorted(Path(root).glob(f"**/{STUDY}"))]


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _write_parquet(path: Path, table: pa.Table) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    # Parquet checks its pages only if asked to, at both ends.
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    write(path, sink.getvalue().to_pybytes())


def _read_parquet(path: Path, schema: pa.Schema, columns: list[str] | None) -> pa.Table:
    """The rows of one file, or a message if they are not rows of this cell."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(path):
        content = path.read_bytes()
    try:
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        found = file.schema_arrow
        if found.names != schema.names or found.metadata != schema.metadata:
            raise _damaged(path, "it is not a table of this cell")
        # No threads: arrow's pool can abort the interpreter when it ends right after a read.
        table = file.read(columns, use_threads=False).cast(
            pa.schema([schema.field(c) for c in columns or schema.names])
        )
        table.validate(full=True)
    except UserError:
        raise
    except Exception as error:  # damaged bytes make the reader raise nearly anything
        raise _damaged(path, error) from None
    if any(table[name].null_count for name in table.column_names if name != "text"):
        raise _damaged(path, "it has empty entries")
    return table


def _table(rows: list[Row], spec: CellSpec) -> pa.Table:
    import pyarrow as pa

    length = spec.generator.length
    flat = np.concatenate([row.ids for row in rows]) if rows else np.zeros(0, np.int64)
    columns = {
        "index": pa.array([row.index for row in rows], pa.int64()),
        "seed": pa.array([spec.seed] * len(rows), pa.int64()),
        "ids": pa.FixedSizeListArray.from_arrays(pa.array(flat, pa.int32()), length),
        "text": pa.array([row.text for row in rows], pa.string()),
        "nfe": pa.array([row.nfe for row in rows], pa.int64()),
        "seconds": pa.array([row.seconds for row in rows], pa.float64()),
        "leftover_masks": pa.array([row.leftover_masks for row in rows], pa.int64()),
    }
    # A table that travels alone still says what it depends on.
    metadata = {"strop.format": str(FORMAT), "strop.cell": spec.canonical()}
    return pa.table(columns).replace_schema_metadata(metadata)


def _json(document: Any) -> bytes:
    return (json.dumps(document, indent=2, allow_nan=False) + "\n").encode()


def _read_json(path: Path, key: str, kind: type) -> dict[str, Any]:
    """A JSON object of this format or an older one, with what is looked for under `key`."""
    try:
        with reading(path):
            document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise _damaged(path, MISSING) from None
    except (ValueError, RecursionError) as error:
        raise _damaged(path, error) from None
    if not isinstance(document, dict):
        raise _damaged(path, "it does not hold an object")
    _check_format(document, path)
    if not isinstance(document.get(key), kind):
        raise _damaged(path, f"it has no {key!r}")
    return document


def _damaged(path: Path, why: object) -> UserError:
    if path.name == OUTPUTS or path.parent.name == PARTS:
        fix = f"delete {path} and run the command that made it again: equal seeds, equal outputs"
    elif path.name == COST:
        fix = f"restore {path}, or delete it: only the record of earlier sessions is lost"
    elif path.name == SPEC and why == MISSING:
        fix = "run the command that made this run again: it writes the same file"
    elif path.name == SPEC:
        fix = f"delete {path} and run the command that made it again: it writes the same file"
    else:
        fix = "restore the file, or start the run anew with --force"
    reason = str(why).splitlines()[0][:200] if str(why) else type(why).__name__
    return UserError("A file of the run is damaged.", where=path, got=reason, fix=fix)


def _check_format(document: Mapping[str, Any], path: Path) -> None:
    made = document.get("format")
    if type(made) is not int or made < 1:
        raise _damaged(path, f"its format is {made!r}")
    if made > FORMAT:
        raise UserError(
            "This run was made by a newer version of strop.",
            where=path,
            got=f"format {made} (strop {document.get('strop', 'unknown')})",
            expected=f"format {FORMAT} or lower (this is strop {__version__})",
            fix="pip install --upgrade strop",
        )


BATCHING = ("n", "batch_size")


def _differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What was asked then and now, setting by setting, a few of them."""
    then, today = _flat(was), _flat(now)
    # Where the file lies is not identity; the batch and n are part of it only for dense.
    ignored = (
        {"checkpoint"} if "dense" in then.get("implementation", "") else {"checkpoint", *BATCHING}
    )
    told = [
        f"{key}: {then.get(key, 'nothing')} there, {today.get(key, 'nothing')} now"
        for key in {**then, **today}
        if key not in ignored and then.get(key) != today.get(key)
    ]
    if len(told) > 4:
        told = [*told[:4], f"and {len(told) - 4} more"]
    return "; ".join(told) or "the same settings, but other cells"


def _flat(asked: Mapping[str, Any]) -> dict[str, str]:
    """Nested settings by dotted name; a setting that all samplers share, or list, under its own."""
    flat = {k: str(v) for k, v in asked.items() if k not in ("weights", "samplers")}
    weights = asked.get("weights")
    if isinstance(weights, Mapping):
        shape = weights.get("shape")
        flat |= {f"weights.{k}": str(v) for k, v in weights.items() if k != "shape"}
        if isinstance(shape, Mapping):
            flat |= {f"weights.shape.{k}": str(v) for k, v in shape.items()}
    samplers = [one for one in asked.get("samplers") or [] if isinstance(one, Mapping)]
    for name in dict.fromkeys(key for one in samplers for key in one):
        values = dict.fromkeys(str(one.get(name)) for one in samplers)
        flat[name] = ", ".join(values)
    return flat
