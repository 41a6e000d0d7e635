"""Cells of a study that are tables: measured in blocks, each kept as a part until all are there."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strop.disk import CLAIM, claimed
from strop.engine.plan import Engine, Progress, Unit, cut, refuse_missing, stop_if_planning
from strop.engine.sink import CellRows, Sink, forget_claims
from strop.engine.workers import Job, Worker, run_units
from strop.store import StudyFolder
from strop.store.documents import PARTS

if TYPE_CHECKING:
    import pyarrow as pa

NOTE_SECONDS = 10.0
"""How often a long cell says how far it is."""


@dataclass(frozen=True)
class Blocks:
    """Tables of a study that are measured together, and what is measured of them at a time."""

    ids: Sequence[str]
    """Of the tables; the parts are kept under the last."""
    label: str
    """For people."""
    blocks: Sequence[Sequence[int]]
    """A block is a unit."""
    join: Callable[[list[pa.Table]], Sequence[pa.Table]]
    """From all parts to the tables."""


@dataclass(frozen=True)
class PlannedBlocks:
    """What a dry run notes in place of measuring."""

    cells: Sequence[Blocks]
    here: Callable[[], Worker]


class BlockRows(CellRows):
    """Blocks of tables: a row is a block's first index and its part."""

    def __init__(
        self, folder: StudyFolder, cell: Blocks, note: Callable[[str], None] = lambda _: None
    ) -> None:
        self.cell, self._folder, self._note = cell, folder, note
        self.facts: Mapping[str, Any] | None = None
        """Who measured some of it, if anybody did."""
        self._id = cell.ids[-1]
        self._number = {block[0]: number for number, block in enumerate(cell.blocks)}
        self._began = self._told = 0.0

    def hold(self) -> AbstractContextManager[bool]:
        """Time counts from here."""
        self._began = self._told = time.monotonic()
        return super().hold()

    def claim(self, unit: Unit) -> AbstractContextManager[bool]:
        """By the number of the part."""
        name = f"{CLAIM}{self._id}-{self._number[unit.first]:05d}"
        return claimed(self._folder.path / PARTS / name)

    def missing(self, unit: Unit) -> Sequence[int]:
        """All of it, until its part is there, or the tables that all parts became."""
        there = self._part(unit.first) is not None or self._folder.cell(self._id) is not None
        return () if there else unit.indices

    def _part(self, first: int) -> pa.Table | None:
        return self._folder.part(self._id, self._number[first])

    def write(self, rows: Sequence[tuple[int, pa.Table]]) -> None:
        """A file per part."""
        for first, table in rows:
            self._folder.keep(self._id, self._number[first], table)

    def record(self, worker: int, facts: Mapping[str, Any], rows: Sequence[Any]) -> None:
        """The first one tells where it was measured."""
        del worker, rows
        self.facts = self.facts or facts

    def done(self, left: int) -> None:
        """Put the tables together once all parts are there."""
        now = time.monotonic()
        if not left and self.joined():
            self._note(f"{self.cell.label}, {now - self._began:.0f} s")
        elif left and now - self._told > NOTE_SECONDS:
            self._told = now
            self._note(f"{self.cell.label}, {left} of {len(self.cell.blocks)} blocks are left")

    def waiting(self, progress: Progress) -> None:
        """In a note: there is no bar."""
        del progress
        self._note(f"{self.cell.label}: another process is at work on it, waiting")

    def joined(self) -> bool:
        """Whether the tables are there; put together now, if all parts are."""

        def there() -> bool:
            return all(self._folder.cell(one) is not None for one in self.cell.ids)

        if there():
            return True
        parts = [part for first in self._number if (part := self._part(first)) is not None]
        if len(parts) < len(self._number):
            return there()  # another shard may have put them together meanwhile
        for one, table in zip(self.cell.ids, self.cell.join(parts), strict=True):
            self._folder.complete(one, table)
        forget_claims(self._folder.path / PARTS, self._id)
        return True

    def absent(self) -> set[int]:
        """What others have not measured."""
        if self.joined():
            return set()
        return {one for block in self.cell.blocks if self._part(block[0]) is None for one in block}


def measure_blocks(
    folder: StudyFolder,
    cells: Sequence[Blocks],
    here: Callable[[], Worker],
    job: Callable[[], Job],
    engine: Engine,
    note: Callable[[str], None],
    what: str,
) -> Mapping[str, Any] | None:
    """Complete all cells: `here`, or by the workers of an engine. Who did something, if anybody.

    A worker yields one row per unit (`BlockRows`). A shard that has done its part names what others
    have not.
    """
    stop_if_planning(PlannedBlocks(cells, here))
    rows = [BlockRows(folder, one, note) for one in cells]
    plan = engine.own(cut(one.blocks for one in cells))
    begun = [not one.joined() for one in rows]
    units = [unit for unit in plan if begun[unit.cell]]
    run_units(Sink(units, rows, seconds=0.0), here, job, engine)  # each block is durable at once
    refuse_missing(folder.path, {one.cell.ids[-1]: one.absent() for one in rows}, what)
    return next((one.facts for one in rows if one.facts is not None), None)
