"""What a metric is: one record, read by `strop score`, by summaries, studies and the report.

A record says what is stored per output (`measure`), which numbers of the pool follow from it
(`aggregates`), and what a reader is told of one output (`output`). Adding a metric is adding a
record: `strop.register(Metric(...))`, or an entry point of the group `strop.measure`.

`PoolRows` is a pool as a metric reads it: some rows at a time, as often as it takes. `Number` is
one number of a pool by its name, as searches, comparisons and tables ask for it:

perplexity, perplexity.macro, entropy, repetition, ...   a metric, or one of its numbers
task, geq                                                what a task's check, or a judge, said
violations, modes                                        the truth, where the law is known
calls, seconds                                           what an output costs
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from strop.errors import StropError, UserError, unknown_name
from strop.measure.across import (
    COMPARED,
    HeldOutPairs,
    bits_per_byte,
    kept,
    macro,
    pooled,
    share_of,
)
from strop.measure.entropy import NGRAM, SIZES, Grams, count, entropy, repetition, vendi_score
from strop.registry import Registry, one_line
from strop.spec.value import MetricSpec
from strop.stats.resample import EVERYWHERE, POSITIVE, SHARE, Span, Statistic, mean
from strop.store.tables import TOKENS, token_ids
from strop.table import Column

if TYPE_CHECKING:
    from strop.store import Cell

Columns = Mapping[str, NDArray]
"""What is stored: a number per output [n], or a vector per output [n, d]."""
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Aggregate:
    """One number of a pool."""

    column: Column
    """Its name in JSON, its heading, its digits."""
    of: Callable[[Columns, PoolRows], Statistic | float | None]
    """From what is stored, and from the outputs. A `Statistic` gets a bootstrap interval."""
    shown: bool = True
    """Whether tables show it unasked."""


@dataclass(frozen=True)
class Metric:
    """One metric."""

    name: str
    aggregates: tuple[Aggregate, ...]
    measure: Callable[[Sequence[str], Ids], Columns] | None = None
    """From some outputs' texts and ids to columns; None where a network of its own is needed."""
    output: Column | None = None
    """What is told of a single output."""
    of_output: Callable[[Columns], NDArray[np.float64]] | None = None
    """Its value for every output; by default the column of the metric's name."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the numbers depend on besides the outputs; part of the metric's identity."""
    needs_text: bool = False
    of_pool: Callable[[PoolRows], Columns] | None = None
    """In place of `measure` where an output's value depends on the others: from all of them, anew
    every time, and never stored."""
    version: str | None = None
    """Of a metric of your own: another one where it computes something else. None is built in."""
    resampled: bool = True
    """Whether its numbers are means or ratios over outputs, which have intervals."""
    family: str | None = None
    """The only family whose outputs have it."""

    @property
    def spec(self) -> MetricSpec:
        """Its identity, where no evaluator belongs to it."""
        return MetricSpec(name=self.name, settings=dict(self.settings), version=self.version)

    def values(self, columns: Columns) -> NDArray[np.float64]:
        """What is told of every output; nan where there is nothing to tell."""
        values = columns[self.name] if self.of_output is None else self.of_output(columns)
        return np.asarray(values, float)


def _per_output(columns: Columns) -> NDArray[np.float64]:
    nll, tokens = columns["nll"], columns["tokens"]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        return np.where(tokens > 0, np.exp(nll / tokens), np.nan)


def _mean_of(name: str, label: str = "", *, span: Span = EVERYWHERE, **shown: Any) -> Aggregate:
    """The mean over outputs of the column of that name."""
    return Aggregate(
        Column(name, label, **shown), lambda columns, _: mean(columns[name], span=span)
    )


def _distinct(n: int) -> Aggregate:
    # No interval: a resample repeats outputs and is less diverse by construction.
    words = f"Different {n}-grams over all {n}-grams of the pool."
    column = Column(str(n), f"distinct-{n}", digits=3, help=words)
    return Aggregate(column, lambda _, rows: rows.grams.distinct[n], shown=n == 2)


def _vendi(columns: Columns, rows: PoolRows) -> float | None:
    vectors = columns["embedding"]
    return vendi_score(vectors) if len(vectors) == len(rows) > 0 else None


def _diversity(rows: PoolRows) -> Columns:
    """Nothing where there are no held-out texts to compare with."""
    if rows.held_out is None or not len(rows):
        return {}
    return {"diversity": rows.held_out.shares(rows.first(COMPARED), len(rows))}


ENTROPY = Metric(
    "entropy",
    (_mean_of("entropy", span=POSITIVE, help="Mean unigram entropy of an output, in nats."),),
    measure=lambda _, ids: {"entropy": entropy(ids)},
    output=Column("entropy", help="Unigram entropy of the output, in nats.", digits=3),
)
_SHARE: dict[str, Any] = {"span": SHARE, "digits": 3, "percent": True}
_REPEATED = f"Share of tokens in {NGRAM}-grams that "
REPETITION = Metric(
    "repetition",
    (
        _mean_of(
            "repetition",
            f"repeated {NGRAM}-grams",
            help=f"{_REPEATED}their output repeats.",
            **_SHARE,
        ),
    ),
    measure=lambda _, ids: {"repetition": repetition(ids)},
    output=Column("repetition", "repeated", help=f"{_REPEATED}the output repeats.", digits=2),
    settings={"ngram": NGRAM},
)
# An interval over outputs given the pool: it does not know how a larger pool would look.
_ACROSS = _mean_of(
    "pool_repetition", "across pool", help=f"{_REPEATED}another output has too.", **_SHARE
)
SHARED = Metric(
    "pool-repetition", (_ACROSS,), of_pool=lambda rows: {"pool_repetition": rows.grams.shared}
)
_DIVERSE = "Diversity across outputs, as a share of that of held-out texts."
DIVERSITY = Metric(
    "diversity",
    (
        Aggregate(
            Column("diversity", help=_DIVERSE, digits=3),
            lambda columns, _: share_of(columns["diversity"]) if "diversity" in columns else None,
        ),
    ),
    of_pool=_diversity,
)
DISTINCT = Metric("distinct", tuple(map(_distinct, SIZES)), of_pool=lambda _: {}, resampled=False)
_POOLED = Column("pooled", "perplexity", help="exp(nats over tokens), all outputs together.")
_MACRO = Column("macro", "macro perplexity", help="exp of the mean over outputs of their mean.")
_READ = Column("kept", "bytes read", help="The share of the outputs' bytes that counts.")
PERPLEXITY = Metric(
    "perplexity",
    (
        Aggregate(_POOLED, lambda columns, _: pooled(columns)),
        Aggregate(_MACRO, lambda columns, _: macro(columns), shown=False),
        Aggregate(
            Column("bits_per_byte", "bits per byte"),
            lambda columns, _: bits_per_byte(columns),
            shown=False,
        ),
        Aggregate(_READ, lambda columns, _: kept(columns), shown=False),
    ),
    output=Column("perplexity", help="Perplexity of the output.", digits=3),
    of_output=_per_output,
    needs_text=True,
)
_WORTH = Column(
    "vendi", "Vendi", help="How many different outputs the pool is worth, by embeddings."
)
VENDI = Metric("vendi", (Aggregate(_WORTH, _vendi),), needs_text=True, resampled=False)
PASSED, OUTCOME = "passed_", "outcome_"
"""How a task's columns begin; the filter's name follows."""
WRITTEN, ENDED = "written", "ended"
"""Its other columns: tokens up to the end of the response, its end token included, and whether it
ends at all."""


def _accuracy(columns: Columns) -> NDArray[np.float64]:
    """By the task's first filter, which is the one to compare by."""
    return np.asarray(next(v for k, v in columns.items() if k.startswith(PASSED)), float)


TASK = Metric(
    "task",
    (
        Aggregate(
            Column(
                "accuracy", help="Share of the responses that are right.", digits=3, percent=True
            ),
            lambda columns, _: mean(_accuracy(columns), span=SHARE, counted=True),
        ),
    ),
    output=Column("right", help="Whether the response is right.", digits=1),
    of_output=_accuracy,
)
_QUALITY = "Mean quality of an output by a judge, 0 to 10."
GEQ = Metric(
    "geq", (_mean_of("geq", "GEQ", span=(0.0, 10.0), help=_QUALITY, digits=3),), needs_text=True
)


def _mode_entropy(columns: Columns, rows: PoolRows) -> float | None:
    """With Miller and Madow's correction; none where not all outputs were read."""
    if not len(columns["mode"]) == len(rows) > 0:
        return None
    counts = np.unique(columns["mode"], return_counts=True)[1]
    share = counts / counts.sum()
    return float(-(share * np.log(share)).sum() + (len(share) - 1) / (2 * counts.sum()))


def _effective(columns: Columns, rows: PoolRows) -> float | None:
    entropy = _mode_entropy(columns, rows)
    return None if entropy is None else float(np.exp(entropy))


def _overlap(columns: Columns, rows: PoolRows) -> float | None:
    """Sum over modes of min(true probability, share of the outputs that are valid and of it)."""
    if not len(columns["mode"]) == len(rows) > 0:
        return None
    modes, first = np.unique(columns["mode"], return_index=True)
    valid = columns["mode"][columns["valid"] == 1]
    share = (valid[:, None] == modes).sum(0) / len(rows)
    return float(np.minimum(columns["probability"][first], share).sum())


def _coverage(columns: Columns, _: PoolRows) -> float:
    first = np.unique(columns["mode"], return_index=True)[1]
    return float(columns["probability"][first].sum())


_SURPRISE = "-log P minus the entropy, in nats."
VIOLATIONS = Metric(
    "violations",
    (
        _mean_of(
            "violations", span=POSITIVE, help="Words of an output that must be wrong.", digits=3
        ),
        _mean_of("excess", "excess surprise", help=_SURPRISE, digits=3),
    ),
    output=Column("violations", help="Words that must be wrong.", digits=2),
    family="language",
)
_MODES = Column("effective", "effective modes", help="exp of the mode entropy.", digits=3)
_SPREAD = Column("entropy", "mode entropy", help="In nats, Miller-Madow.", digits=3)
_COVERED = Column("coverage", "modes covered", help="True probability of the modes seen.")
_VALID = "Sum over modes of min(true probability, share of right outputs of it)."
MODES = Metric(
    "modes",
    (
        Aggregate(_MODES, _effective),
        Aggregate(_SPREAD, _mode_entropy, shown=False),
        Aggregate(_COVERED, _coverage, shown=False),
        Aggregate(Column("overlap", "valid overlap", help=_VALID, digits=3), _overlap),
    ),
    resampled=False,
    family="language",
)


def _cost(name: str, column: str, label: str, *, exact: bool) -> Metric:
    """What outputs cost, as the run wrote it down beside them."""
    # Calls are counted: equal counts are a sampler's way, at however few outputs.
    aggregate = Aggregate(
        Column(name, label, help=f"{label.capitalize()}.", digits=3),
        lambda columns, _: mean(columns[name], exact=exact, span=POSITIVE),
        shown=False,
    )
    return Metric(name, (aggregate,), of_pool=lambda rows: {name: rows.beside[column]})


CALLS = _cost("calls", "nfe", "network calls per output", exact=True)
SECONDS = _cost("seconds", "seconds", "seconds per output", exact=False)

METRICS: Registry[Metric] = Registry(
    "metric",
    Metric,
    "strop.metrics",
    lambda: (
        PERPLEXITY,
        ENTROPY,
        REPETITION,
        SHARED,
        DIVERSITY,
        DISTINCT,
        VENDI,
        TASK,
        GEQ,
        VIOLATIONS,
        MODES,
        CALLS,
        SECONDS,
    ),
)
"""By name: those above, a script's, those of other packages."""


def metrics() -> tuple[Metric, ...]:
    """All that are known, in the order in which tables show them."""
    return tuple(METRICS.values())


def joined(parts: Sequence[Columns]) -> dict[str, NDArray]:
    """Columns of some outputs after the other; there must be some."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@contextmanager
def leave_out_broken(record: Metric) -> Iterator[None]:
    """Do without a metric of another package that fails, and say so; others fail as they do."""
    try:
        yield
    except StropError:
        raise
    except Exception as error:
        if METRICS.plugins().get(record.name) is not record:
            raise
        METRICS.leave_out(record.name, one_line(error))
        reason = f"the metric {record.name!r} is left out: {one_line(error)}"
        warnings.warn(reason, UserWarning, stacklevel=3)


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
        cls,
        ids: NDArray[np.integer],
        texts: Sequence[str | None] = (),
        beside: Mapping[str, NDArray] | None = None,
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

    def first(self, most: int) -> NDArray[np.int64]:
        """Ids of the first outputs; of others nothing is read."""
        tables: list[NDArray[np.int64]] = []
        for ids in self.ids():
            tables.append(ids)
            if sum(map(len, tables)) >= most:
                break
        return np.concatenate(tables)[:most]

    @cached_property
    def grams(self) -> Grams:
        """Its n-grams; counted once for all who ask."""
        return count(self.ids)


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
        numbers = {aggregate.column.name: aggregate for aggregate in record.aggregates}
        chosen = number or next(iter(numbers))
        if chosen not in numbers:
            raise unknown_name(f"number of {metric!r}", chosen, numbers, where=where)
        return cls(str(name), record, numbers[chosen])

    @classmethod
    def resampled(cls, name: str, where: str = "`objective`") -> Number:
        """As `of`; a number without an interval (distinct, vendi) is refused."""
        number = cls.of(name, where)
        if not number.record.resampled:
            raise no_interval(number.name, where)
        return number

    @property
    def best(self) -> Literal["min", "max"]:
        """Which way is better, unless somebody says otherwise."""
        is_kept = self.aggregate is PERPLEXITY.aggregates[-1]
        return "min" if self.record.name in LESS and not is_kept else "max"

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
        f"{name!r} has no interval, so it cannot show that one setting is worse than another.",
        where=where,
        got=name,
        fix="choose a number that is a mean or a ratio over outputs, such as perplexity",
    )
