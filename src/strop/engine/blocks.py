"""Cells of a study that are tables: measured in blocks, each kept as a part until all are there."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strop.engine.choice import Engine
from strop.engine.hire import hired
from strop.engine.plan import Unit, cut, refuse_missing
from strop.engine.workers import Hand, Job, drive, walk
from strop.store import StudyFolder

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Blocks", "measure_parts", "parts_of"]

NOTE_SECONDS = 10.0
"""How often a long cell says how far it is."""


@dataclass(frozen=True)
class Blocks:
    """A cell, and what is measured of it at a time; a block is a unit."""

    id: str
    label: str
    """For people."""
    blocks: Sequence[Sequence[int]]
    join: Callable[[], bool]
    """Put the cell together, if all parts of it are there, and say whether it is complete."""


def parts_of(folder: StudyFolder, id_: str, count: int) -> list[pa.Table] | None:
    """All parts of a cell; None while one is missing."""
    found = [part for k in range(count) if (part := folder.part(id_, k)) is not None]
    return found if len(found) == count else None


def measure_parts(
    folder: StudyFolder,
    cells: Sequence[Blocks],
    here: Callable[[], Hand],
    job: Callable[[], Job],
    engine: Engine,
    note: Callable[[str], None],
    what: str,
) -> Mapping[str, Any] | None:
    """Complete all cells: `here`, or by the workers of an engine. Who did something, if anybody.

    A hand yields one table per order, which is a cell's number and its indices. A shard that has
    done its part names what others have not.
    """
    desk = _Desk(folder, cells, engine, note)
    if engine.parallel and desk.units:
        asked = job()
        with hired(engine) as crew:
            drive(crew, asked, desk)
    elif desk.units:
        walk(here(), desk)
    missing = {one.id: set() if one.join() else _missing(folder, one) for one in cells}
    refuse_missing(folder.path, missing, what)
    return desk.facts


def _missing(folder: StudyFolder, cell: Blocks) -> set[int]:
    return {
        one
        for number, block in enumerate(cell.blocks)
        if folder.part(cell.id, number) is None
        for one in block
    }


class _Desk:
    """Hands out blocks and makes each durable at once."""

    def __init__(
        self,
        folder: StudyFolder,
        cells: Sequence[Blocks],
        engine: Engine,
        note: Callable[[str], None],
    ) -> None:
        self._folder, self._cells, self._note = folder, cells, note
        plan = cut(one.blocks for one in cells)
        numbers = [number for one in cells for number in range(len(one.blocks))]
        self._part = {unit.number: part for unit, part in zip(plan, numbers, strict=True)}
        open_ = [not one.join() for one in cells]
        mine = [unit for unit in plan if engine.shard is None or engine.shard.has(unit)]
        self.units = [unit for unit in mine if open_[unit.cell]]
        self.facts: Mapping[str, Any] | None = None
        self._left: dict[int, set[int]] = defaultdict(set)
        for unit in self.units:
            self._left[unit.cell].add(unit.number)
        self._began: dict[int, float] = {}
        self._told = time.monotonic()

    def take(self, unit: Unit) -> tuple[int, tuple[int, ...]] | tuple[()]:
        """A block that is on disk is not measured again."""
        self._began.setdefault(unit.cell, time.monotonic())
        self._left[unit.cell].add(unit.number)  # again, if its worker died
        there = self._folder.part(self._cells[unit.cell].id, self._part[unit.number])
        return () if there is not None else (unit.cell, unit.indices)

    def keep(self, unit: Unit, worker: int, facts: Mapping[str, Any], found: list[Any]) -> None:
        """Keep a block."""
        del worker
        for table in found:
            self._folder.keep(self._cells[unit.cell].id, self._part[unit.number], table)
        self.facts = self.facts or facts

    def leave(self, unit: Unit) -> None:
        """Done, or given up; a cell of which all blocks are there is put together."""
        left, cell = self._left[unit.cell], self._cells[unit.cell]
        left.discard(unit.number)
        if not left and cell.join():
            seconds = time.monotonic() - self._began[unit.cell]
            self._note(f"{cell.label}, {seconds:.0f} s")
        elif left and time.monotonic() - self._told > NOTE_SECONDS:
            self._told = time.monotonic()
            self._note(f"{cell.label}, {len(left)} of {len(cell.blocks)} blocks are left")

    def look(self) -> None:
        """Nothing waits."""

    def waiting(self, unit: Unit) -> None:
        """Nobody else has it."""
