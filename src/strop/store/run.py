"""Directories of cells (`Run`) and of studies (`StudyFolder`): made, opened, started anew.

A study's directory holds what it measured. Every file is complete or absent, and the same command
continues the study:

DIR/strop.json              whose it is and what was asked
DIR/cells/<id>.parquet      what was measured under one spec; the spec's hash is the name, with
                            the version of a study that is not built in
DIR/parts/<id>-<k>.parquet  the finished blocks of a cell that is not complete yet
DIR/result.json             what was asked, and every number of the table and the figure
DIR/table.csv               the table, one line per row
DIR/<study>.svg, .png       the figure

A study of sampled outputs has run directories instead of cells and parts.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.disk import CLAIM, LOCK, TEMPORARY, disk, locked, reading, write
from strop.errors import UserError
from strop.prompts.canvas import Canvases
from strop.spec.generator import CellSpec
from strop.store.cell import Cell
from strop.store.folder import (
    CELL_ID,
    CELLS,
    COST,
    FORMAT,
    GRAMMAR,
    GUARD,
    KINDS,
    MARK,
    OUTPUTS,
    PARTS,
    PROMPTS,
    RESULT,
    SCORES,
    SPEC,
    TABLE,
    Folder,
    Mark,
    as_json,
    cell_folders,
    differences,
    read_json,
    read_mark,
)
from strop.store.tables import KeptPrompts, checked_table, keep_prompts, write_parquet

if TYPE_CHECKING:
    import pyarrow as pa


class Run:
    """A directory of cells: a run, or an audit or a search, which have cells too."""

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
        grow: bool = False,
    ) -> Run:
        """Make a new run, or open one that was made for the same cells.

        `path` may be the folder of an audit or a search. `asked` is written to the mark for people;
        the cells' ids decide what is the same. Its `n` is the number of outputs of every cell, or
        `outputs` has one number per cell. A run that may `grow` gets the cells that it lacks and
        keeps those that it has; what was asked of it first stays written.
        """
        run, folder = cls(path), path if isinstance(path, Folder) else Folder(path, "run", "sample")
        with folder.held(force=force) as mark:
            if force:
                run._clear(folder)
                mark = None
            counts = asked.get("outputs") or [int(asked.get("n", 0))] * len(cells)
            wanted = dict(zip((cell.id for cell in cells), counts, strict=True))
            ids = list(wanted)
            if grow:
                marked = mark.cells if mark is not None and mark.cells else ()
                ids = list(dict.fromkeys([*marked, *run._here(), *ids]))
            if mark is None or mark.cells is None:
                mark = run._rebuilt(folder, ids)
            if mark is not None:
                run._refuse_others(mark, asked, ids, grow)
            before = {} if mark is None else mark.wanted()
            counts = [max(wanted.get(id_, 0), before.get(id_, 0)) for id_ in ids]
            recorded = {**asked, **(mark.asked if mark is not None and grow else {})}
            recorded["n"] = max(counts, default=0)
            recorded.pop("outputs", None)
            if len(set(counts)) > 1:
                recorded["outputs"] = counts
            folder.write(recorded, ids)
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
        mark = read_mark(run.path)
        if mark is None and (folder := Folder(path, "run", "")).holds_cells():
            raise folder.unmarked()
        if mark is None or not mark.holds_cells:
            raise UserError(
                "This directory is not a run.",
                where=run.path,
                got=None if mark is None else f"a {KINDS[mark.kind].words}",
                expected=f"a directory whose {MARK} says that it holds cells",
                fix="strop ls" if mark is None else KINDS[mark.kind].shown_by(run.path),
            )
        return run

    def __repr__(self) -> str:
        try:
            cells = len(self.wanted())
        except UserError:  # whoever reads it says what is wrong
            return f"Run({str(self.path)!r}, damaged)"
        return f"Run({str(self.path)!r}, {cells} cell{'' if cells == 1 else 's'})"

    @property
    def mark(self) -> Mark | None:
        """What the directory says of itself, if it says that it holds cells."""
        mark = read_mark(self.path)
        return mark if mark is not None and mark.holds_cells else None

    @property
    def asked(self) -> dict[str, Any]:
        """What the run was asked to do."""
        return {} if (mark := self.mark) is None else dict(mark.asked)

    def wanted(self) -> dict[str, int]:
        """How many outputs each cell was asked for, by the cell's id."""
        return {} if (mark := self.mark) is None else mark.wanted()

    def cells(self) -> list[Cell]:
        """The cells, in the order in which they were asked for."""
        return [Cell.open(self.path / CELLS / cell_id) for cell_id in self.wanted()]

    def cell(self, name: str) -> Cell:
        """One cell by its id or the beginning of it."""
        ids = list(self.wanted())
        matching = [cell_id for cell_id in ids if cell_id.startswith(name)]
        if len(matching) == 1:
            return Cell.open(self.path / CELLS / matching[0])
        raise UserError(
            f"{'Several cells begin' if matching else 'No cell begins'} with {name!r}.",
            where=self.path,
            expected="one of " + ", ".join(ids),
            fix=f"strop show {self.path}",
        )

    def keep_prompts(
        self, canvases: Canvases, pieces: Sequence[Sequence[str | int] | None]
    ) -> KeptPrompts:
        """Keep what the cells' outputs answer; prompts that are here already keep their names."""
        with locked(self.path):
            return keep_prompts(self.path, canvases, pieces)

    def guard(self) -> dict[str, Any] | None:
        """The entropy guard that was kept here, if one was."""
        path = self.path / GUARD
        with reading(path):
            exists = path.is_file()
        return read_json(path, "source", str) if exists else None

    def keep_guard(self, guard: Mapping[str, Any]) -> None:
        """Keep the guard that this run's cells are held against, for whoever reads it later."""
        write(self.path / GUARD, as_json({"format": FORMAT, **guard}))

    @property
    def grammar(self) -> Path:
        """Where the grammar is, if the outputs are of a language whose law is known."""
        return self.path / GRAMMAR

    def keep_grammar(self, content: bytes) -> None:
        """Keep the grammar of the outputs' language, for whoever scores them later."""
        if content and not self.grammar.is_file():
            write(self.grammar, content)

    def _clear(self, folder: Folder) -> None:
        """Remove what strop made here, and nothing else; wait for who is still writing."""
        cells = cell_folders(self.path)
        with ExitStack() as held, disk(self.path):
            for cell in cells:
                for folder_path in (cell, cell / SCORES):
                    if folder_path.is_dir():
                        held.enter_context(locked(folder_path))
            for cell in cells:
                files = [cell / name for name in (SPEC, OUTPUTS, COST, "calls.jsonl")]
                files += [*cell.rglob(TEMPORARY + "*")]
                files += [*(cell / PARTS).glob("*.parquet"), *(cell / SCORES).glob("*.parquet")]
                files += cell.glob(CLAIM + "*")
                for file in [*files, cell / SCORES / LOCK, cell / LOCK]:
                    file.unlink(missing_ok=True)
                for folder_path in (cell / PARTS, cell / SCORES, cell):
                    _remove_if_empty(folder_path)
            _remove_if_empty(self.path / CELLS)
            for stored in (self.path / PROMPTS).glob("*.json"):
                if CELL_ID.fullmatch(stored.stem):
                    stored.unlink()
            _remove_if_empty(self.path / PROMPTS)
        folder.clear()

    def _here(self) -> list[str]:
        """The ids of the cells that describe themselves."""
        return [folder.name for folder in cell_folders(self.path) if (folder / SPEC).exists()]

    def _rebuilt(self, folder: Folder, ids: Sequence[str]) -> Mark | None:
        """In the place of a mark that is lost or damaged, one that the cells tell.

        Cells describe themselves, so the command that made them can mark them again: it must have
        asked for the outputs that they hold. None where there are no cells.
        """
        present = self._here()
        if not present:
            return None
        if not set(present) <= set(ids):
            raise folder.unmarked()
        cells = {id_: Cell.open(self.path / CELLS / id_) for id_ in present}
        held = {id_: cell.indices() for id_, cell in cells.items()}
        asked = {
            "weights": cells[present[0]].spec.generator.checkpoint.model_dump(mode="json"),
            "outputs": [1 + max(held.get(id_, ()), default=-1) for id_ in ids],
        }
        return Mark(folder.kind, folder.owner, asked, tuple(ids))

    def _refuse_others(
        self, mark: Mark, asked: Mapping[str, Any], ids: Sequence[str], grow: bool
    ) -> None:
        other = set(mark.cells or ()) != set(ids)
        if grow:  # by other settings of the same checkpoint
            weights = asked.get("weights")
            other = mark.asked.get("weights", weights) != weights
        if other:
            raise UserError(
                "This run directory was made by another spec.",
                where=self.path,
                got=differences(mark.asked, asked),
                expected="the same checkpoint, settings and seed (only `n` may grow; for dense "
                "by whole batches, see `batch_size`)",
                fix="choose another `out`, or start this one anew with `force`",
            )


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


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
        exists = path.is_file()
    return read_json(path, "study", str) if exists else None


def _read(path: Path) -> pa.Table | None:
    """The table, or None where there is none; damaged bytes are told, never used."""
    try:
        return checked_table(path, lambda schema: schema)
    except FileNotFoundError:
        return None
