"""Intervals by resampling outputs: of any function of sums over outputs, and of ratios of two.

A resample of n outputs with replacement is a vector of n counts, and a sum over it is their
product with the column. So 10,000 replicates are a matrix product. The counts depend on n and the
seed alone: every statistic of a cell shares them, and so do cells of equal size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError

__all__ = [
    "LEVEL",
    "REPLICATES",
    "Interval",
    "Statistic",
    "interval_of",
    "intervals",
    "mean",
    "ratio",
    "resampled_sums",
    "resamples",
    "sums_of",
]

REPLICATES = 10_000
LEVEL = 0.95
COUNTS = 2**22
"""Counts that are drawn together and remembered: 32 MB."""


@dataclass(frozen=True)
class Statistic:
    """finish(sum of the rows of columns), for the outputs themselves and for resamples of them."""

    columns: NDArray[np.float64]
    """One row per output [n, k]."""
    finish: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    """From sums [..., k] to values [...]."""
    exact: bool = False
    """Whether outputs that are all the same are no accident: counts that a setting fixes."""

    @property
    def value(self) -> float:
        """On the outputs as they are."""
        return float(self.finish(np.asarray(self.columns, float).sum(0)))


@dataclass(frozen=True)
class Interval:
    """A value and its percentile interval."""

    value: float
    low: float
    high: float
    level: float
    replicates: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def mean(values: NDArray, *, exact: bool = False) -> Statistic:
    """The mean over outputs."""
    ones = np.ones(len(values))
    return Statistic(
        np.stack([np.asarray(values, float), ones], 1), lambda t: t[..., 0] / t[..., 1], exact
    )


def intervals(
    statistics: Mapping[str, Statistic],
    *,
    replicates: int = REPLICATES,
    seed: int = 0,
    level: float = LEVEL,
) -> dict[str, Interval | None]:
    """The interval of every statistic of one cell, all on the same resamples.

    None where the outputs do not define the value (nothing was scored). Resamples that do not
    define it are left out.
    """
    sums = sums_of(list(statistics.values()), replicates=replicates, seed=seed)
    pairs = zip(statistics.items(), sums, strict=True)
    return {name: interval_of(one, mine, level) for (name, one), mine in pairs}


def sums_of(
    statistics: Sequence[Statistic], *, replicates: int = REPLICATES, seed: int = 0
) -> list[NDArray[np.float64]]:
    """The sums of each over resamples; those of equally many outputs share one draw."""
    columns = [np.asarray(one.columns, float) for one in statistics]
    found = [np.zeros((0, 0))] * len(columns)
    for n in dict.fromkeys(map(len, columns)):
        mine = [i for i, some in enumerate(columns) if len(some) == n]
        sums = resampled_sums(np.concatenate([columns[i] for i in mine], 1), replicates, seed)
        ends = np.cumsum([columns[i].shape[1] for i in mine])
        for i, one in zip(mine, np.split(sums, ends[:-1], axis=1), strict=True):
            found[i] = one
    return found


def interval_of(
    statistic: Statistic, sums: NDArray[np.float64], level: float = LEVEL
) -> Interval | None:
    """From the sums over resamples; None where the outputs do not define the value."""
    return _interval(statistic.value, statistic.finish(sums), level)


def ratio(
    above: Statistic,
    below: Statistic,
    *,
    paired: bool = False,
    replicates: int = REPLICATES,
    seed: int = 0,
    level: float = LEVEL,
) -> Interval | None:
    """The ratio of two cells' statistics; `paired` resamples both by the same outputs."""
    if paired and len(above.columns) != len(below.columns):
        raise UserError(
            "Paired outputs come in equal numbers.",
            got=f"{len(above.columns)} and {len(below.columns)}",
        )
    up = above.finish(resampled_sums(np.asarray(above.columns, float), replicates, seed, 0))
    other = 0 if paired else 1
    down = below.finish(resampled_sums(np.asarray(below.columns, float), replicates, seed, other))
    with np.errstate(divide="ignore", invalid="ignore"):
        return _interval(float(np.divide(above.value, below.value)), up / down, level)


def _interval(value: float, replicates: NDArray[np.float64], level: float) -> Interval | None:
    usable = replicates[np.isfinite(replicates)]
    if not np.isfinite(value) or not len(usable):
        return None
    low, high = np.quantile(usable, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, float(low), float(high), level, len(usable))


def resampled_sums(
    columns: NDArray[np.float64], replicates: int, seed: int, stream: int | None = None
) -> NDArray[np.float64]:
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


def resamples(n: int, replicates: int, seed: int) -> NDArray[np.float64]:
    """How often each of n outputs is in a resample [R, n]; not to be written into."""
    return _counts(n, replicates, seed, None)


@lru_cache(maxsize=4)
def _counts(n: int, replicates: int, seed: int, stream: int | None) -> NDArray[np.float64]:
    rng = _generator(seed, stream)
    return rng.multinomial(n, np.full(n, 1 / n), size=replicates).astype(np.float64)


def _generator(seed: int, stream: int | None) -> np.random.Generator:
    key = () if stream is None else (stream,)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
