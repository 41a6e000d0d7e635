"""A directory of cells: made, opened, started anew."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from strop.disk import CLAIM, LOCK, TEMPORARY, disk, locked, reading, write
from strop.errors import UserError
from strop.prompts import Canvases
from strop.spec import CellSpec
from strop.store.cell import Cell
from strop.store.documents import (
    CELL_ID,
    CELLS,
    COST,
    FORMAT,
    GRAMMAR,
    GUARD,
    MARK,
    OUTPUTS,
    PARTS,
    PROMPTS,
    SCORES,
    SPEC,
    as_json,
    differences,
    read_json,
)
from strop.store.folder import KINDS, Folder, Mark, cell_folders, read_mark
from strop.store.prompts import KeptPrompts, keep_prompts


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
            wanted = dict(zip((cell.id for cell in cells), _counts(asked, cells), strict=True))
            ids = list(wanted)
            if grow:
                known = mark.cells if mark is not None and mark.cells else ()
                ids = list(dict.fromkeys([*known, *run._here(), *ids]))
            if mark is None or mark.cells is None:
                mark = run._rebuilt(folder, ids)
            if mark is not None:
                run._refuse_others(mark, asked, ids, grow)
            before = {} if mark is None else mark.wanted()
            counts = [max(wanted.get(id_, 0), before.get(id_, 0)) for id_ in ids]
            said = {**asked, **(mark.asked if mark is not None and grow else {})}
            said["n"] = max(counts, default=0)
            said.pop("outputs", None)
            if len(set(counts)) > 1:
                said["outputs"] = counts
            folder.write(said, ids)
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
        found = read_mark(self.path)
        return found if found is not None and found.holds_cells else None

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
            there = path.is_file()
        return read_json(path, "source", str) if there else None

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
                for place in (cell, cell / SCORES):
                    if place.is_dir():
                        held.enter_context(locked(place))
            for cell in cells:
                made = [cell / name for name in (SPEC, OUTPUTS, COST, "calls.jsonl")]
                made += [*cell.rglob(TEMPORARY + "*")]
                made += [*(cell / PARTS).glob("*.parquet"), *(cell / SCORES).glob("*.parquet")]
                made += cell.glob(CLAIM + "*")
                for file in [*made, cell / SCORES / LOCK, cell / LOCK]:
                    file.unlink(missing_ok=True)
                for place in (cell / PARTS, cell / SCORES, cell):
                    _remove_if_empty(place)
            _remove_if_empty(self.path / CELLS)
            for kept in (self.path / PROMPTS).glob("*.json"):
                if CELL_ID.fullmatch(kept.stem):
                    kept.unlink()
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
        here = self._here()
        if not here:
            return None
        if not set(here) <= set(ids):
            raise folder.unmarked()
        cells = {id_: Cell.open(self.path / CELLS / id_) for id_ in here}
        held = {id_: cell.indices() for id_, cell in cells.items()}
        asked = {
            "weights": cells[here[0]].spec.generator.checkpoint.model_dump(mode="json"),
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


def _counts(asked: Mapping[str, Any], cells: Sequence[CellSpec]) -> Sequence[int]:
    return asked.get("outputs") or [int(asked.get("n", 0))] * len(cells)


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
