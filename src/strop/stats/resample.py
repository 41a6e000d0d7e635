"""Intervals by resampling outputs: of any function of sums over outputs, and of ratios of two.

A resample of n outputs with replacement is a vector of n counts, and a sum over it is their
product with the column. So 10,000 replicates are a matrix product. The counts depend on n and the
seed alone: every statistic of a cell shares them, and so do cells of equal size.

What belongs together (the answers to one problem, the rows of one document) is drawn together:
`clustered` makes a statistic whose rows are whole clusters.

Weights of the Bayesian bootstrap (Rubin 1981): flat Dirichlet over the units.

Where the bootstrap counts how often a unit is drawn, this gives every unit a weight; no unit is
ever left out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.stats.interval import LEVEL, Interval

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
    _, first, place = np.unique(np.asarray(clusters), return_index=True, return_inverse=True)
    sums = np.zeros((len(first), columns.shape[1]))
    np.add.at(sums, first.argsort().argsort()[place], columns)
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
    return {name: interval_of(one, mine, level) for (name, one), mine in pairs}


def sums_of(
    statistics: Sequence[Statistic], *, replicates: int = REPLICATES, seed: int = 0
) -> list[Floats]:
    """The sums of each over resamples; those of equally many outputs share one draw."""
    columns = [_grouped(np.asarray(one.columns, float)) for one in statistics]
    found = [np.zeros((0, 0))] * len(columns)
    for n in dict.fromkeys(map(len, columns)):
        mine = [i for i, some in enumerate(columns) if len(some) == n]
        sums = resampled_sums(np.concatenate([columns[i] for i in mine], 1), replicates, seed)
        ends = np.cumsum([columns[i].shape[1] for i in mine])
        for i, one in zip(mine, np.split(sums, ends[:-1], axis=1), strict=True):
            found[i] = one
    return found


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
    return np.stack([one.astype(np.float64) @ columns for one in counts])


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
