"""A cell's outputs by index, each once, from any number of files, a bounded number at a time.

Rows of every file are in order, so several are read like zips: a file is opened when its turn
comes, and what is in memory is a batch of each open one.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from strop.store.documents import PARTS, damaged
from strop.store.tables import ROWS, read_batches

if TYPE_CHECKING:
    import pyarrow as pa

INDEX = "index"


class _File:
    """One file, read up to some row."""

    def __init__(self, path: Path, batches: Iterator[pa.Table]) -> None:
        self.path, self._batches = path, batches
        self.index = np.zeros(0, np.int64)
        self.table: pa.Table | None = None
        self.place = 0

    def at(self) -> int | None:
        """The index of its next row; None where it has ended."""
        while self.place >= len(self.index):
            self.table = next(self._batches, None)
            if self.table is None:
                return None
            before = self.index[-1:]
            self.index, self.place = self.table[INDEX].to_numpy(), 0
            if (np.diff(np.concatenate([before, self.index])) <= 0).any():
                raise damaged(self.path, "its rows are out of order")
        return int(self.index[self.place])

    def row(self) -> pa.Table:
        """Its next row, where there is one."""
        assert self.table is not None
        return self.table.slice(self.place, 1)

    def take(self, after: int, before: int | None) -> pa.Table | None:
        """Its next rows: those up to an index that another file has next, beyond one that is done.

        At least one row is passed over, so that two files with the same row both go on.
        """
        stop = len(self.index)
        if before is not None:
            stop = max(self.place + 1, int(np.searchsorted(self.index, before)))
        start = max(self.place, int(np.searchsorted(self.index, after, side="right")))
        self.place = stop
        return self.table.slice(start, stop - start) if self.table and start < stop else None


_Turn = tuple[int, bool, str, _File]
"""When a file's next row comes, and which file it is."""


def in_order(
    files: Sequence[Path],
    first: Callable[[Path], int | None],
    twice: Callable[[pa.Table, pa.Table], None],
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    *,
    after: int = -1,
    rows: int = ROWS,
) -> Iterator[pa.Table]:
    """The rows of some files beyond an index, up to `rows` at a time; the index is a column always.

    `first` tells the first index of a file (None: it is empty) without reading the rest of it;
    `twice` refuses two rows of one index that are not the same output.
    """
    import pyarrow as pa

    names = None if columns is None else list(dict.fromkeys([INDEX, *columns]))
    closed = sorted(((k, path) for path in files if (k := first(path)) is not None), reverse=True)
    going: list[_Turn] = []
    waiting: list[pa.Table] = []
    last: pa.Table | None = None
    count = 0
    while going or closed:
        while closed and (not going or closed[-1][0] <= going[0][0]):
            least, path = closed.pop()
            one = _File(path, read_batches(path, schema, names, rows))
            if (one.at() or 0) < least:
                raise damaged(path, "it is named after other rows")
            _queue(going, one)
        if not going:
            continue
        at, *_, one = heapq.heappop(going)
        # Another file's row is taken up to the next file's at most: of a row that is there twice,
        # the one that counts has come just before.
        if last is not None and at == after:
            twice(one.row(), last)
        nexts = [going[0][0]] if going else []
        nexts += [closed[-1][0]] if closed else []
        found = one.take(after, min(nexts, default=None))
        if found is not None:
            newest = last = found.slice(len(found) - 1)
            after = int(newest[INDEX][0].as_py())
            waiting.append(found)
            count += len(found)
        _queue(going, one)
        while count >= rows:
            whole = pa.concat_tables(waiting)
            yield whole.slice(0, rows)
            waiting, count = [whole.slice(rows)], count - rows
    if count:
        yield pa.concat_tables(waiting)


def _queue(going: list[_Turn], one: _File) -> None:
    at = one.at()
    if at is not None:
        # Of a row in two files, the merged one's counts: it may have been scored already.
        heapq.heappush(going, (at, one.path.parent.name == PARTS, one.path.name, one))
