"""The paired bootstrap: whole sequences are drawn anew, the same ones for every column."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strop.rng import derive_seed
from strop.stats.resample import REPLICATES, resampled_sums

__all__ = ["Mean", "Resampled", "interval", "replicate_means"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Mean:
    """A mean with its 95% percentile interval."""

    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval is on one side."""
        return self.low > 0 or self.high < 0


def replicate_means(values: Floats, *, seed: int, replicates: int = REPLICATES) -> Floats:
    """[replicates, C]: means of the columns of `values` [n, C] over n rows drawn with replacement.

    Every column sees the same rows, also in another call with the same seed and n: differences of
    columns, checkpoints and temperatures are paired.
    """
    n = len(values)
    return resampled_sums(values, replicates, derive_seed(seed, "bootstrap", n)) / n


def interval(values: Floats, means: Floats) -> Mean:
    """The mean of a column and the percentiles of its replicates."""
    low, high = np.percentile(means, [2.5, 97.5])
    return Mean(float(values.mean()), float(low), float(high))


class Resampled:
    """Named columns over the same sequences, and their replicates."""

    def __init__(
        self, columns: Mapping[Hashable, Floats], *, seed: int, replicates: int = REPLICATES
    ) -> None:
        self._place = {name: place for place, name in enumerate(columns)}
        self._values = np.stack(list(columns.values()), axis=1)
        self._means = replicate_means(self._values, seed=seed, replicates=replicates)

    def interval(self, name: Hashable, minus: Hashable | None = None) -> Mean:
        """Of a column, or of its paired difference from another."""
        values, means = self._column(name)
        if minus is not None:
            others, other_means = self._column(minus)
            values, means = values - others, means - other_means
        return interval(values, means)

    def lowest(self, names: Sequence[Hashable]) -> tuple[int, Floats]:
        """Which of some columns has the lowest mean, and how often each has in the replicates."""
        places = [self._place[name] for name in names]
        counts = np.bincount(self._means[:, places].argmin(axis=1), minlength=len(places))
        return int(self._values[:, places].mean(axis=0).argmin()), counts / len(self._means)

    def _column(self, name: Hashable) -> tuple[Floats, Floats]:
        place = self._place[name]
        return self._values[:, place], self._means[:, place]
