"""Intervals by resampling outputs: of any function of sums over outputs, and of ratios of two.

A resample of n outputs with replacement is a vector of n counts, and a sum over it is their
product with the column. So 10,000 replicates are a matrix product. The counts depend on n and the
seed alone: every statistic of a cell shares them, and so do cells of equal size.

What belongs together (the answers to one problem, the rows of one document) is drawn together:
`clustered` makes a statistic whose rows are whole clusters.

The Bayesian bootstrap (Rubin 1981) draws weights, flat Dirichlet over the units. Where the
bootstrap counts how often a unit is drawn, this gives every unit a weight; no unit is ever left
out.

`crossed` is for readings where units are read several times, each time in new groups:

    value of unit i in round r = mean + unit i + group g(i, r) + rest

A group shares what its reader thought at that moment, so its values are not independent; and a unit
is the same in every round, so rounds are not independent either. Within a round both are told
apart: means of groups vary by groups and by what units leave in them, values inside a group by
units and the rest. Between rounds only the units are shared. From these three mean squares follow
the three variances, and from them that of the mean, whatever is missing. Limits are Student's, with
the degrees of freedom of Satterthwaite's approximation.

`jackknife` leaves out each output in turn and takes Student's t. Its intervals hold at eight
outputs already, where resampling gives intervals that are too short.

The paired bootstrap draws whole sequences anew, the same ones for every column.

Shares of right answers have Wilson's interval, the exact sign test and the unbiased pass@k. A
bootstrap of a share is too short near 0 and 1 and a point at them; with 256 answers of which 98%
are right, what it calls 95% holds in 88%. Wilson's interval inverts the test of the share instead.

It serves every mean of values between two bounds, too: none of them spreads more than values that
are all at a bound. That is wide, but it holds where values are so skewed that their own spread says
little of how far the mean may move.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.rng import derive_seed
from strop.stats.interval import LEVEL, Interval

# --------------------------------------------------------------------------------------- resample

BAYESIAN = "Bayesian bootstrap"
CHUNK, LEAST_ROWS = 2**16, 16
"""Weights held at a time: half a megabyte stays in the processor's cache. Of a large pool a few
replicates all the same, because sums are taken over several at once."""


def dirichlet(n: int, replicates: int, seed: int) -> Floats:
    """Weights of n units [replicates, n]; each row sums to one."""
    return np.random.default_rng(seed).dirichlet(np.ones(n), replicates)


def exponentials(n: int, replicates: int, seed: int) -> Iterator[Floats]:
    """Weights before they are divided by their sum, `[some replicates, n]` at a time."""
    rng = np.random.default_rng(seed)
    rows = max(LEAST_ROWS, CHUNK // max(1, n))
    for start in range(0, replicates, rows):
        yield rng.standard_exponential((min(rows, replicates - start), n))


Floats = NDArray[np.float64]
K = TypeVar("K", bound=Hashable)
REPLICATES = 10_000
BOOTSTRAP, PAIRED = "bootstrap", "paired bootstrap"
COUNTS = 2**22
"""Counts that are drawn together and remembered: 32 MB."""
MANY, GROUPS = 2**14, 2**12
"""Of more outputs than `MANY`, whole groups are drawn, this number of them: a million outputs would
take minutes. A sum over resamples keeps its mean, and on average its variance and skewness; its
standard deviation gets an error of one part in the square root of 2 * GROUPS, 1.1%."""

Span = tuple[float, float]
EVERYWHERE: Span = (-np.inf, np.inf)
POSITIVE: Span = (0.0, np.inf)
SHARE: Span = (0.0, 1.0)


@dataclass(frozen=True)
class Statistic:
    """finish(sum of the rows of columns), for the outputs themselves and for resamples of them."""

    columns: Floats
    """One row per output [n, k]."""
    finish: Callable[[Floats], Floats]
    """From sums [..., k] to values [...]."""
    exact: bool = False
    """Whether outputs that are all the same are no accident: counts that a setting fixes."""
    members: int | None = None
    """The outputs of all rows, where a row is a cluster of them."""
    span: Span = EVERYWHERE
    """The least and the largest value that there can be."""
    counted: bool = False
    """Whether it is the share of outputs that have something: each counts 1 or 0."""
    left_out: bool = False
    """Whether its rows come from leaving out outputs, so that its interval is the jackknife's."""

    @property
    def outputs(self) -> int:
        """How many it is over."""
        return len(self.columns) if self.members is None else self.members

    @property
    def value(self) -> float:
        """On the outputs as they are."""
        return float(self.finish(np.asarray(self.columns, float).sum(0)))


def mean(
    values: NDArray, *, exact: bool = False, span: Span = EVERYWHERE, counted: bool = False
) -> Statistic:
    """The mean over outputs."""
    columns = np.stack([np.asarray(values, float), np.ones(len(values))], 1)
    return Statistic(columns, lambda t: t[..., 0] / t[..., 1], exact, span=span, counted=counted)


def clustered(statistic: Statistic, clusters: Sequence[int | str] | NDArray) -> Statistic:
    """The same statistic with whole clusters for rows, in the order in which they first come.

    Whatever draws or leaves out its rows then does so with clusters.
    """
    columns = np.asarray(statistic.columns, float)
    _, first, cluster = np.unique(np.asarray(clusters), return_index=True, return_inverse=True)
    sums = np.zeros((len(first), columns.shape[1]))
    np.add.at(sums, first.argsort().argsort()[cluster], columns)
    return replace(statistic, columns=sums, members=statistic.outputs)


def bootstrap(
    statistic: Statistic, *, replicates: int = REPLICATES, seed: int = 0, level: float = LEVEL
) -> Interval | None:
    """The interval of one statistic; see `intervals`."""
    return intervals({0: statistic}, replicates=replicates, seed=seed, level=level)[0]


def intervals(
    statistics: Mapping[K, Statistic],
    *,
    replicates: int = REPLICATES,
    seed: int = 0,
    level: float = LEVEL,
) -> dict[K, Interval | None]:
    """The interval of every statistic of one cell, all on the same resamples.

    None where the outputs do not define the value (nothing was scored). Resamples that do not
    define it are left out.
    """
    sums = sums_of(list(statistics.values()), replicates=replicates, seed=seed)
    pairs = zip(statistics.items(), sums, strict=True)
    return {
        name: interval_of(statistic, resampled, level) for (name, statistic), resampled in pairs
    }


def sums_of(
    statistics: Sequence[Statistic], *, replicates: int = REPLICATES, seed: int = 0
) -> list[Floats]:
    """The sums of each over resamples; those of equally many outputs share one draw."""
    columns = [_grouped(np.asarray(statistic.columns, float)) for statistic in statistics]
    by_statistic = [np.zeros((0, 0))] * len(columns)
    for n in dict.fromkeys(map(len, columns)):
        same_length = [i for i, column in enumerate(columns) if len(column) == n]
        sums = resampled_sums(
            np.concatenate([columns[i] for i in same_length], 1), replicates, seed
        )
        ends = np.cumsum([columns[i].shape[1] for i in same_length])
        for i, part in zip(same_length, np.split(sums, ends[:-1], axis=1), strict=True):
            by_statistic[i] = part
    return by_statistic


def _grouped(columns: Floats) -> Floats:
    """Sums over groups of neighbouring outputs, where these are very many."""
    n = len(columns)
    return columns if n <= MANY else np.add.reduceat(columns, np.arange(GROUPS) * n // GROUPS)


def interval_of(statistic: Statistic, sums: Floats, level: float = LEVEL) -> Interval | None:
    """From the sums over resamples; None where the outputs do not define the value."""
    n = len(statistic.columns)
    return of_replicates(statistic.value, statistic.finish(sums), n, level=level)


def ratio(
    above: Statistic,
    below: Statistic,
    *,
    replicates: int = REPLICATES,
    seed: int = 0,
    level: float = LEVEL,
) -> Interval | None:
    """The ratio of two cells' statistics, whose outputs are resampled independently."""
    up = above.finish(resampled_sums(np.asarray(above.columns, float), replicates, seed, 0))
    down = below.finish(resampled_sums(np.asarray(below.columns, float), replicates, seed, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        value, replicated = float(np.divide(above.value, below.value)), up / down
    n = min(len(above.columns), len(below.columns))
    return of_replicates(value, replicated, n, level=level)


def of_replicates(
    value: float, replicates: Floats, n: int, how: str = BOOTSTRAP, level: float = LEVEL
) -> Interval | None:
    """A value with the percentiles of its replicates; those that are no numbers are left out."""
    usable = replicates[np.isfinite(replicates)]
    if not np.isfinite(value) or not len(usable):
        return None
    low, high = np.quantile(usable, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(value), float(low), float(high), level, n, how)


def order_statistics(replicates: Floats, level: float) -> tuple[float, float]:
    """The two replicates that leave out equal shares at both ends.

    No interpolation between them: so the ends of the negated replicates are exactly the mirror.
    """
    usable = np.sort(replicates[np.isfinite(replicates)])
    if not len(usable):
        return -np.inf, np.inf
    left_out = int(np.floor((1 - level) / 2 * len(usable)))
    return float(usable[left_out]), float(usable[len(usable) - 1 - left_out])


def resampled_sums(
    columns: Floats, replicates: int, seed: int, stream: int | None = None
) -> Floats:
    """Sums over resamples [R, k]; `stream` keeps apart resamples of one seed."""
    n = len(columns)
    if n == 0:
        raise UserError("There are no outputs to resample.", fix="strop sample ... -n 128")
    if replicates * n <= COUNTS:
        return _counts(n, replicates, seed, stream) @ columns
    # Of many outputs it is several times quicker to draw which they are than how often each is.
    rng = _generator(seed, stream)
    counts = (np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(replicates))
    return np.stack([weights.astype(np.float64) @ columns for weights in counts])


def resamples(n: int, replicates: int, seed: int) -> Floats:
    """How often each of n outputs is in a resample [R, n]; not to be written into."""
    return _counts(n, replicates, seed, None)


@lru_cache(maxsize=4)
def _counts(n: int, replicates: int, seed: int, stream: int | None) -> Floats:
    rng = _generator(seed, stream)
    return rng.multinomial(n, np.full(n, 1 / n), size=replicates).astype(np.float64)


def _generator(seed: int, stream: int | None) -> np.random.Generator:
    key = () if stream is None else (stream,)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


# -------------------------------------------------------------------------------------- jackknife


def replicate_means(values: Floats, *, seed: int, replicates: int = REPLICATES) -> Floats:
    """[replicates, C]: means of the columns of `values` [n, C] over n rows drawn with replacement.

    Every column sees the same rows, also in another call with the same seed and n: differences of
    columns, checkpoints and temperatures are paired.
    """
    n = len(values)
    return resampled_sums(values, replicates, derive_seed(seed, "bootstrap", n)) / n


class Resampled:
    """Named columns over the same sequences, and their replicates."""

    def __init__(
        self, columns: Mapping[Hashable, Floats], *, seed: int, replicates: int = REPLICATES
    ) -> None:
        self._place = {name: number for number, name in enumerate(columns)}
        self._values = np.stack(list(columns.values()), axis=1)
        self._means = replicate_means(self._values, seed=seed, replicates=replicates)

    def interval(self, name: Hashable, minus: Hashable | None = None) -> Interval:
        """Of a column's mean, or of its paired difference from another's."""
        values, means = self._column(name)
        if minus is not None:
            others, other_means = self._column(minus)
            values, means = values - others, means - other_means
        how = BOOTSTRAP if minus is None else PAIRED
        mean = float(values.mean())
        return of_replicates(mean, means, len(values), how) or Interval(mean, n=len(values))

    def lowest(self, names: Sequence[Hashable]) -> tuple[int, Floats]:
        """Which of some columns has the lowest mean, and how often each has in the replicates."""
        places = [self._place[name] for name in names]
        counts = np.bincount(self._means[:, places].argmin(axis=1), minlength=len(places))
        return int(self._values[:, places].mean(axis=0).argmin()), counts / len(self._means)

    def _column(self, name: Hashable) -> tuple[Floats, Floats]:
        number = self._place[name]
        return self._values[:, number], self._means[:, number]


JACKKNIFE, PAIRED_JACKKNIFE = "jackknife", "paired jackknife"
CERTAIN = 32
"""Outputs from which on values that are all the same are believed to be, unless they are exact."""


def jackknife(
    statistic: Statistic,
    level: float = LEVEL,
    minus: Statistic | None = None,
    *,
    log: bool = False,
    cut: bool = True,
) -> Interval:
    """A statistic's interval, or that of the paired difference of two on their common outputs.

    With `log` of its logarithm, which is nearer to a mean where it is one's exponential. It has no
    ends where the outputs do not tell how far the value may move. Student's t knows no bounds: an
    end beyond what the statistic can be is that bound, unless `cut` is off.
    """
    n = len(statistic.columns) if minus is None else min(len(statistic.columns), len(minus.columns))
    how = JACKKNIFE if minus is None else PAIRED_JACKKNIFE
    value, left = _left_out(statistic, n, log)
    span = statistic.span
    if minus is not None:
        other, others = _left_out(minus, n, log)
        value, left = value - other, left - others
        span = (span[0] - minus.span[1], span[1] - minus.span[0])
    if n < 2 or not math.isfinite(value) or not np.isfinite(left).all():
        return Interval(value, None, None, level, n, how)
    spread = math.sqrt((n - 1) / n * float(((left - left.mean()) ** 2).sum()))
    exact = statistic.exact and (minus is None or minus.exact)
    if spread <= 1e-12 * abs(value) and n < CERTAIN and not exact:
        return Interval(value, None, None, level, n, how)
    half = student(level, n - 1) * spread
    low, high = value - half, value + half
    if cut and not log:
        low, high = max(low, span[0]), min(high, span[1])
    return Interval(value, low, high, level, n, how)


@lru_cache(maxsize=256)
def student(level: float, freedom: int) -> float:
    """The quantile of Student's t, from the part of scipy that loads at once."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2))


def _left_out(statistic: Statistic, n: int, log: bool) -> tuple[float, NDArray[np.float64]]:
    """The value on the first n outputs, and without each of them in turn."""
    columns = np.asarray(statistic.columns[:n], float)
    total = columns.sum(0)
    scale = np.log if log else np.asarray
    with np.errstate(divide="ignore", invalid="ignore"):
        value, left = scale(statistic.finish(total)), scale(statistic.finish(total - columns))
    return float(value), np.asarray(left, float)


# ---------------------------------------------------------------------------------------- crossed

CROSSED = "crossed model"


@dataclass(frozen=True)
class Crossed:
    """A mean over units, and how sure it is."""

    value: float
    n: int
    """Units."""
    variance: float | None
    """Of the mean; None where no round has two groups: nothing tells how groups differ."""
    freedom: float = 0.0
    unit: float = 0.0
    """The variances of units, of groups and of the rest."""
    group: float = 0.0
    rest: float = 0.0

    @property
    def parts(self) -> dict[str, float]:
        """The three variances by name."""
        return {"output": self.unit, "group": self.group, "rest": self.rest}

    def __sub__(self, other: Crossed) -> Crossed:
        """The difference of two independent means."""
        value, n = self.value - other.value, min(self.n, other.n)
        if self.variance is None or other.variance is None:
            return Crossed(value, n, None)
        variance = self.variance + other.variance
        doubt = sum(v**2 / f for v, f in (self._pair, other._pair) if v > 0)
        return Crossed(value, n, variance, variance**2 / doubt if doubt else math.inf)

    @property
    def _pair(self) -> tuple[float, float]:
        return self.variance or 0.0, self.freedom

    def interval(self, level: float = LEVEL) -> Interval:
        """With Student's limits; without ends where the variance is not known."""
        from scipy.special import stdtrit

        if self.variance is None:
            return Interval(self.value, None, None, level, self.n, CROSSED)
        # Beyond a million degrees of freedom it is the normal law.
        half = float(stdtrit(min(self.freedom, 1e6), (1 + level) / 2)) * math.sqrt(self.variance)
        return Interval(self.value, self.value - half, self.value + half, level, self.n, CROSSED)


def crossed(values: Floats, read: NDArray[np.bool_], groups: NDArray[np.integer]) -> Crossed:
    """The mean over units of each unit's mean over its rounds, all [units, rounds].

    `read` says which values there are, `groups` in which group of its round a value was read.
    """
    n, rounds = values.shape
    value = float(np.where(read, values, 0).sum(1) @ (1 / read.sum(1)) / n)
    between, within, freedom, size = _mean_squares(values, read, groups)
    if between is None:
        return Crossed(value, n, None)
    total = within if within is not None else between
    unit, pairs = _shared(values, read)
    unit = total if unit is None else min(max(unit, 0.0), total)
    group = max(0.0, (between - total) / size)
    weight = np.where(read, 1 / (n * read.sum(1, keepdims=True)), 0.0)
    by_group = sum(
        float((np.bincount(groups[read[:, r], r], weight[read[:, r], r]) ** 2).sum())
        for r in range(rounds)
    )
    of_unit, of_rest = float((weight.sum(1) ** 2).sum()), float((weight**2).sum())
    variance = unit * of_unit + group * by_group + (total - unit) * of_rest
    # The variance as a sum of what was measured: `between`, and what rounds have in common.
    share = by_group / size if group > 0 else of_rest
    squares = [((between if group > 0 else total) * share) ** 2 * 2 / freedom]
    if pairs > 1:
        squares.append((of_unit - of_rest) ** 2 * (unit**2 + (total + group) ** 2) / (pairs - 1))
    doubt = sum(squares)
    freedom = 2 * variance**2 / doubt if doubt else float(n - 1)
    return Crossed(value, n, variance, min(freedom, n - 1.0), unit, group, total - unit)


def _mean_squares(
    values: Floats, read: NDArray[np.bool_], groups: NDArray[np.integer]
) -> tuple[float | None, float | None, int, float]:
    """Between and within groups, over all rounds; degrees of freedom between; values per group."""
    between = within = 0.0
    free_between = free_within = 0
    sizes: list[float] = []
    for r in range(values.shape[1]):
        of_round = values[read[:, r], r]
        _, group = np.unique(groups[read[:, r], r], return_inverse=True)
        counts = np.bincount(group)
        means = np.bincount(group, of_round) / counts
        within += float(((of_round - means[group]) ** 2).sum())
        free_within += len(of_round) - len(counts)
        if len(counts) > 1:
            between += float(counts @ (means - of_round.mean()) ** 2)
            free_between += len(counts) - 1
            sizes.append(len(of_round) / len(counts))
    if not free_between:
        return None, None, 0, 1.0
    inside = within / free_within if free_within else None
    return between / free_between, inside, free_between, float(np.mean(sizes))


def _shared(values: Floats, read: NDArray[np.bool_]) -> tuple[float | None, int]:
    """The covariance of a unit's values in two rounds, over all pairs of rounds; units with one."""
    total, free, most = 0.0, 0, 0
    rounds = values.shape[1]
    for r in range(rounds):
        for s in range(r + 1, rounds):
            in_both = read[:, r] & read[:, s]
            if in_both.sum() > 1:
                left, right = values[in_both, r], values[in_both, s]
                total += float(((left - left.mean()) * (right - right.mean())).sum())
                free += int(in_both.sum()) - 1
                most = max(most, int(in_both.sum()))
    return (total / free, most) if free else (None, 0)


# ----------------------------------------------------------------------------------------- shares

WILSON = "Wilson"
Floats = NDArray[np.float64]


def share_interval(shares: Floats, answers: int = 1, level: float = LEVEL) -> Interval:
    """The mean of shares of right answers, one per problem, each over so many answers.

    Answers to one problem go together, so a mean over P problems of k answers is worth between P
    and kP independent ones: as many as have the variance that the problems' shares have.
    """
    problems, value = len(shares), float(shares.mean())
    spread = float(shares.var(ddof=1)) / problems if problems > 1 else 0.0
    worth = value * (1 - value) / spread if spread > 0 else float(problems)
    return wilson(value, min(max(worth, problems), problems * answers), level, n=problems)


def counted_share(statistic: Statistic, level: float = LEVEL) -> Interval:
    """Wilson's interval of the share of outputs that have something.

    Rows of a clustered statistic (answers to one prompt) are worth as many independent answers as
    have their variance: at least one a row, at most as many as there are.
    """
    right, sizes = np.asarray(statistic.columns, float).T
    rows, answers, value = len(right), float(sizes.sum()), statistic.value
    spread = 0.0
    if rows > 1:
        spread = rows / (rows - 1) * float(((right - value * sizes) ** 2).sum()) / answers**2
    worth = value * (1 - value) / spread if spread > 0 else float(rows)
    return wilson(value, min(max(worth, rows), answers), level, n=rows)


def wilson(value: float, worth: float, level: float = LEVEL, n: int | None = None) -> Interval:
    """Of a share among so many independent answers (Wilson 1927)."""
    from scipy.special import ndtri

    z2 = float(ndtri((1 + level) / 2)) ** 2
    middle = (value + z2 / (2 * worth)) / (1 + z2 / worth)
    root = math.sqrt(value * (1 - value) / worth + z2 / (4 * worth**2))
    half = math.sqrt(z2) * root / (1 + z2 / worth)
    # At 0 and 1 rounding could leave the end a trace beside the value.
    low, high = min(middle - half, value), max(middle + half, value)
    return Interval(value, max(0.0, low), min(1.0, high), level, n or round(worth), WILSON)


def skewed(values: Floats) -> float:
    """How skewed the mean of some values is, by theirs over sqrt(n); infinite if all are one."""
    apart = values - values.mean()
    spread = math.sqrt(float((apart**2).mean()))
    if spread <= 1e-9 * max(1.0, float(np.abs(values).max())):
        return math.inf
    return abs(float((apart**3).mean())) / spread**3 / math.sqrt(len(values))


def bounded_mean(values: Floats, span: tuple[float, float], level: float = LEVEL) -> Interval:
    """The mean of values between two bounds, as if all of them were at a bound."""
    low, high = span
    share = (float(values.mean()) - low) / (high - low)
    interval = wilson(min(max(share, 0.0), 1.0), len(values), level)
    return interval.mapped(lambda end: low + (high - low) * end)


def bounded_difference(differences: Floats, most: float, level: float = LEVEL) -> Interval:
    """The mean of differences of at most so much: that of the gains less that of the losses.

    Ends are put together by squares, as if gains and losses were independent (Newcombe 1998).
    """
    gain, loss = (
        bounded_mean(np.maximum(sign * differences, 0.0), (0.0, most), level) for sign in (1, -1)
    )
    value = gain.value - loss.value
    low = value - math.hypot(gain.value - gain.ends[0], loss.ends[1] - loss.value)
    high = value + math.hypot(gain.ends[1] - gain.value, loss.value - loss.ends[0])
    return Interval(value, low, high, level, len(differences), WILSON)


def sign_test(differences: Floats) -> float:
    """The exact two-sided p of no difference; with one answer a side it is McNemar's test.

    Only problems on which the sides differ count: each is as likely to favour one as the other.
    """
    from scipy.special import bdtr

    better, worse = int((differences > 0).sum()), int((differences < 0).sum())
    return min(1.0, 2 * float(bdtr(min(better, worse), better + worse, 0.5)))


def pass_at(right: Floats, answers: int, k: int) -> Floats:
    """The chance that one of k answers is right, unbiased, per problem: 1 - C(n-c, k) / C(n, k).

    `right` is how many of a problem's answers are.
    """
    wrong = answers - np.asarray(right, float)
    places = np.arange(k)
    return 1 - np.prod(np.clip(wrong[:, None] - places, 0, None) / (answers - places), axis=1)
