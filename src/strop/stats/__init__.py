"""How sure a number is: intervals, and the draws that they are read off.

`Interval` is the one form of a number with its interval. The one resampler takes any function of
sums over outputs: `resample` draws outputs, or clusters of them, with replacement; `paired` does so
for several columns at once; `bayesian` weighs them; `jackknife` leaves out each in turn. `crossed`
is for values that were read in groups, `shares` for right answers, `power` for how many outputs a
question needs.

The names load on first use: importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strop.registry import loader

if TYPE_CHECKING:
    from strop.stats.interval import Interval
    from strop.stats.resample import (
        Resampled,
        Statistic,
        bootstrap,
        clustered,
        intervals,
        jackknife,
        mean,
        ratio,
    )

__all__ = [
    "Interval",
    "Resampled",
    "Statistic",
    "bootstrap",
    "clustered",
    "intervals",
    "jackknife",
    "mean",
    "ratio",
]

__getattr__ = loader(__name__)
