"""A pool as a metric reads it: some rows at a time, as often as it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from strop.measure.across import HeldOutPairs
from strop.measure.grams import Grams, Ids, count
from strop.store.tables import TOKENS, token_ids

if TYPE_CHECKING:
    from strop.store import Cell

Rows = tuple[Sequence[str | None], NDArray[np.int64]]
"""Some outputs: their texts (None: no tokenizer is known) and their ids [k, L]."""


class PoolRows:
    """The outputs of a pool, from memory or from disk."""

    def __init__(
        self,
        outputs: int,
        read: Callable[[bool], Iterable[Rows]],
        beside: Mapping[str, NDArray] | None = None,
    ) -> None:
        """`read` yields some rows after the other, with texts if it is told so."""
        self._outputs, self._read = outputs, read
        self.beside = beside or {}
        """What the run wrote down beside every output: `nfe` and `seconds`; empty elsewhere."""
        self.held_out: HeldOutPairs | None = None
        """What diversity across the outputs is compared with; None where nothing is."""

    @classmethod
    def of(
        cls, ids: Ids, texts: Sequence[str | None] = (), beside: Mapping[str, NDArray] | None = None
    ) -> PoolRows:
        """What is in memory."""
        rows = np.asarray(ids, np.int64)
        return cls(len(rows), lambda _: [(texts, rows)], beside)

    @classmethod
    def of_cell(cls, cell: Cell, beside: Mapping[str, NDArray]) -> PoolRows:
        """All of a cell."""

        def read(with_texts: bool) -> Iterator[Rows]:
            names = ["ids", *(["text"] if with_texts else [])]
            names += [TOKENS] if TOKENS in cell.columns() else []
            for table in cell.rows(names):
                texts = table["text"].to_pylist() if with_texts else ()
                yield texts, token_ids(table, cell.spec)

        return cls(len(beside["nfe"]), read, beside)

    def __len__(self) -> int:
        return self._outputs

    def rows(self) -> Iterator[Rows]:
        """Texts and ids of some outputs after the other."""
        return iter(self._read(True))

    def ids(self) -> Iterator[NDArray[np.int64]]:
        """Ids alone; -1 behind an output that is shorter than others."""
        return (ids for _, ids in self._read(False))

    @cached_property
    def grams(self) -> Grams:
        """Its n-grams; counted once for all who ask."""
        return count(self.ids)
