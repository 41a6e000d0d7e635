"""What the process that was called does while outputs are scored: it hands them out and writes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strop.engine import Engine, Unit, cut
from strop.engine.plan import refuse_missing
from strop.errors import UserError
from strop.progress import Progress
from strop.spec import MetricSpec
from strop.store import Cell, Run
from strop.store.tables import PIECES, ROWS, TOKENS, token_ids

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FLUSH_SECONDS", "Outputs", "ScoreDesk", "Scoring", "refuse_unscored"]

FLUSH_SECONDS = 2.0
FLUSH_SHARE = 20
"""How much longer than a flush the work between two of them takes, at least."""


@dataclass(frozen=True)
class Outputs:
    """Some outputs of a cell."""

    index: NDArray[np.int64]
    texts: Sequence[str]
    ids: NDArray[np.int64]
    """[n, L], -1 behind an output that is shorter."""
    pieces: Sequence[Sequence[str]] | None
    """Per output, the texts of the gaps that it fills; None where prompts have no gaps."""


@dataclass(frozen=True)
class Scoring:
    """One metric of one cell."""

    cell: Cell
    metric: MetricSpec
    batch: int | None = None
    """Outputs that are measured at a time: many, by default."""
    needs_text: bool = True

    def missing(self) -> set[int]:
        """Outputs that have no score yet."""
        known = self.cell.score(self.metric)
        return self.cell.indices() - set([] if known is None else known.index.tolist())


class _Open:
    """A cell that is read from its first output to its last, a few in memory at a time."""

    def __init__(self, one: Scoring) -> None:
        self._one = one
        index = np.array(sorted(one.cell.indices()), np.int64)
        if len(index) == 0:
            raise UserError(
                "The cell has no outputs to score.",
                where=one.cell.path,
                fix="run the command that made the run again; it draws what is missing",
            )
        known = one.cell.score(one.metric)
        self.total = len(index)
        self.missing = index if known is None else np.setdiff1d(index, known.index)
        self._read()

    def _read(self) -> None:
        cell = self._one.cell
        columns = [name for name in ("ids", "text", TOKENS, PIECES) if name in cell.columns()]
        self._tables = cell.rows(columns, rows=max(self._one.batch or 0, ROWS))
        self._some: pa.Table | None = None
        self._from = 0

    def some(self, first: int, last: int) -> Outputs | None:
        """Those from `first` to `last` that are not measured yet."""
        import pyarrow as pa

        low, high = np.searchsorted(self.missing, [first, last + 1])
        if low == high:
            return None
        table = self._reaching(first, last)
        mine = np.isin(table["index"].to_numpy(), self.missing[low:high])
        table = table.filter(pa.array(mine))
        texts = table["text"].to_pylist()
        if self._one.needs_text and None in texts:
            raise UserError(
                "The outputs have no text, only token ids.",
                where=self._one.cell.path,
                expected="a checkpoint with its tokenizer beside the weights (tokenizer.json)",
                fix="sample with the tokenizer in place; or score what needs no text: "
                "`evaluator` none",
            )
        pieces = table[PIECES].to_pylist() if PIECES in table.column_names else None
        ids = token_ids(table, self._one.cell.spec)
        return Outputs(table["index"].to_numpy(), texts, ids, pieces)

    def _reaching(self, first: int, last: int) -> pa.Table:
        """Rows that have these outputs; what lies before them is forgotten."""
        import pyarrow as pa

        if first < self._from:  # a unit whose worker died
            self._read()
        self._from = first
        tables = [] if self._some is None else [self._some]
        while not tables or int(tables[-1]["index"][-1].as_py()) < last:
            table = next(self._tables, None)
            if table is None:
                break
            tables.append(table)
        whole = pa.concat_tables(tables)
        self._some = whole.slice(int(np.searchsorted(whole["index"].to_numpy(), first)))
        return self._some


class ScoreDesk:
    """Hands out outputs of cells and makes their scores durable every few seconds.

    Another process may score the same run: the row that is there first stays.
    """

    def __init__(
        self,
        work: Sequence[Scoring],
        progress: Progress,
        what: str,
        engine: Engine,
        workers: int | None = None,
    ) -> None:
        shard = engine.shard
        plan = cut(_blocks(work))
        self.units = [unit for unit in plan if shard is None or shard.has(unit)]
        self._work, self._progress, self._what = work, progress, what
        self._one_bar = workers is not None
        self._open: dict[int, _Open] = {}
        self._left: dict[int, set[int]] = defaultdict(set)
        self._waiting: dict[int, list[Mapping[str, NDArray]]] = defaultdict(list)
        self._last, self._pause = time.monotonic(), 0.0
        for unit in self.units:
            self._left[unit.cell].add(unit.number)
        if workers is not None:
            there = [len(one.cell.indices()) for one in work]
            done = sum(there) - sum(len(one.missing()) for one in work)
            progress.start(
                None, sum(there), done, f"{what}, {len(work)} cells on {workers} workers"
            )

    def take(self, unit: Unit) -> tuple[int, Outputs] | tuple[()]:
        """The outputs of a unit that are not measured yet."""
        if unit.cell not in self._open:
            place = self._open[unit.cell] = _Open(self._work[unit.cell])
            if not self._one_bar:
                spec = self._work[unit.cell].cell.spec
                done = place.total - len(place.missing)
                self._progress.start(spec, place.total, done, self._what)
        some = self._open[unit.cell].some(unit.first, unit.indices[-1])
        return () if some is None else (unit.cell, some)

    def keep(self, unit: Unit, worker: int, facts: Mapping[str, Any], found: list[Any]) -> None:  # noqa: ARG002
        """Keep columns."""
        self._waiting[unit.cell] += [one for one, _ in found]
        self._progress.advance(sum(len(one["index"]) for one, _ in found), sum(n for _, n in found))
        self.look()

    def leave(self, unit: Unit) -> None:
        """Done; a cell without units that are left is forgotten."""
        self._left[unit.cell].discard(unit.number)
        if not self._left[unit.cell]:
            self.flush()
            self._open.pop(unit.cell, None)

    def look(self) -> None:
        """Flush what has waited long enough."""
        if time.monotonic() - self._last > max(FLUSH_SECONDS, self._pause):
            self.flush()

    def waiting(self, unit: Unit) -> None:
        """Nobody else has it."""

    def flush(self) -> None:
        """Make everything durable."""
        began = time.monotonic()
        for number, some in self._waiting.items():
            if some:
                one = self._work[number]
                joined = {k: np.concatenate([part[k] for part in some]) for k in some[0]}
                one.cell.add_scores(one.metric, joined)
                some.clear()
        self._last = time.monotonic()
        # A file is written whole: where that takes long, seldom, or time would grow as n squared.
        self._pause = FLUSH_SHARE * (self._last - began)

    def close(self) -> None:
        """Also when interrupted: what is finished is kept."""
        self.flush()


def _blocks(work: Sequence[Scoring]) -> Iterator[list[range]]:
    """Every cell's outputs in blocks by index, also those that are not drawn yet: so all shards
    number them alike."""
    wanted: dict[Any, dict[str, int]] = {}
    for one in work:
        run = one.cell.path.parents[1]
        if run not in wanted:
            wanted[run] = Run(run).wanted()
        n = max(wanted[run].get(one.cell.id, 0), 1 + max(one.cell.indices(), default=0))
        size = one.batch or ROWS
        yield [range(k, min(k + size, n)) for k in range(0, n, size)]


def refuse_unscored(work: Sequence[Scoring]) -> None:
    """After a shard: say what others have not scored yet."""
    if work:
        missing = {one.cell.id: one.missing() for one in work}
        refuse_missing(work[0].cell.path.parents[1], missing, "scores")
