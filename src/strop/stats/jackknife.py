"""Intervals of the jackknife with Student's t: leave out each output in turn.

They hold at eight outputs already, where resampling gives intervals that are too short.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from strop.stats.interval import LEVEL, Interval
from strop.stats.resample import Statistic

JACKKNIFE, PAIRED = "jackknife", "paired jackknife"
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
    how = JACKKNIFE if minus is None else PAIRED
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
