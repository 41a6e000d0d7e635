"""Where a study keeps what it measured: complete or absent, continued by the same command.

DIR/cells/<id>.parquet      what was measured under one spec; the spec's hash is the name, with
                            the version of a study that is not built in
DIR/parts/<id>-<k>.parquet  the finished blocks of a cell that is not complete yet
DIR/result.json             what was asked, and every number of the table and the figure
DIR/table.csv               the table, one line per row
DIR/<study>.svg, .png       the figure

A study of sampled outputs has run directories in the place of cells and parts.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.disk import LOCK, TEMPORARY, disk, locked, reading, write
from strop.errors import UserError
from strop.store.documents import as_json, parsed
from strop.store.layout import CELLS, FORMAT, PARTS, RESULT, TABLE
from strop.store.tables import write_parquet

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StudyFolder", "study_result"]


class StudyFolder:
    """One study's directory, held for writing."""

    def __init__(
        self, path: Path, study: str, runs: Sequence[str] = (), version: str | None = None
    ) -> None:
        self.path, self.study, self.runs, self.version = path, study, runs, version

    @classmethod
    @contextmanager
    def open(
        cls,
        path: Path,
        study: str,
        *,
        runs: Sequence[str] = (),
        force: bool = False,
        version: str | None = None,
        together: bool = False,
    ) -> Iterator[StudyFolder]:
        """Make or continue the directory; with `force` what the study left there goes first.

        `runs` are run directories inside it; starting those anew is their own business. Cells of
        another `version` of the study stay where they are and are not used. Those who work
        `together` (shards) do not wait for each other: their runs see to that.
        """
        folder = cls(path, study, runs, version)
        with disk(path):
            path.mkdir(parents=True, exist_ok=True)
        folder._check_owner()
        if together:
            with disk(path):
                folder._rooms()
            yield folder
            return
        with locked(path):
            with disk(path):
                folder._tidy(force)
            yield folder

    def _tidy(self, force: bool) -> None:
        if force:
            for name in (CELLS, PARTS):
                shutil.rmtree(self.path / name, ignore_errors=True)
            for name in (RESULT, TABLE):
                (self.path / name).unlink(missing_ok=True)
        self._rooms()
        for leftover in self.path.rglob(TEMPORARY + "*"):
            leftover.unlink(missing_ok=True)

    def _rooms(self) -> None:
        for name in () if self.runs else (CELLS, PARTS):
            (self.path / name).mkdir(exist_ok=True)

    def _check_owner(self) -> None:
        """Refuse a directory that belongs to something else: nothing of it is overwritten."""
        result = self.path / RESULT
        if not result.exists():
            own = {RESULT, TABLE, CELLS, PARTS, LOCK, *self.runs, *(p.name for p in self.figures())}
            foreign = sorted(p.name for p in self.path.iterdir() if p.name not in own)
            if foreign:
                raise UserError(
                    "The directory holds something else.",
                    where=self.path,
                    got=", ".join(foreign[:4]),
                    expected=f"a new directory, or one of the study `{self.study}`",
                    fix="choose another `out`",
                )
            return
        found = study_result(self.path)
        made = None if found is None else found["study"]
        if made != self.study:
            raise UserError(
                "The directory belongs to another study.",
                where=self.path,
                got=made or f"a {RESULT} of something else",
                expected=self.study,
                fix="choose another `out`",
            )

    # ------------------------------------------------------------------ what was measured

    def cell(self, id_: str) -> pa.Table | None:
        """A complete cell, or None."""
        return _read(self._cell(id_))

    def part(self, id_: str, number: int) -> pa.Table | None:
        """A finished block of a cell, or None."""
        return _read(self._part(id_, number))

    def keep(self, id_: str, number: int, table: pa.Table) -> None:
        """Make one block durable."""
        write_parquet(self._part(id_, number), table)

    def complete(self, id_: str, table: pa.Table) -> None:
        """Put a whole cell in place; its blocks go only then."""
        write_parquet(self._cell(id_), table)
        for part in (self.path / PARTS).glob(f"{self._own(id_)}-*.parquet"):
            part.unlink(missing_ok=True)  # another shard may complete it, too

    def _cell(self, id_: str) -> Path:
        return self.path / CELLS / f"{self._own(id_)}.parquet"

    def _part(self, id_: str, number: int) -> Path:
        return self.path / PARTS / f"{self._own(id_)}-{number:05d}.parquet"

    def _own(self, id_: str) -> str:
        """The id as this version of the study has it; of a built-in one, the id itself."""
        if self.version is None:
            return id_
        return hashlib.sha256(f"{id_}:{self.version}".encode()).hexdigest()[:16]

    # ------------------------------------------------------------------ what came out

    def finish(self, result: Mapping[str, Any], table: bytes) -> None:
        """Write the table as CSV and then the result, which says that the study is complete."""
        write(self.path / TABLE, table)
        write(self.path / RESULT, as_json({"format": FORMAT, "study": self.study, **result}))

    def figures(self) -> list[Path]:
        """Where the figure goes, as SVG and as PNG."""
        return [self.path / f"{self.study}.{kind}" for kind in ("svg", "png")]


def study_result(folder: Path) -> dict[str, Any] | None:
    """What a study left in its directory; None if the directory is none of a study."""
    path = folder / RESULT
    try:
        document = parsed(path)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise _damaged(path, error) from None
    if not isinstance(document, dict) or "study" not in document:
        return None  # a training run has a result of its own
    if document.get("format") != FORMAT:
        raise _damaged(path, f"its format is {document.get('format')!r}")
    return document


def _read(path: Path) -> pa.Table | None:
    """The table, or None where there is none; damaged bytes are told, never used."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with reading(path):
            content = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        return file.read(use_threads=False)
    except Exception as error:  # damaged bytes make the reader raise nearly anything
        raise _damaged(path, error) from None


def _damaged(path: Path, why: object) -> UserError:
    return UserError(
        "A file of the study is damaged.",
        where=path,
        got=str(why).splitlines()[0][:200] if str(why) else type(why).__name__,
        fix=f"delete {path} and run the same command again: it is measured anew",
    )
