"""Measured cells side by side: a `Frame`, whose rows are cells and whose values are intervals.

One type for `strop score`, the audit, searches, comparisons, every study and the report. A row
keeps what every output scored, so that ratios and differences of rows are resampled together, also
when their files have gone. Intervals are computed when somebody asks for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.measure.across import HeldOutPairs, pooled
from strop.measure.entropy import NGRAM
from strop.measure.guard import (
    CUTS,
    MARKS,
    NONE_CUT,
    CutOutputs,
    Guard,
    Verdict,
    document_entropy,
    documents,
    guard_of,
)
from strop.measure.metric import (
    CALLS,
    DIVERSITY,
    ENTROPY,
    PERPLEXITY,
    SECONDS,
    Columns,
    Metric,
    Number,
    PoolRows,
    joined,
    leave_out_broken,
    metrics,
    no_interval,
)
from strop.spec.generator import CellSpec, OperatingPoint
from strop.spec.value import MetricSpec
from strop.stats.interval import LEVEL, Interval
from strop.stats.resample import (
    Statistic,
    clustered,
    counted_share,
    interval_of,
    jackknife,
    ratio,
    sums_of,
)
from strop.store import Cell, Run, ScoreTable
from strop.store.tables import token_ids
from strop.table import plain

SMALL = 32
"""Outputs below which bootstrap intervals are too short: about 91% instead of 95% at 8."""

BY_PROMPT = "jackknife by prompt"
"""How intervals are made where several outputs answer one prompt."""

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
        value = self.values.get(name)
        return value if isinstance(value, Interval) else None

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
    given: Guard | None
    """None: that of the run."""
    parts: tuple[PartialScore, ...]
    """In the order of the records; several of a metric that depends on an evaluator."""
    cut: CutOutputs = NONE_CUT
    """Outputs whose first document alone was scored."""

    @cached_property
    def guard(self) -> Guard:
        """What its entropy is held against."""
        if self.given is not None:
            return self.given
        return guard_of(self.spec.generator, Run(self.path.parents[1]))

    @cached_property
    def scores(self) -> tuple[Score, ...]:
        """With intervals, all on the same resamples."""
        return tuple(_with_intervals(self.parts))

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
        return self._mean(ENTROPY)

    @property
    def diversity(self) -> Interval | None:
        """Across outputs, as a share of that of the guard's held-out texts."""
        return self._mean(DIVERSITY)

    def _mean(self, record: Metric) -> Interval | None:
        score = self.of(record.name)
        return None if score is None else score.interval(record.name)

    @property
    def verdict(self) -> Verdict | None:
        """On which side of the guard it lies, by all that decides; None where there is none."""
        return self.guard.both(self.entropy, self.diversity)

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
        scores = (score for score in self.perplexities if wanted in (None, score.metric))
        if (score := next(scores, None)) is None:
            raise UserError("The cell's scores were removed.", where=self.path)
        interval = score.interval("pooled")
        if interval is None:
            raise UserError(
                "No token of this cell could be scored.",
                where=self.path,
                fix="look at its outputs: strop show RUN",
            )
        return interval

    def part(self, record: Metric, wanted: MetricSpec | None = None) -> PartialScore | None:
        """What was measured by a record; of several evaluators the first, unless one is named."""
        return next(
            (p for p in self.parts if p.record is record and wanted in (None, p.metric)), None
        )

    def value(self, number: Number, wanted: MetricSpec | None = None) -> Interval | None:
        """One of its numbers; None where it was not measured or has no interval."""
        of_record = (score for score in self.scores if score.record is number.record)
        score = next((score for score in of_record if wanted in (None, score.metric)), None)
        return None if score is None else score.interval(number.aggregate.column.name)

    def statistic(self, number: Number, wanted: MetricSpec | None = None) -> Statistic:
        """One of its numbers as something that can be resampled: of every output, or refused."""
        part = self.part(number.record, wanted)
        outputs = 0 if part is None else len(part.index)
        if part is None or outputs < self.outputs:
            raise UserError(
                f"Not every output has a score for {number.record.name}.",
                where=self.path,
                got=f"{outputs} of {self.outputs} outputs",
                fix="score it on the way: name its evaluator, judge or task",
            )
        statistic = part.raw[number.aggregate.column.name]
        if not isinstance(statistic, Statistic):
            raise no_interval(number.name, "`objective`")
        return statistic

    @property
    def by_prompt(self) -> bool:
        """Whether intervals are over prompts: there are several, and one has several answers."""
        prompts = self.spec.generator.prompts
        return prompts is not None and 1 < prompts.count < self.outputs

    @property
    def calls(self) -> float | None:
        """Network calls per output."""
        return self._cost(CALLS)

    @property
    def seconds(self) -> float | None:
        """Per output, as the run's machine and batches had it."""
        return self._cost(SECONDS)

    def _cost(self, record: Metric) -> float | None:
        part = self.part(record)
        return None if part is None else float(part.columns[record.name].mean())

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
            "diversity": self.diversity,
            "guard": self.verdict,
            "mark": self.mark,
        }

    def document(self) -> dict[str, Any]:
        """For JSON: everything that is known of it."""
        sampler, entropy = self.spec.generator.sampler, self.entropy
        numbers: dict[str, Any] = {
            "cell": self.id,
            "sampler": sampler.model_dump(mode="json"),
            "seed": self.spec.seed,
            "length": self.spec.generator.length,
            "outputs": self.outputs,
            "guard": self.guard.document(entropy, self.diversity) | self._cut_document(),
            "below_guard": self.verdict == "below",
            "ngram": NGRAM,
            "perplexity": [_perplexity_document(score) for score in self.perplexities],
        }
        for record in metrics():
            of_family = record.family in (None, self.spec.generator.checkpoint.family)
            if record is not PERPLEXITY and of_family:
                score = self.of(record.name)
                key = record.name.replace("-", "_")
                numbers[key] = None if score is None else score.document()
        return numbers

    def _cut_document(self) -> dict[str, Any]:
        """How many outputs the span policy cuts, where it does."""
        return {"cut": asdict(self.cut)} if self.cut != NONE_CUT else {}


def _perplexity_document(score: Score) -> dict[str, Any]:
    return {
        "metric": score.metric.id,
        "spec": score.metric.model_dump(mode="json"),
        "outputs": len(score.index),
        "unscored": score.unscored,
        "tokens": int(score.columns["tokens"].sum()),
        **score.document(),
    }


@dataclass(frozen=True, eq=False)
class Frame(Sequence[Measured]):
    """Rows over cells."""

    rows: tuple[Measured, ...]
    asked: Mapping[str, Sequence[MetricSpec]] = field(default_factory=dict)
    """By record, the metrics that were scored for it; several where evaluators are."""

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, position: int) -> Measured: ...

    @overload
    def __getitem__(self, position: slice) -> Frame: ...

    def __getitem__(self, position: int | slice) -> Measured | Frame:
        return (
            Frame(self.rows[position], self.asked)
            if isinstance(position, slice)
            else self.rows[position]
        )

    def at(self, steps: int, point: OperatingPoint) -> Measured:
        """The row of one sampler at one budget."""
        return next(row for row in self.rows if (row.steps, row.point) == (steps, point))


def cut_notes(cells: Sequence[Measured]) -> Iterator[str]:
    """On which tokens entropy was read, where perplexity was read on some of them."""
    guarded = [cell for cell in cells if cell.guard.threshold is not None]
    held, uncut = sum(cell.cut.held for cell in guarded), sum(cell.cut.whole for cell in guarded)
    of = f"of {sum(cell.outputs for cell in guarded)} outputs"
    if held:
        yield (
            f"{held} {of} are read up to the end of their first document, for entropy and "
            "diversity as for perplexity; entropy is held against the guard of each one's length"
        )
    if uncut:
        yield (
            f"{uncut} {of} are scored up to the end of their first document, and their entropy is "
            "that of all their tokens: no guard of shorter texts is known (`held_out` makes one)"
        )


def read_run(run: Run, held_out: Path | None = None) -> Frame:
    """Whatever was scored on the cells of a run, under one guard: of the texts given, or its own.

    What follows from ids and texts alone and was not scored yet is computed here.
    """
    cells = run.cells()
    if not cells:
        return Frame(())
    guard = guard_of(cells[0].spec.generator, run, held_out=held_out)
    return Frame(tuple(read_cell(cell, guard) for cell in cells))


def read_cell(
    cell: Cell,
    guard: Guard | None = None,
    wanted: Mapping[str, Sequence[MetricSpec]] | None = None,
    outputs: tuple[int, int] | None = None,
) -> Measured:
    """One row: all that is known of a cell, or of some of its outputs the metrics that are wanted.

    `wanted` has, by record, the metrics to read; a record without any takes what is stored. The
    guard is the run's unless another is given.
    """
    if outputs is None:
        table = cell.table(["nfe", "seconds"])
        rows = PoolRows.of_cell(cell, _columns_of(table))
    else:
        table = cell.table().slice(outputs[0], outputs[1] - outputs[0])
        ids, texts = token_ids(table, cell.spec), table["text"].to_pylist()
        rows = PoolRows.of(ids, texts, _columns_of(table))
        if len(table) < outputs[1] - outputs[0]:
            raise UserError(
                "The cell has fewer outputs than are to be measured.",
                where=cell.path,
                got=f"{len(table)} of {outputs[1] - outputs[0]} outputs",
                fix="run the command that made it again; it draws what is missing",
            )
    rows.held_out = _pairs(cell, guard, wanted)
    index = table["index"].to_numpy()
    parts = _parts(cell, index, rows, wanted) if len(index) else []
    cut = NONE_CUT
    if cell.spec.generator.prompts is None and (marked := _is_cut(parts, index)).any():
        guard = guard or guard_of(cell.spec.generator, Run(cell.path.parents[1]))
        parts, cut = _on_documents(parts, marked, rows, guard)
    return Measured(cell.spec, cell.path, len(index), guard, tuple(parts), cut)


def _pairs(
    cell: Cell, guard: Guard | None, wanted: Mapping[str, Sequence[MetricSpec]] | None
) -> HeldOutPairs | None:
    """What diversity is compared with, where it is asked for."""
    if wanted is not None and DIVERSITY.name not in wanted:
        return None
    generator = cell.spec.generator
    if generator.prompts is not None:
        return None
    return (guard or guard_of(generator, Run(cell.path.parents[1]))).pairs


def _columns_of(table: Any) -> dict[str, NDArray]:
    return {name: table[name].to_numpy() for name in ("nfe", "seconds")}


def _parts(
    cell: Cell,
    index: NDArray[np.int64],
    rows: PoolRows,
    wanted: Mapping[str, Sequence[MetricSpec]] | None,
) -> list[PartialScore]:
    stored_tables = sorted(cell.scores().values(), key=lambda table: table.metric.canonical())
    parts: list[PartialScore] = []
    prompts = cell.spec.generator.prompts
    count = None if prompts is None else prompts.count
    for record in metrics():
        if wanted is not None and record.name not in wanted:
            continue
        named = () if wanted is None else wanted[record.name]
        stored = [
            table
            for table in stored_tables
            if len(table)
            and (table.metric in named if named else _is_of_record(table.metric, record))
        ]
        with leave_out_broken(record):
            if record.of_pool is not None:
                columns = record.of_pool(rows)
                parts.append(PartialScore.of(record, record.spec, index, columns, rows, count))
            elif stored:
                tables = (_common(common, index) for common in stored)
                parts += [
                    PartialScore.of(record, *common, rows, count)
                    for common in tables
                    if len(common[1])
                ]
            elif record.measure is not None and (columns := _measure_now(record, rows)) is not None:
                parts.append(PartialScore.of(record, record.spec, index, columns, rows, count))
    return parts


def _is_cut(parts: Sequence[PartialScore], index: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which outputs were scored on their first document alone."""
    cut = np.zeros(len(index), bool)
    for part in parts:
        if part.record is PERPLEXITY and part.metric.span == CUTS:
            less = part.columns["kept_bytes"] < part.columns["source_bytes"]
            cut |= np.isin(index, part.index[less])
    return cut


def _on_documents(
    parts: Sequence[PartialScore], cut: NDArray[np.bool_], rows: PoolRows, guard: Guard
) -> tuple[list[PartialScore], CutOutputs]:
    """With entropy and diversity of the tokens that perplexity is read on."""
    changed, counts = list(parts), NONE_CUT
    for position, part in enumerate(parts):
        columns = part.columns
        if part.record is ENTROPY and len(part.index) == len(cut):
            values, counts = document_entropy(columns[ENTROPY.name], cut, rows, guard)
            columns = {**columns, ENTROPY.name: values}
        elif (
            part.record is DIVERSITY and rows.held_out and (ids := documents(cut, rows)) is not None
        ):
            columns = {DIVERSITY.name: rows.held_out.shares(ids, len(rows))}
        if columns is not part.columns:
            changed[position] = PartialScore.of(part.record, part.metric, part.index, columns, rows)
    return changed, counts


def _common(
    stored: ScoreTable, index: NDArray[np.int64]
) -> tuple[MetricSpec, NDArray[np.int64], Columns]:
    """The stored scores of some outputs."""
    chosen = np.isin(stored.index, index)
    columns = {name: values[chosen] for name, values in stored.columns.items()}
    return stored.metric, stored.index[chosen], columns


@dataclass(frozen=True, eq=False)
class PartialScore:
    """A metric of some outputs before its intervals are known."""

    record: Metric
    metric: MetricSpec
    index: NDArray[np.int64]
    """Which outputs have it."""
    columns: Columns
    raw: Mapping[str, Statistic | float | None]
    """The pool's numbers by name; with a row per prompt where `by_prompt`."""
    by_prompt: bool = False
    """Whether several outputs answer one prompt, of several prompts: they are not independent."""

    @classmethod
    def of(
        cls,
        record: Metric,
        metric: MetricSpec,
        index: NDArray[np.int64],
        columns: Columns,
        rows: PoolRows,
        prompts: int | None = None,
    ) -> PartialScore:
        """With the pool's numbers, which follow from the columns and the outputs.

        Output i answers prompt i mod `prompts`.
        """
        raw = {
            aggregate.column.name: aggregate.of(columns, rows) for aggregate in record.aggregates
        }
        answered = index % prompts if prompts else index
        by_prompt = prompts is not None and 1 < len(np.unique(answered)) < len(index)
        if by_prompt:
            raw = {
                name: clustered(value, answered) if isinstance(value, Statistic) else value
                for name, value in raw.items()
            }
        return cls(record, metric, index, columns, raw, by_prompt)

    @property
    def resampled(self) -> dict[str, Statistic]:
        """Those whose outputs are drawn with replacement: of few prompts that is too narrow."""
        statistics = {
            name: statistic
            for name, statistic in self.raw.items()
            if isinstance(statistic, Statistic)
        }
        statistics = {
            name: statistic for name, statistic in statistics.items() if not statistic.left_out
        }
        return {} if self.by_prompt else statistics

    def score(self, sums: Mapping[str, NDArray[np.float64]]) -> Score:
        """With intervals, from sums over resamples; over prompts, with Student's t."""
        values: dict[str, Value] = {}
        for aggregate in self.record.aggregates:
            name = aggregate.column.name
            whole_pool = self.raw[name]
            if not isinstance(whole_pool, Statistic):
                values[name] = whole_pool
            elif whole_pool.counted and len(whole_pool.columns):
                values[name] = counted_share(whole_pool)
            elif whole_pool.left_out:
                values[name] = jackknife(whole_pool) if np.isfinite(whole_pool.value) else None
            elif self.by_prompt:
                number = Number(self.record.name, self.record, aggregate)
                values[name] = _over_prompts(whole_pool, log=number.log)
            else:
                values[name] = interval_of(whole_pool, sums[name])
        return Score(self.metric, self.record, self.index, self.columns, values)


def _over_prompts(statistic: Statistic, *, log: bool) -> Interval | None:
    """Student's t with a degree of freedom less than there are prompts; the rows are prompts."""
    if not np.isfinite(statistic.value):
        return None
    interval = jackknife(statistic, log=log)
    return replace(interval.exp() if log else interval, value=statistic.value, how=BY_PROMPT)


def _with_intervals(parts: Sequence[PartialScore]) -> Iterable[Score]:
    """With intervals, all on the same resamples, which are drawn once."""
    sums = iter(sums_of([statistic for part in parts for statistic in part.resampled.values()]))
    for part in parts:
        sums_of_part = {name: next(sums) for name in part.resampled}
        with leave_out_broken(part.record):
            yield part.score(sums_of_part)


def _measure_now(record: Metric, rows: PoolRows) -> Columns | None:
    """A metric that nobody scored, from what is at hand; None where it needs texts."""
    parts: list[Columns] = []
    for texts, ids in rows.rows():
        if record.measure is None or (record.needs_text and None in texts):
            return None
        parts.append(record.measure([text or "" for text in texts], ids))
    return joined(parts)


def _is_of_record(spec: MetricSpec, record: Metric) -> bool:
    """Whether numbers were measured by a record: by this version of it."""
    return (spec.name, spec.version) == (record.name, record.version)


def score_of(
    record: Metric, spec: MetricSpec, index: NDArray, columns: Columns, rows: PoolRows
) -> Score:
    """The pool's numbers of one metric, with intervals where outputs can be resampled."""
    [score] = _with_intervals([PartialScore.of(record, spec, index, columns, rows)])
    return score


def perplexity_ratio(
    above: Measured,
    below: Measured,
    wanted: MetricSpec | None = None,
    *,
    seed: int = 0,
    level: float = LEVEL,
) -> Interval:
    """Perplexity of one cell over that of another.

    Of outputs that answer the same prompts it is paired by prompt, with Student's t over prompts;
    others are resampled independently.
    """
    parts = [row.part(PERPLEXITY, wanted) for row in (above, below)]
    pair = [part for part in parts if part is not None]
    if len(pair) < 2:
        raise UserError("The cell's scores were removed.", where=f"{above.path}, {below.path}")
    prompts = above.spec.generator.prompts
    if prompts is not None and prompts.count > 1 and prompts == below.spec.generator.prompts:
        quotient = ratio_by_prompt(pair[0], pair[1], prompts.count, level)
    else:
        quotient = ratio(pooled(pair[0].columns), pooled(pair[1].columns), seed=seed, level=level)
    if quotient is None:
        raise UserError(
            "The ratio of two perplexities is not defined: one of them has no scored token.",
            where=f"{above.path}, {below.path}",
        )
    return quotient


def ratio_by_prompt(
    above: PartialScore, below: PartialScore, prompts: int, level: float = LEVEL
) -> Interval | None:
    """The ratio of two perplexities over the prompts that both answer, prompt by prompt."""
    answered = [part.index % prompts for part in (above, below)]
    common = np.intersect1d(answered[0], answered[1])
    rows = []
    for part, prompt in zip((above, below), answered, strict=True):
        order = np.argsort(prompt, kind="stable")
        order = order[np.isin(prompt[order], common)]
        columns = {name: values[order] for name, values in part.columns.items()}
        rows.append(clustered(pooled(columns), prompt[order]))
    log_ratio = jackknife(rows[0], level, rows[1], log=True)
    return replace(log_ratio.exp(), how=BY_PROMPT) if np.isfinite(log_ratio.value) else None
