"""Where outputs that are drawn go: into memory, or to a cell on disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from strop.engine.plan import Unit
from strop.engine.provenance import WorkerSession
from strop.engine.sink import CellRows
from strop.pool import Output, Pool
from strop.spec import CellSpec, MetricSpec
from strop.store import Cell
from strop.store.documents import SCORES


class Known:
    """What is on disk of a cell; every file is read once, however often one looks."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.indices: set[int] = set()
        self._seen: set[tuple[str, int, int]] = set()

    def look(self) -> set[int]:
        """The outputs that are there now."""
        while new := [one for one in self.cell.files() if _stamp(one) not in self._seen]:
            for path in new:
                stamp = _stamp(path)  # before reading: what replaces it meanwhile is read again
                try:
                    self.indices |= self.cell.indices_of(path)
                except FileNotFoundError:
                    break  # merged since: the merged file has its rows
                self._seen.add(stamp)
        return self.indices

    def add(self, rows: Iterable[Output]) -> None:
        """Make outputs durable, and know them without reading them again."""
        rows = list(rows)
        path = self.cell.add(rows)
        if path is not None:
            self.indices |= {row.index for row in rows}
            self._seen.add(_stamp(path))


class KnownScores:
    """Which outputs of a cell have a score; the file is read when it has changed."""

    def __init__(self, cell: Cell, metric: MetricSpec) -> None:
        self._cell, self._metric = cell, metric
        self._path = cell.path / SCORES / f"{metric.id}.parquet"
        self._index, self._seen = np.zeros(0, np.int64), (self._path.name, -1, -1)

    def look(self) -> np.ndarray:
        """Their numbers now."""
        stamp = _stamp(self._path)  # before reading, as above
        if stamp != self._seen:
            table = self._cell.score(self._metric)
            self._index = np.zeros(0, np.int64) if table is None else table.index
            self._seen = stamp
        return self._index


def _stamp(path: Path) -> tuple[str, int, int]:
    """Changes whenever a file is replaced; none changes in place."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return path.name, -1, -1
    return path.name, found.st_ino, found.st_mtime_ns


class MemoryRows(CellRows):
    """Outputs that go nowhere but into a pool."""

    def __init__(self, spec: CellSpec) -> None:
        self.spec = self._made = spec
        self.sessions: dict[int, WorkerSession] = {}
        """By worker."""
        self._outputs: dict[int, Output] = {}

    folder: Path | None = None
    """Where the cell lies; None in memory."""

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
        self.folder = cell.path

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
