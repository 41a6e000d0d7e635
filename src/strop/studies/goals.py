"""What a search looks at: a metric's number by name, read from a cell and scored where it is not.

    perplexity, perplexity.macro, entropy, repetition, ...   a metric, or one of its numbers
    task, geq                                                see `strop.studies.scorers`
    calls, seconds                                           what an output costs

A number without an interval (distinct, vendi) cannot be raced for, and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from strop.engine import LOCAL, Engine
from strop.errors import UserError, unknown_name
from strop.metrics.metric import DISTINCT, METRICS, PERPLEXITY, VENDI, Aggregate, Metric
from strop.stats.resample import Statistic, mean
from strop.studies.scorers import GEQ
from strop.tuning.race import Limit

if TYPE_CHECKING:
    from strop.metrics.causal import Evaluator
    from strop.progress import Progress
    from strop.spec import MetricSpec, SpanPolicy
    from strop.store import Cell

__all__ = ["COSTS", "Goal", "Reader", "limit"]

COSTS = {"calls": "nfe", "seconds": "seconds"}
"""What an output costs, by name and by the column that holds it."""
LESS = ("perplexity", "repetition", "pool-repetition", *COSTS)
"""Of which less is better; of any other metric more is."""
LIMIT = re.compile(r"\s*([a-z][a-z0-9._-]*)\s*(>=|<=)\s*(\S+)\s*")


@dataclass(frozen=True)
class Goal:
    """One number of a pool."""

    name: str
    """As it is typed."""
    record: Metric | None
    """None: a cost."""
    aggregate: Aggregate | None

    @classmethod
    def of(cls, name: str, where: str = "`objective`") -> Goal:
        """From `metric`, `metric.number` or a cost."""
        metric, _, number = str(name).partition(".")
        if metric in COSTS and not number:
            return cls(metric, None, None)
        known = {**dict(METRICS.items()), GEQ.name: GEQ}
        if metric not in known:
            raise unknown_name("metric", metric, [*known, *COSTS], where=where)
        record = known[metric]
        if record in (DISTINCT, VENDI):
            raise _no_interval(str(name), where)
        numbers = {one.column.name: one for one in record.aggregates}
        chosen = number or next(iter(numbers))
        if chosen not in numbers:
            raise unknown_name(f"number of {metric!r}", chosen, numbers, where=where)
        return cls(str(name), record, numbers[chosen])

    @property
    def best(self) -> Literal["min", "max"]:
        """Which way is better, unless somebody says otherwise."""
        kept = self.aggregate is PERPLEXITY.aggregates[-1]
        return "min" if self.name.partition(".")[0] in LESS and not kept else "max"

    @property
    def log(self) -> bool:
        """Whether values are compared by their ratio."""
        return self.record is PERPLEXITY and self.aggregate is not PERPLEXITY.aggregates[-1]

    @property
    def heading(self) -> str:
        """What tables call it."""
        return self.name if self.aggregate is None else self.aggregate.column.heading


def _no_interval(name: str, where: str) -> UserError:
    return UserError(
        f"{name!r} has no interval, so that nobody can be said to be worse.",
        where=where,
        got=name,
        fix="choose a number that is a mean or a ratio over outputs, such as perplexity",
    )


def limit(text: str) -> tuple[Goal, Limit]:
    """From `metric>=value` or `metric<=value`."""
    found = LIMIT.fullmatch(str(text))
    try:
        value = float(found[3]) if found else float("nan")
    except ValueError:
        value = float("nan")
    if found is None or not np.isfinite(value):
        raise UserError(
            "A constraint cannot be read.",
            where="`constraint`",
            got=repr(text),
            expected="metric>=value or metric<=value, such as repetition<=0.2",
        )
    goal = Goal.of(found[1], "`constraint`")
    side: Any = found[2]
    return goal, Limit(goal.name, side, value)


Scorer = Callable[["Cell"], "MetricSpec"]
"""Scores what a cell lacks of one metric, and says which it is."""


@dataclass(frozen=True)
class Reader:
    """How numbers are read from cells: who scores, and which tokens count."""

    evaluator: Callable[[], Evaluator] | None
    """Loaded when it is needed first."""
    span: SpanPolicy = "first-document"
    progress: Progress | None = None
    scorers: Mapping[str, Scorer] = field(default_factory=dict)
    """By metric, for those that need a judge or a task; they come before anything else."""
    engine: Engine = LOCAL
    """Where outputs are drawn and perplexities measured."""

    def statistic(self, goal: Goal, cell: Cell, n: int, start: int = 0) -> Statistic:
        """A number of the outputs from `start` up to n, as something that can be resampled."""
        from strop.metrics.rows import PoolRows
        from strop.store.tables import token_ids

        table = cell.table().slice(start, n - start)
        if goal.record is None or goal.aggregate is None:
            # Calls are counted: equal counts are a sampler's way, at however few outputs.
            return mean(table[COSTS[goal.name]].to_numpy(), exact=goal.name == "calls")
        record = goal.record
        ids, texts = token_ids(table, cell.spec), table["text"].to_pylist()
        rows = PoolRows.of(ids, texts)
        if record.of_pool is not None:
            columns = record.of_pool(rows)
        else:
            columns = self._columns(record, cell, start, n)
        found = goal.aggregate.of(columns, rows)
        if not isinstance(found, Statistic):
            raise _no_interval(goal.name, "`objective`")
        return found

    def _columns(self, record: Metric, cell: Cell, start: int, n: int) -> dict[str, np.ndarray]:
        known = cell.score(self._score(record, cell))
        index = np.arange(0) if known is None else known.index
        mine = np.flatnonzero((index >= start) & (index < n))
        if known is None or len(mine) < n - start:
            raise UserError(
                f"The outputs have no {record.name} that could be searched by.",
                where=cell.path,
                got=f"{len(mine)} of {n - start} outputs",
                fix="score it on the way: name its evaluator, judge or task",
            )
        return {name: values[mine] for name, values in known.columns.items()}

    def _score(self, record: Metric, cell: Cell) -> MetricSpec:
        from strop.metrics.score import score_cell

        if record.name in self.scorers:
            return self.scorers[record.name](cell)
        if record is PERPLEXITY:
            from strop.metrics.perplexity import score_perplexity

            if self.evaluator is None:
                raise UserError("Perplexity needs an evaluator.", where="`evaluator`")
            return score_perplexity(
                cell, self.evaluator(), self.span, progress=self.progress, engine=self.engine
            )
        if record.measure is None:
            stored = [
                one.metric for one in cell.scores().values() if one.metric.name == record.name
            ]
            return stored[0] if stored else record.spec
        score_cell(cell, record.spec, record.measure, needs_text=record.needs_text)
        return record.spec
