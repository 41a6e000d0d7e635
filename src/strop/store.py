"""The run directory: the only module that knows file names, atomic writes, locks and resume.

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
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strop.disk import TEMPORARY
from strop.disk import disk as _disk
from strop.disk import write as _write
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
LOCK = ".lock"


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
        run = cls(path)
        with _disk(run.path):
            run.path.mkdir(parents=True, exist_ok=True)
        with run._lock():
            if force:
                run._clear()
            study = run._study()
            ids = [cell.id for cell in cells]
            if study is None:
                strangers = [p.name for p in run.path.iterdir() if p.name != LOCK]
                if strangers:
                    raise UserError(
                        "The output directory holds files but no run.",
                        where=run.path,
                        got=", ".join(sorted(strangers)[:3]),
                        expected="a new or empty directory, or one made by strop",
                        fix="choose another -o/--out",
                    )
            elif study["cells"] != ids:
                raise UserError(
                    "This run directory was made by another spec.",
                    where=run.path,
                    got=_differences(study["asked"], asked),
                    expected="the same checkpoint, settings and seed (only -n may grow)",
                    fix="choose another -o/--out, or start this one anew with --force",
                )
            n = max(int(asked.get("n", 0)), int((study or {}).get("asked", {}).get("n", 0)))
            run._write_study({**asked, "n": n}, ids)
            for cell in cells:
                Cell(run.path / CELLS / cell.id, cell)._prepare()
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Run:
        """A run that exists, to read from."""
        run = cls(path)
        if not run.path.is_dir():
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

    def _clear(self) -> None:
        """Remove what strop made here, and nothing else."""
        for cell_path in sorted((self.path / CELLS).glob("*")):
            with locked(cell_path):
                pass  # wait for a session that is still writing
        with _disk(self.path):
            shutil.rmtree(self.path / CELLS, ignore_errors=True)
            (self.path / STUDY).unlink(missing_ok=True)

    def _study(self) -> dict[str, Any] | None:
        import yaml

        path = self.path / STUDY
        if not path.exists():
            return None
        try:
            study = yaml.safe_load(path.read_text())
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise _damaged(path, error) from None
        if not isinstance(study, dict) or not {"format", "asked", "cells"} <= study.keys():
            raise _damaged(path, "it is not a study")
        _check_format(study, path)
        return study

    def _write_study(self, asked: Mapping[str, Any], ids: list[str]) -> None:
        import yaml

        document = {"format": FORMAT, "strop": __version__, "asked": dict(asked), "cells": ids}
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
        path = self.path / STUDY
        if not path.exists() or path.read_text() != text:
            _write(path, text.encode())


class Cell:
    """One generator under one seed, on disk."""

    def __init__(self, path: Path, spec: CellSpec, source: str = "") -> None:
        self.path, self.spec, self.source = path, spec, source
        self.id = spec.id

    @classmethod
    def open(cls, path: Path) -> Cell:
        """Read a cell's spec and check that it is the one the folder is named after."""
        document = _read_json(path / SPEC)
        _check_format(document, path / SPEC)
        cell = cls(path, CellSpec(**document["spec"]))
        if cell.id != path.name:
            raise _damaged(path / SPEC, f"its content has the id {cell.id}, the folder {path.name}")
        return cell

    def _prepare(self) -> None:
        with _disk(self.path):
            (self.path / PARTS).mkdir(parents=True, exist_ok=True)
        if not (self.path / SPEC).exists():
            document = {
                "format": FORMAT,
                "id": self.id,
                "spec": self.spec.model_dump(mode="json"),
            }
            _write(self.path / SPEC, _json(document))
        else:
            Cell.open(self.path)

    @contextmanager
    def writing(self, *, wait: bool = True) -> Iterator[bool]:
        """Hold the cell for writing; yields False at once if it is taken and `wait` is off."""
        with locked(self.path, wait=wait) as mine:
            if mine:
                for leftover in self.path.rglob(f"{TEMPORARY}*"):
                    leftover.unlink(missing_ok=True)
            yield mine

    def indices(self) -> set[int]:
        """Which outputs are on disk."""
        found: set[int] = set()
        for path in self._files():
            found.update(_read_parquet(path, columns=["index"])["index"].to_pylist())
        return found

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
        with _disk(self.path):
            for part in parts:
                part.unlink()

    def table(self) -> pa.Table:
        """All outputs, by index, each once."""
        import pyarrow as pa

        files = self._files()
        if not files:
            return _table([], self.spec)
        table = pa.concat_tables([_read_parquet(path) for path in files])
        # A crash between renaming the merged file and removing its parts leaves rows twice; they
        # are equal, so the first of each index is as good as any.
        index = table["index"].to_numpy()
        _, first = np.unique(index, return_index=True)
        return table.take(first) if len(first) < len(index) or (np.diff(index) < 0).any() else table

    def pool(self, n: int | None = None) -> Pool:
        """The outputs 0 .. n - 1 (all that there are, by default)."""
        table = self.table()
        n = table.num_rows if n is None else n
        table = table.slice(0, n)
        if table.num_rows < n or (table.num_rows and table["index"][-1].as_py() != n - 1):
            raise UserError(
                "The cell does not hold all of its outputs.",
                where=self.path,
                got=f"{table.num_rows} of {n} outputs",
                fix="run the command that made it again; it draws what is missing",
            )
        texts = table["text"].to_pylist()
        ids = table["ids"].combine_chunks()
        return Pool(
            spec=self.spec,
            ids=ids.flatten().to_numpy().reshape(n, -1).astype(np.int64),
            texts=None if any(text is None for text in texts) else texts,
            nfe=table["nfe"].to_numpy(),
            seconds=table["seconds"].to_numpy(),
            leftover_masks=table["leftover_masks"].to_numpy(),
            provenance=self.sessions(),
        )

    def sessions(self) -> list[dict[str, Any]]:
        """Cost and provenance of every session that added outputs."""
        path = self.path / COST
        return _read_json(path)["sessions"] if path.exists() else []

    def record(self, session: Mapping[str, Any]) -> None:
        """Write or update one session's entry, known by its `session` id."""
        others = [s for s in self.sessions() if s["session"] != session["session"]]
        _write(self.path / COST, _json({"format": FORMAT, "sessions": [*others, dict(session)]}))

    def _files(self) -> list[Path]:
        whole = self.path / OUTPUTS
        parts = sorted((self.path / PARTS).glob("*.parquet"))
        return [whole, *parts] if whole.exists() else parts


def find_runs(root: str | os.PathLike[str]) -> list[Run]:
    """Every run directory at or below `root`."""
    return [Run(path.parent) for path in sorted(Path(root).glob(f"**/{STUDY}"))]


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """A lock that the operating system releases when its holder dies, however it dies."""
    from filelock import FileLock, Timeout

    lock = FileLock(path / LOCK)
    try:
        with _disk(path):
            lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _write_parquet(path: Path, table: pa.Table) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    _write(path, sink.getvalue().to_pybytes())


def _read_parquet(path: Path, columns: list[str] | None = None) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(pa.BufferReader(path.read_bytes()), columns=columns)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise _damaged(path, error) from None


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


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise _damaged(path, "it is missing") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, why: object) -> UserError:
    if path.name == OUTPUTS or path.parent.name == PARTS:
        fix = f"delete {path} and run the command that made it again: equal seeds, equal outputs"
    else:
        fix = "restore the file, or start the run anew with --force"
    reason = str(why).splitlines()[0] if str(why) else type(why).__name__
    return UserError("A file of the run is damaged.", where=path, got=reason, fix=fix)


def _check_format(document: Mapping[str, Any], path: Path) -> None:
    if int(document.get("format", 0)) > FORMAT:
        raise UserError(
            "This run was made by a newer version of strop.",
            where=path,
            got=f"format {document['format']} (strop {document.get('strop', 'unknown')})",
            expected=f"format {FORMAT} or lower (this is strop {__version__})",
            fix="pip install --upgrade strop",
        )


def _differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    keys = [k for k in {**was, **now} if k != "n" and was.get(k) != now.get(k)]
    told = [f"{k}: {was.get(k)!r} there, {now.get(k)!r} now" for k in keys]
    return "; ".join(told) or "the same settings, but other weights or another dtype"
