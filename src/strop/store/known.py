"""Which outputs of a cell are on disk, asked again and again while others write too."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from strop.pool import Output
from strop.store.cell import Cell

__all__ = ["Known"]


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


def _stamp(path: Path) -> tuple[str, int, int]:
    """Changes whenever a file is replaced; none changes in place."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return path.name, -1, -1
    return path.name, found.st_ino, found.st_mtime_ns
