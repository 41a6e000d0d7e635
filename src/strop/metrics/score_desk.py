"""What the process that was called does while outputs are scored: it hands them out and writes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.engine import Engine, Unit, cut
from strop.engine.plan import refuse_missing
from strop.errors import UserError
from strop.progress import Progress
from strop.spec import MetricSpec
from strop.store import Cell, Run
from strop.store.tables import PIECES, token_ids

__all__ = ["FLUSH_SECONDS", "Outputs", "ScoreDesk", "Scoring", "refuse_unscored"]

FLUSH_SECONDS = 2.0


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
    """Outputs that are measured at a time: all, by default."""
    needs_text: bool = True

    def missing(self) -> set[int]:
        """Outputs that have no score yet."""
        known = self.cell.score(self.metric)
        return self.cell.indices() - set([] if known is None else known.index.tolist())


class _Open:
    """A cell whose outputs are in memory."""

    def __init__(self, one: Scoring) -> None:
        table = one.cell.table()
        known = one.cell.score(one.metric)
        self.index = table["index"].to_numpy()
        if len(self.index) == 0:
            raise UserError(
                "The cell has no outputs to score.",
                where=one.cell.path,
                fix="run the command that made the run again; it draws what is missing",
            )
        self.missing = ~np.isin(self.index, [] if known is None else known.index)
        if not self.missing.any():
            return
        self.ids = token_ids(table, one.cell.spec)
        self.texts = table["text"].to_pylist()
        self.pieces = table[PIECES].to_pylist() if PIECES in table.column_names else None
        if one.needs_text and any(text is None for text in self.texts):
            raise UserError(
                "The outputs have no text, only token ids.",
                where=one.cell.path,
                expected="a checkpoint with its tokenizer beside the weights (tokenizer.json)",
                fix="sample with the tokenizer in place; or score what needs no text: "
                "`evaluator` none",
            )

    def some(self, indices: Sequence[int]) -> Outputs | None:
        """Those of the indices that are there and not measured yet."""
        rows = np.flatnonzero(self.missing & np.isin(self.index, indices))
        if not len(rows):
            return None
        pieces = None if self.pieces is None else [self.pieces[i] for i in rows]
        return Outputs(self.index[rows], [self.texts[i] for i in rows], self.ids[rows], pieces)


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
        self._last = time.monotonic()
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
                done = len(place.index) - int(place.missing.sum())
                spec = self._work[unit.cell].cell.spec
                self._progress.start(spec, len(place.index), done, self._what)
        some = self._open[unit.cell].some(unit.indices)
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
        if time.monotonic() - self._last > FLUSH_SECONDS:
            self.flush()

    def waiting(self, unit: Unit) -> None:
        """Nobody else has it."""

    def flush(self) -> None:
        """Make everything durable."""
        self._last = time.monotonic()
        for number, some in self._waiting.items():
            if some:
                one = self._work[number]
                joined = {k: np.concatenate([part[k] for part in some]) for k in some[0]}
                one.cell.add_scores(one.metric, joined)
                some.clear()


def _blocks(work: Sequence[Scoring]) -> Iterator[list[range]]:
    """Every cell's outputs in blocks by index, also those that are not drawn yet: so all shards
    number them alike."""
    wanted: dict[Any, dict[str, int]] = {}
    for one in work:
        run = one.cell.path.parents[1]
        if run not in wanted:
            wanted[run] = Run(run).wanted()
        n = max(wanted[run].get(one.cell.id, 0), 1 + max(one.cell.indices(), default=0))
        size = one.batch or n
        yield [range(k, min(k + size, n)) for k in range(0, n, size)]


def refuse_unscored(work: Sequence[Scoring]) -> None:
    """After a shard: say what others have not scored yet."""
    if work:
        missing = {one.cell.id: one.missing() for one in work}
        refuse_missing(work[0].cell.path.parents[1], missing, "scores")
