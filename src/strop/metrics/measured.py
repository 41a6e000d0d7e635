"""A measured cell: its spec, every score of it with intervals, and its guard.

One type for `strop score`, the audit, every study and the report. It holds plain values, so that
cells can be compared and resampled when their files have gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.metrics.aggregates import pooled
from strop.metrics.grams import NGRAM
from strop.metrics.guard import MARKS, Guard, Verdict, run_guard
from strop.metrics.metric import ENTROPY, PERPLEXITY, Columns, Metric, leave_out_broken, metrics
from strop.metrics.rows import PoolRows
from strop.spec import CellSpec, MetricSpec, OperatingPoint
from strop.stats.interval import Interval, plain
from strop.stats.resample import Statistic, interval_of, ratio, sums_of
from strop.store import Cell, Run

__all__ = [
    "SMALL",
    "Measured",
    "Score",
    "measured_cell",
    "measured_cells",
    "perplexity_ratio",
    "score_of",
]

SMALL = 32
"""Outputs below which bootstrap intervals are too short: about 91% instead of 95% at 8."""

Value = Interval | float | None


@dataclass(frozen=True, eq=False)
class Score:
    """One metric of one cell."""

    metric: MetricSpec
    record: Metric
    index: NDArray[np.int64]
    """Which outputs have it."""
    columns: Columns
    values: Mapping[str, Value]
    """The pool's numbers by name; with an interval where outputs can be resampled."""

    def interval(self, name: str) -> Interval | None:
        """One of the numbers, if it has an interval."""
        found = self.values.get(name)
        return found if isinstance(found, Interval) else None

    @property
    def unscored(self) -> int:
        """Outputs without a single scored token: nothing in the sums."""
        return int((self.columns["tokens"] == 0).sum()) if "tokens" in self.columns else 0

    def document(self) -> Any:
        """For JSON: the number itself where there is one of the metric's name, else all by name."""
        values = plain(self.values)
        return next(iter(values.values())) if len(values) == 1 else values


@dataclass(frozen=True, eq=False)
class Measured:
    """One generator under one seed, with everything that was measured on it."""

    spec: CellSpec
    path: Path
    outputs: int
    guard: Guard
    scores: tuple[Score, ...]
    """In the order of the records; several of a metric that depends on an evaluator."""
    calls: float | None = None
    """Network calls per output."""
    seconds: float | None = None
    """Per output, as the run's machine and batches had it."""

    @property
    def id(self) -> str:
        """Of the cell."""
        return self.spec.id

    @property
    def steps(self) -> int:
        """Configured updates."""
        return self.spec.generator.sampler.steps

    @cached_property
    def point(self) -> OperatingPoint:
        """Where the sampler operates, its steps aside."""
        return OperatingPoint.of(self.spec.generator.sampler)

    def of(self, name: str) -> Score | None:
        """The only or first score of a metric."""
        return next((score for score in self.scores if score.record.name == name), None)

    @property
    def entropy(self) -> Interval | None:
        """Mean unigram entropy of an output."""
        found = self.of(ENTROPY.name)
        return None if found is None else found.interval(ENTROPY.name)

    @property
    def verdict(self) -> Verdict | None:
        """On which side of the guard it lies; None where there is none."""
        return self.guard.verdict(self.entropy)

    @property
    def mark(self) -> str:
        """What stands behind its numbers."""
        return MARKS.get(self.verdict or "", "")

    @property
    def perplexities(self) -> list[Score]:
        """One per evaluator and span policy."""
        return [score for score in self.scores if score.record is PERPLEXITY]

    def perplexity(self, wanted: MetricSpec | None = None) -> Interval:
        """Token-pooled perplexity with its interval."""
        found = self._perplexity(wanted).interval("pooled")
        if found is None:
            raise UserError(
                "No token of this cell could be scored.",
                where=self.path,
                fix="look at its outputs: strop show RUN",
            )
        return found

    def statistic(self, wanted: MetricSpec | None = None) -> Statistic:
        """Token-pooled perplexity as something that can be resampled."""
        return pooled(self._perplexity(wanted).columns)

    def _perplexity(self, wanted: MetricSpec | None) -> Score:
        for score in self.perplexities:
            if wanted is None or score.metric == wanted:
                return score
        raise UserError("The cell's scores were removed.", where=self.path)

    def row(self, wanted: MetricSpec | None = None) -> dict[str, Any]:
        """One line of a study's table: budget, operating point, perplexity, entropy, verdict."""
        level, entropy = self.perplexity(wanted), self.entropy
        return {
            "steps": self.steps,
            **self.point.fields(),
            "point": str(self.point),
            "outputs": self.outputs,
            "perplexity": level,
            "entropy": None if entropy is None else entropy.value,
            "guard": self.verdict,
            "mark": self.mark,
        }

    def document(self) -> dict[str, Any]:
        """For JSON: everything that is known of it."""
        sampler, entropy = self.spec.generator.sampler, self.entropy
        found: dict[str, Any] = {
            "cell": self.id,
            "sampler": sampler.model_dump(mode="json"),
            "seed": self.spec.seed,
            "length": self.spec.generator.length,
            "outputs": self.outputs,
            "guard": self.guard.document(entropy),
            "below_guard": self.verdict == "below",
            "ngram": NGRAM,
            "perplexity": [_perplexity_document(score) for score in self.perplexities],
        }
        for record in metrics():
            if record is not PERPLEXITY:
                score = self.of(record.name)
                key = record.name.replace("-", "_")
                found[key] = None if score is None else score.document()
        return found


def _perplexity_document(score: Score) -> dict[str, Any]:
    return {
        "metric": score.metric.id,
        "spec": score.metric.model_dump(mode="json"),
        "outputs": len(score.index),
        "unscored": score.unscored,
        "tokens": int(score.columns["tokens"].sum()),
        **score.document(),
    }


def measured_cell(cell: Cell, guard: Guard | None = None) -> Measured:
    """Read whatever was scored on a cell; the guard is the run's unless another is given.

    What follows from ids and texts alone and was not scored yet is computed here.
    """
    table = cell.table(["nfe", "seconds"])
    index = table["index"].to_numpy()
    if guard is None:
        guard = run_guard(Run(cell.path.parents[1]), cell.spec.generator)
    return Measured(
        spec=cell.spec,
        path=cell.path,
        outputs=len(index),
        guard=guard,
        scores=_scores(cell, index) if len(index) else (),
        calls=float(table["nfe"].to_numpy().mean()) if len(index) else None,
        seconds=float(table["seconds"].to_numpy().mean()) if len(index) else None,
    )


def measured_cells(run: Run, held_out: Path | None = None) -> list[Measured]:
    """Every cell of a run, under one guard: of the texts given, or the run's."""
    cells = run.cells()
    if not cells:
        return []
    guard = run_guard(run, cells[0].spec.generator, held_out)
    return [measured_cell(cell, guard) for cell in cells]


def _scores(cell: Cell, index: NDArray[np.int64]) -> tuple[Score, ...]:
    rows = PoolRows.of_cell(cell, len(index))
    found = sorted(cell.scores().values(), key=lambda table: table.metric.canonical())
    parts: list[_Part] = []
    for record in metrics():
        stored = [one for one in found if _of(one.metric, record) and len(one)]
        with leave_out_broken(record):
            if record.of_pool is not None:
                parts.append(_Part.of(record, record.spec, index, record.of_pool(rows), rows))
            elif stored:
                tables = ((one.metric, one.index, one.columns) for one in stored)
                parts += [_Part.of(record, *one, rows) for one in tables]
            elif record.measure is not None and (columns := _measured(record, rows)) is not None:
                parts.append(_Part.of(record, record.spec, index, columns, rows))
    return tuple(_finished(parts))


@dataclass(frozen=True, eq=False)
class _Part:
    """A score before its intervals are known."""

    record: Metric
    metric: MetricSpec
    index: NDArray[np.int64]
    columns: Columns
    raw: Mapping[str, Statistic | float | None]

    @classmethod
    def of(
        cls,
        record: Metric,
        metric: MetricSpec,
        index: NDArray[np.int64],
        columns: Columns,
        rows: PoolRows,
    ) -> _Part:
        raw = {one.column.name: one.of(columns, rows) for one in record.aggregates}
        return cls(record, metric, index, columns, raw)

    @property
    def statistics(self) -> dict[str, Statistic]:
        return {name: one for name, one in self.raw.items() if isinstance(one, Statistic)}

    def score(self, sums: Mapping[str, NDArray[np.float64]]) -> Score:
        values = {
            name: interval_of(one, sums[name]) if isinstance(one, Statistic) else one
            for name, one in self.raw.items()
        }
        return Score(self.metric, self.record, self.index, self.columns, values)


def _finished(parts: Sequence[_Part]) -> Iterable[Score]:
    """With intervals, all on the same resamples, which are drawn once."""
    sums = iter(sums_of([one for part in parts for one in part.statistics.values()]))
    for part in parts:
        mine = {name: next(sums) for name in part.statistics}
        with leave_out_broken(part.record):
            yield part.score(mine)


def _measured(record: Metric, rows: PoolRows) -> Columns | None:
    """A metric that nobody scored, from what is at hand; None where it needs texts."""
    parts: list[Columns] = []
    for texts, ids in rows.rows():
        if record.measure is None or (record.needs_text and None in texts):
            return None
        parts.append(record.measure([text or "" for text in texts], ids))
    return {name: np.concatenate([one[name] for one in parts]) for name in parts[0]}


def _of(spec: MetricSpec, record: Metric) -> bool:
    """Whether numbers were measured by a record: by this version of it."""
    return (spec.name, spec.version) == (record.name, record.version)


def score_of(
    record: Metric, spec: MetricSpec, index: NDArray, columns: Columns, rows: PoolRows
) -> Score:
    """The pool's numbers of one metric, with intervals where outputs can be resampled."""
    [found] = _finished([_Part.of(record, spec, index, columns, rows)])
    return found


def perplexity_ratio(
    above: Measured, below: Measured, wanted: MetricSpec | None = None, *, seed: int = 0
) -> Interval:
    """Perplexity of one cell over that of another, outputs resampled independently."""
    found = ratio(above.statistic(wanted), below.statistic(wanted), seed=seed)
    if found is None:
        raise UserError(
            "The ratio of two perplexities is not defined: one of them has no scored token.",
            where=f"{above.path}, {below.path}",
        )
    return found
