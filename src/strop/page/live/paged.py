"""The outputs of one cell a few at a time, chosen and ordered among all of them, of any number.

What is in memory of a cell is the numbers of its outputs, their values, and which of them a search
found; texts are read from the disk when they are shown. A search reads the texts of all outputs
once, and stops after a while: the page says so then.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.page.data import Shown
from strop.page.tables import OutputColumn, rows_of
from strop.store import Cell
from strop.store.tables import ROWS, token_ids

LONGEST = 20_000
"""Characters of a text in a list; the output alone has it whole."""
MOST = 64
"""Outputs that are handed out at once."""
AHEAD = 128
"""Rows that are read at once to come to one of them."""
SECONDS = 10.0
"""How long a search may take; what was found by then is shown, and that it is not all is said."""
SEARCHES = 16
"""Searches of a cell whose finds are kept."""
LONGEST_RUN = 64
"""Words of a run that is looked for twice in a text, at most."""
WORD = re.compile(r"[^\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]+")
"""A word as the page's script marks it: `\\S+` in JavaScript."""


@dataclass(frozen=True)
class Wish:
    """Which outputs are wanted, in which order."""

    after: int = 0
    """How many of those were handed out already."""
    count: int = 12
    search: str = ""
    repeats: int = 0
    """Only outputs in which a run of so many words occurs twice; 0 for all."""
    column: int | None = None
    least: float = -np.inf
    most: float = np.inf
    order: tuple[int, int] | None = None
    """By the values of a column, up (1) or down (-1)."""


@dataclass(frozen=True)
class Find:
    """What a search came to."""

    numbers: NDArray[np.int64]
    """Of the outputs found, ascending."""
    whole: bool
    """Whether all outputs were looked at."""

    def within(self, other: Find) -> Find:
        """What both found."""
        numbers = np.intersect1d(self.numbers, other.numbers)
        return Find(numbers, self.whole and other.whole)


class Paged:
    """A cell's outputs as they were when it was last looked at."""

    def __init__(self, cell: Cell, shown: Shown, columns: Sequence[OutputColumn]) -> None:
        self._cell, self._shown, self._columns = cell, shown, columns
        self._finds: OrderedDict[tuple[str, Any], Find] = OrderedDict()
        self._hashes: tuple[NDArray[np.int64], Find] | None = None
        self._by_column: dict[int, NDArray[np.float64]] = {}
        self._numbers = np.zeros(0, np.int64)
        self._files: list[Path] = []
        self._lock = Lock()

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The numbers of all outputs that it has, ascending."""
        with self._lock:
            files = self._cell.files()
            if files != self._files:  # parts have names of their own, and are merged at the end
                self._numbers = self._cell.table(["index"])["index"].to_numpy()
                self._files = files
                self._finds.clear()
                self._hashes = None
                self._by_column.clear()
            return self._numbers

    def page(self, wish: Wish, unlike: Paged | None = None) -> dict[str, Any]:
        """The next of the outputs that are wanted.

        With `unlike` only those whose text is another than that cell's output of the same number.
        """
        every = self.numbers
        find = Find(every, True)
        if wish.search:
            find = find.within(self._cached("search", wish.search.lower(), self._search))
        if wish.repeats:
            find = find.within(self._cached("repeats", wish.repeats, self._repeating))
        if unlike is not None:
            find = find.within(self._differing(unlike))
        kept = find.numbers
        if wish.column is not None:
            values = self._values(wish.column, every, kept)
            kept = kept[(values >= wish.least) & (values <= wish.most)]
        if wish.order is not None:
            column, direction = wish.order
            values = direction * self._values(column, every, kept)
            # Those without a value come last, either way.
            kept = kept[np.argsort(np.where(np.isnan(values), np.inf, values), kind="stable")]
        end = wish.after + min(wish.count, MOST)
        return {
            "cell": self._cell.id,
            "held": len(every),
            "kept": len(kept) if find.whole else None,
            "next": end if end < len(kept) else None,
            "rows": self.rows(kept[wish.after : end], LONGEST),
        }

    def rows(self, wanted: NDArray[np.int64], longest: int | None = None) -> list[list[Any]]:
        """Some outputs, as the page has them: number, text, values."""
        texts, calls = {}, {}
        names = ["index", "text", "ids", "nfe", "tokens"]
        names = [name for name in names if name in self._cell.columns()]
        for first, count in _spans(wanted):
            for batch in self._cell.rows(names, after=first - 1, rows=max(count, AHEAD)):
                table = batch.slice(0, count)
                index = table["index"].to_pylist()
                texts |= dict(zip(index, self._texts(table), strict=True))
                calls |= dict(zip(index, table["nfe"].to_pylist(), strict=True))
                break
        if longest is not None:
            texts = {k: t if len(t) <= longest else t[:longest] + "…" for k, t in texts.items()}
        order = [number for number in wanted.tolist() if number in texts]
        return rows_of(
            replace(self._shown, texts={k: texts[k] for k in order}, calls=calls), self._columns
        )

    def _texts(self, table: Any) -> list[str]:
        texts = table["text"].to_pylist()
        if None in texts:  # no tokenizer was known
            ids = token_ids(table, self._cell.spec).tolist()
            texts = [" ".join(str(token) for token in row if token >= 0) for row in ids]
        return texts

    def _values(
        self, column: int, every: NDArray[np.int64], wanted: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """A column's values of some outputs; NaN where one has none."""
        if not 0 <= column < len(self._columns):
            raise UserError("There is no such column.", got=column)
        values = self._by_column.get(column)
        if values is None or len(values) != len(every):
            values = self._by_column[column] = self._read_values(self._columns[column], every)
        return values[np.searchsorted(every, wanted)]

    def _read_values(self, column: OutputColumn, every: NDArray[np.int64]) -> NDArray[np.float64]:
        if column.metric is not None:
            return column.values(self._shown, every)
        table = self._cell.table(["nfe"])
        calls = np.full(len(every), np.nan)
        there = np.isin(every, table["index"].to_numpy())
        calls[there] = table["nfe"].to_numpy()[np.isin(table["index"].to_numpy(), every)]
        return calls

    def _cached(self, kind: str, wanted: Any, search: Callable[[Any], Find]) -> Find:
        """A search's find, made once while the outputs stay the same."""
        find = self._finds.get((kind, wanted))
        if find is None:
            find = self._finds[kind, wanted] = search(wanted)
            while len(self._finds) > SEARCHES:
                self._finds.popitem(last=False)
        return find

    def _search(self, words: str) -> Find:
        """The outputs that hold some words in any case."""
        import pyarrow.compute as pc

        def holding(table: Any) -> Any:
            if table["text"].null_count:  # no tokenizer was known
                return [words in text for text in self._texts(table)]
            how = pc.MatchSubstringOptions(words, ignore_case=True)
            return pc.call_function("match_substring", [table["text"]], how).to_numpy()

        return self._scan(holding)

    def _repeating(self, length: int) -> Find:
        """The outputs in which a run of so many words occurs twice."""

        def repeats(text: str) -> bool:
            words = WORD.findall(text)
            runs = list(zip(*(words[start:] for start in range(length)), strict=False))
            return len(set(runs)) < len(runs)

        return self._scan(lambda table: list(map(repeats, self._texts(table))))

    def _differing(self, other: Paged) -> Find:
        """The outputs whose text is not that of the other cell's output of the same number."""
        (hashes, find), (other_hashes, other_find) = self._text_hashes(), other._text_hashes()
        numbers, at, other_at = np.intersect1d(
            find.numbers, other_find.numbers, return_indices=True
        )
        differ = hashes[at] != other_hashes[other_at]
        return Find(numbers[differ], find.whole and other_find.whole)

    def _text_hashes(self) -> tuple[NDArray[np.int64], Find]:
        """A 64-bit hash of every text: equal where texts are equal, and else as good as never."""
        _ = self.numbers  # which forgets the hashes where outputs have come since
        known_hashes = self._hashes
        if known_hashes is None:
            hashes: list[int] = []

            def hashed(table: Any) -> Any:
                hashes.extend(map(hash, self._texts(table)))
                return np.ones(len(table), bool)

            find = self._scan(hashed)
            known_hashes = self._hashes = np.array(hashes, np.int64), find
        return known_hashes

    def _scan(self, wanted: Callable[[Any], Any]) -> Find:
        """Which outputs are wanted, by one truth value for each row of a table of texts."""
        numbers, whole = [np.zeros(0, np.int64)], True
        end = time.monotonic() + SECONDS
        names = ["index", "text", *({"ids", "tokens"} & set(self._cell.columns()))]
        names = names if self._shown.as_ids else names[:2]
        for table in self._cell.rows(names, rows=ROWS):
            whole = time.monotonic() < end
            if not whole:
                break
            numbers.append(table["index"].to_numpy()[np.asarray(wanted(table), bool)])
        return Find(np.concatenate(numbers), whole)


def _spans(wanted: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Runs of numbers that follow each other: the first, and how many."""
    if not len(wanted):
        return []
    ordered = np.sort(wanted)
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 2) != 1)
    sizes = np.diff(np.append(starts, len(ordered)))
    return list(zip(ordered[starts].tolist(), sizes.tolist(), strict=True))
