"""The paired bootstrap: whole sequences are drawn anew, the same ones for every column."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from strop.rng import derive_seed
from strop.stats.interval import Interval
from strop.stats.resample import BOOTSTRAP, PAIRED, REPLICATES, of_replicates, resampled_sums

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
