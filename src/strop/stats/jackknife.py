"""Intervals of the jackknife with Student's t: leave out each output in turn.

They hold at eight outputs already, where resampling gives intervals that are too short.

The paired bootstrap: whole sequences are drawn anew, the same ones for every column.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from strop.rng import derive_seed
from strop.stats.interval import LEVEL, Interval
from strop.stats.resample import (
    BOOTSTRAP,
    PAIRED,
    REPLICATES,
    Statistic,
    of_replicates,
    resampled_sums,
)

Floats = NDArray[np.float64]


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
        self._place = {name: place for place, name in enumerate(columns)}
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
        place = self._place[name]
        return self._values[:, place], self._means[:, place]


JACKKNIFE, PAIRED_JACKKNIFE = "jackknife", "paired jackknife"
CERTAIN = 32
"""Outputs from which on values that are all the same are believed to be, unless they are exact."""


def jackknife(
    found: Statistic,
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
    n = len(found.columns) if minus is None else min(len(found.columns), len(minus.columns))
    how = JACKKNIFE if minus is None else PAIRED_JACKKNIFE
    value, left = _left_out(found, n, log)
    span = found.span
    if minus is not None:
        other, others = _left_out(minus, n, log)
        value, left = value - other, left - others
        span = (span[0] - minus.span[1], span[1] - minus.span[0])
    if n < 2 or not math.isfinite(value) or not np.isfinite(left).all():
        return Interval(value, None, None, level, n, how)
    spread = math.sqrt((n - 1) / n * float(((left - left.mean()) ** 2).sum()))
    exact = found.exact and (minus is None or minus.exact)
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


def _left_out(one: Statistic, n: int, log: bool) -> tuple[float, NDArray[np.float64]]:
    """The value on the first n outputs, and without each of them in turn."""
    columns = np.asarray(one.columns[:n], float)
    total = columns.sum(0)
    scale = np.log if log else np.asarray
    with np.errstate(divide="ignore", invalid="ignore"):
        value, left = scale(one.finish(total)), scale(one.finish(total - columns))
    return float(value), np.asarray(left, float)
