"""Where outputs that are drawn go: into memory, or to a cell on disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from strop.engine.plan import Unit
from strop.engine.provenance import WorkerSession
from strop.engine.sink import CellRows
from strop.pool import Output, Pool
from strop.spec import CellSpec
from strop.store import Cell
from strop.store.known import Known


class MemoryRows(CellRows):
    """Outputs that go nowhere but into a pool."""

    def __init__(self, spec: CellSpec) -> None:
        self.spec = self._made = spec
        self.sessions: dict[int, WorkerSession] = {}
        """By worker."""
        self._outputs: dict[int, Output] = {}

    def missing(self, unit: Unit) -> tuple[int, ...]:
        """What was not drawn."""
        return tuple(index for index in unit.indices if index not in self._outputs)

    def size(self, rows: Sequence[Output]) -> tuple[int, int]:
        """Every output has tokens."""
        return len(rows), sum(len(row.ids) for row in rows)

    def write(self, rows: Sequence[Output]) -> None:
        """As durable as this process."""
        self._outputs |= {row.index: row for row in rows}

    def record(self, worker: int, facts: Mapping[str, Any], rows: Sequence[Output]) -> None:
        """One session per worker."""
        self.sessions.setdefault(worker, WorkerSession(facts)).add(rows)

    def pool(self) -> Pool:
        """All of them."""
        provenance = [one.document() for one in self.sessions.values()]
        return Pool.of(self._made, list(self._outputs.values()), provenance)


class OutputRows(MemoryRows):
    """Outputs of a cell on disk, which any number of processes may draw together."""

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell.spec)
        self._cell, self._known = cell, Known(cell)

    @contextmanager
    def hold(self) -> Iterator[bool]:
        """Nobody starts the cell anew meanwhile."""
        with self._cell.drawing(wait=False) as mine:
            if mine:
                self._cell.sessions()  # damage is better found before hours of work than after
                self._known = Known(self._cell)
            yield mine

    def claim(self, unit: Unit) -> AbstractContextManager[bool]:
        """By the unit's first output."""
        return self._cell.claim(unit.first)

    def look(self) -> None:
        """Read the files that were not read yet."""
        self._known.look()

    def missing(self, unit: Unit) -> tuple[int, ...]:
        """What is not on disk."""
        return tuple(index for index in unit.indices if index not in self._known.indices)

    def write(self, rows: Sequence[Output]) -> None:
        """In a file of their own."""
        self._known.add(rows)

    def record(self, worker: int, facts: Mapping[str, Any], rows: Sequence[Output]) -> None:
        """Also in the cell's record of cost."""
        super().record(worker, facts, rows)
        self._cell.record(self.sessions[worker].document())

    def done(self, left: int) -> None:
        """Fold the files into one when this process has nothing left to do."""
        if not left:
            self._cell.merge()
