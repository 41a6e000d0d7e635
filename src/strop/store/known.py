"""Which outputs and scores of a cell are on disk, asked again and again while others write too."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from strop.pool import Output
from strop.spec import MetricSpec
from strop.store.cell import Cell
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
