"""The mean of readings that are crossed: units are read several times, each time in new groups.

    value of unit i in round r = mean + unit i + group g(i, r) + rest

A group shares what its reader thought at that moment, so its values are not independent; and a unit
is the same in every round, so rounds are not independent either. Within a round both are told
apart: means of groups vary by groups and by what units leave in them, values inside a group by
units and the rest. Between rounds only the units are shared. From these three mean squares follow
the three variances, and from them that of the mean, whatever is missing. Limits are Student's, with
the degrees of freedom of Satterthwaite's approximation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strop.stats.interval import LEVEL, Interval

Floats = NDArray[np.float64]
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
    found = 2 * variance**2 / doubt if doubt else float(n - 1)
    return Crossed(value, n, variance, min(found, n - 1.0), unit, group, total - unit)


def _mean_squares(
    values: Floats, read: NDArray[np.bool_], groups: NDArray[np.integer]
) -> tuple[float | None, float | None, int, float]:
    """Between and within groups, over all rounds; degrees of freedom between; values per group."""
    between = within = 0.0
    free_between = free_within = 0
    sizes: list[float] = []
    for r in range(values.shape[1]):
        mine = values[read[:, r], r]
        _, place = np.unique(groups[read[:, r], r], return_inverse=True)
        counts = np.bincount(place)
        means = np.bincount(place, mine) / counts
        within += float(((mine - means[place]) ** 2).sum())
        free_within += len(mine) - len(counts)
        if len(counts) > 1:
            between += float(counts @ (means - mine.mean()) ** 2)
            free_between += len(counts) - 1
            sizes.append(len(mine) / len(counts))
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
            both = read[:, r] & read[:, s]
            if both.sum() > 1:
                one, other = values[both, r], values[both, s]
                total += float(((one - one.mean()) * (other - other.mean())).sum())
                free += int(both.sum()) - 1
                most = max(most, int(both.sum()))
    return (total / free, most) if free else (None, 0)
