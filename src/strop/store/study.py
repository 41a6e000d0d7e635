"""Where a study keeps what it measured: complete or absent, continued by the same command.

DIR/strop.json              whose it is and what was asked
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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.disk import TEMPORARY, disk, reading, write
from strop.store.documents import CELLS, FORMAT, PARTS, RESULT, TABLE, as_json, read_json
from strop.store.folder import KINDS, Folder, Mark
from strop.store.tables import checked_table, write_parquet

if TYPE_CHECKING:
    import pyarrow as pa


class StudyFolder(Folder):
    """The directory of a study, or of a verb that is one: an audit, a search, a comparison."""

    @contextmanager
    def writing(
        self, asked: Mapping[str, Any], *, force: bool = False, together: bool = False
    ) -> Iterator[None]:
        """Make or continue the directory; with `force` what the study left there goes first.

        Run directories inside it are started anew on their own, and so are the cells of an audit or
        a search, which the run there holds and marks. Cells of another `version` of the study stay
        where they are and are not used. Those who work `together` (shards) do not wait for each
        other.
        """
        if KINDS[self.kind].cells:
            self.refuse_strangers(force=force)
            yield
        elif together:
            self.join(asked)
            self._make_rooms()
            yield
        else:
            with self.held(force=force):
                if force:
                    self.clear()
                self.write(asked)
                for room in self._make_rooms():
                    for leftover in room.glob(TEMPORARY + "*"):
                        leftover.unlink(missing_ok=True)
                yield

    def _make_rooms(self) -> list[Path]:
        """Folders for cells and parts, where it has these and no run directories."""
        has_rooms = self.kind == "study" and not self.inside
        rooms = [self.path / CELLS, self.path / PARTS] if has_rooms else []
        with disk(self.path):
            for room in rooms:
                room.mkdir(exist_ok=True)
        return rooms

    def _look(self, force: bool) -> Mark | None:
        mark = super()._look(force)
        # Of a lost mark a result still says whose it is.
        result = study_result(self.path) if mark is None else None
        if result is not None and result["study"] != self.owner:
            raise self.stranger([RESULT])
        return mark

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
        write(self.path / RESULT, as_json({"format": FORMAT, "study": self.owner, **result}))

    def figures(self) -> list[Path]:
        """Where the figure goes, as SVG and as PNG."""
        return [self.path / f"{self.owner}.{kind}" for kind in ("svg", "png")]


def study_result(folder: Path) -> dict[str, Any] | None:
    """What a study left in its directory; None if it has not come to an end."""
    path = folder / RESULT
    with reading(path):
        there = path.is_file()
    return read_json(path, "study", str) if there else None


def _read(path: Path) -> pa.Table | None:
    """The table, or None where there is none; damaged bytes are told, never used."""
    try:
        return checked_table(path, lambda schema: schema)
    except FileNotFoundError:
        return None
