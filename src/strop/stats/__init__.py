"""How sure a number is: intervals, and the resamples that they are read off.

`Interval` is the one form of a number with its interval. `resample` draws outputs anew and takes
any function of sums over them; `paired` does so for several columns at once. numpy is all that it
needs.

The names load on first use: importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strop.lazy import loader

if TYPE_CHECKING:
    from strop.stats.paired import Resampled
    from strop.stats.resample import Interval, Statistic, intervals, mean, ratio

__all__ = ["Interval", "Resampled", "Statistic", "intervals", "mean", "ratio"]

__getattr__ = loader(
    __name__,
    {
        "Interval": "strop.stats.resample",
        "Resampled": "strop.stats.paired",
        "Statistic": "strop.stats.resample",
        "intervals": "strop.stats.resample",
        "mean": "strop.stats.resample",
        "ratio": "strop.stats.resample",
    },
)
