"""One number of a pool by its name, as searches, comparisons and tables ask for it.

perplexity, perplexity.macro, entropy, repetition, ...   a metric, or one of its numbers
task, geq                                                what a task's check, or a judge, said
violations, modes                                        the truth, where the law is known
calls, seconds                                           what an output costs
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from strop.errors import UserError, unknown_name
from strop.measure.metric import CALLS, METRICS, PERPLEXITY, SECONDS, Aggregate, Metric

LESS = (PERPLEXITY.name, "repetition", "pool-repetition", "violations", CALLS.name, SECONDS.name)
"""Of which less is better; of any other metric more is."""


@dataclass(frozen=True)
class Number:
    """One number of a pool."""

    name: str
    """As it is typed."""
    record: Metric
    aggregate: Aggregate

    @classmethod
    def of(cls, name: str, where: str = "`objective`") -> Number:
        """From `metric` or `metric.number`."""
        metric, _, number = str(name).partition(".")
        if metric not in METRICS:
            raise unknown_name("metric", metric, METRICS, where=where)
        record = METRICS[metric]
        numbers = {one.column.name: one for one in record.aggregates}
        chosen = number or next(iter(numbers))
        if chosen not in numbers:
            raise unknown_name(f"number of {metric!r}", chosen, numbers, where=where)
        return cls(str(name), record, numbers[chosen])

    @classmethod
    def resampled(cls, name: str, where: str = "`objective`") -> Number:
        """As `of`; a number without an interval (distinct, vendi) is refused."""
        found = cls.of(name, where)
        if not found.record.resampled:
            raise no_interval(found.name, where)
        return found

    @property
    def best(self) -> Literal["min", "max"]:
        """Which way is better, unless somebody says otherwise."""
        kept = self.aggregate is PERPLEXITY.aggregates[-1]
        return "min" if self.record.name in LESS and not kept else "max"

    @property
    def log(self) -> bool:
        """Whether values are compared by their ratio."""
        return self.record is PERPLEXITY and self.aggregate is not PERPLEXITY.aggregates[-1]

    @property
    def heading(self) -> str:
        """What tables call it."""
        return self.aggregate.column.heading


def no_interval(name: str, where: str) -> UserError:
    """Why a number cannot be compared by."""
    return UserError(
        f"{name!r} has no interval, so that nobody can be said to be worse.",
        where=where,
        got=name,
        fix="choose a number that is a mean or a ratio over outputs, such as perplexity",
    )
