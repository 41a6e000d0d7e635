"""Two frontiers at equal sharpness: the gap in log-perplexity at common entropies.

The common range of entropies is what both frontiers reach in nearly every replicate; below the
entropy guard nothing is compared. It depends on entropies alone, so it is fixed before a gap is
read. At 24 entropies of it the gap has an interval of its own, and there is a band that holds at
all of them together. In every replicate both frontiers are interpolated between their own points
of that replicate, so that noise in entropy counts as well. A side that cannot be tuned is one
point; it is compared with the other's frontier at its own entropy, replicate by replicate.

Straight lines between the points of a curve are off, and no resampling sees that. How far they may
be off is estimated by leaving points out (`Curve.bend`), and a claim must hold with that added.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from strop.comparing.levels import Level
from strop.comparing.side import Curve, interval
from strop.stats.interval import Interval
from strop.stats.resample import order_statistics

PARTS = ("sharp", "smooth")
POINTS = 12
"""Entropies at which a part is read off."""
BAND = "studentised bootstrap band"
FEWEST = 3
"""Temperatures that a frontier needs."""
INSIDE = 0.95
"""Share of the replicates that must reach the ends of the common range."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Grid:
    """Entropies at which two frontiers are compared."""

    low: float
    high: float
    points: Floats
    """[K], or [1 + R, 1] where a side is a single point."""

    @property
    def parts(self) -> int:
        """How many parts the range has."""
        return len(PARTS) if self.points.ndim == 1 else 1

    def averaged(self, values: Floats) -> Floats:
        """Values at the points [1 + R, K] as means over the parts [1 + R, parts]."""
        return values.reshape(len(values), self.parts, -1).mean(axis=2)


@dataclass(frozen=True)
class Equal:
    """Log-perplexity of A minus that of B at equal entropy."""

    low: float
    high: float
    """The common range, in nats."""
    mean: Interval
    """Over the whole range; it must lie on one side of zero."""
    entropies: tuple[float, ...]
    """Where the gap is read off; one, where a side is a single point."""
    points: tuple[Interval, ...]
    """The gap there, each interval for itself. For "the same" all must lie inside the margin."""
    band: tuple[Interval, ...]
    """The gap there, wide enough that all intervals hold together: where the frontiers cross."""
    bend: tuple[float, ...]
    """How far straight lines between temperatures may be off there, both sides together."""

    @property
    def straight(self) -> Equal:
        """As if straight lines were exact."""
        return replace(self, bend=(0.0,) * len(self.bend))


def grid(a: Curve, b: Curve, floor: float | None) -> Grid | None:
    """Where both frontiers can be read off, or None."""
    bounds = [_reached(one) for one in (a, b)]
    low, high = max(one[0] for one in bounds), min(one[1] for one in bounds)
    low = low if floor is None else max(low, floor)
    points = [one for one in (a, b) if one.entropy.shape[1] == 1]
    if len(points) == 2:
        return None
    if points:
        [mine] = points
        inside = order_statistics(mine.entropy[1:, 0], INSIDE)
        outer = _reached(b if mine is a else a)
        least = outer[0] if floor is None else max(outer[0], floor)
        if inside[0] < least or inside[1] > outer[1]:
            return None
        return Grid(inside[0], inside[1], mine.entropy)
    if not low < high:
        return None
    number = len(PARTS) * POINTS
    return Grid(low, high, low + (high - low) * (np.arange(number) + 0.5) / number)


def equal_sharpness(a: Curve, b: Curve, where: Grid, level: Level) -> Equal:
    """The gap over the common range and its parts."""
    gaps = a.at(where.points) - b.at(where.points)
    entropies = where.points if where.points.ndim == 1 else where.points[0]
    n = min(a.side.n, b.side.n)
    # Frontiers of the same outputs are off by the same: that is no part of the gap.
    alike = a.level.shape == b.level.shape and bool((a.level[0] == b.level[0]).all())
    bend = np.zeros(len(entropies)) if alike else a.bend(entropies) + b.bend(entropies)
    return Equal(
        where.low,
        where.high,
        interval(gaps.mean(axis=1), level.different, n),
        tuple(map(float, entropies)),
        tuple(interval(column, level.same, n) for column in gaps.T),
        simultaneous(gaps, level.different, n),
        tuple(map(float, bend)),
    )


def simultaneous(gaps: Floats, level: float, n: int) -> tuple[Interval, ...]:
    """Intervals of columns that all hold together: the largest studentised error of a replicate.

    The first row is the outputs as they are, the others are replicates.
    """
    value, replicates = gaps[0], gaps[1:][np.isfinite(gaps[1:]).all(axis=1)]
    if not len(replicates):
        return tuple(Interval(float(one), level=level, n=n, how=BAND) for one in value)
    error = replicates.std(axis=0)
    scaled = np.abs(replicates - value) / np.where(error > 0, error, 1.0)
    largest = np.sort(scaled.max(axis=1, initial=0.0))
    reach = largest[min(len(largest) - 1, int(np.ceil(level * len(largest))))] * error
    return tuple(
        Interval(float(one), float(one - far), float(one + far), level, n, BAND)
        for one, far in zip(value, reach, strict=True)
    )


def thin(curve: Curve, where: Grid, allowed: float, level: Level) -> tuple[int, int] | None:
    """The two points of a side between which another temperature is wanted, or None.

    That is where straight lines may be off by more than is allowed, for sure and not by noise.
    """
    points = where.points if where.points.ndim == 1 else where.points[0]
    far = curve.bend(points)
    order = curve.order
    if len(order) < 3 or not far.max() > allowed:
        return None
    worst = float(points[int(far.argmax())])
    upper = int(np.clip((curve.entropy[0] <= worst).sum(), 1, len(order) - 1))
    sure = 1 - (1 - level.different) / (len(order) - 2)
    bent = [order_statistics(column[1:], sure) for column in curve.missed.T]
    near = [one for one in (upper - 2, upper - 1) if 0 <= one < len(bent)]
    if not any(low > 0 or high < 0 for low, high in (bent[one] for one in near)):
        return None
    return int(order[upper - 1]), int(order[upper])


def _reached(curve: Curve) -> tuple[float, float]:
    """The entropies that a frontier reaches in nearly every replicate."""
    return (
        order_statistics(curve.entropy[1:, 0], INSIDE)[1],
        order_statistics(curve.entropy[1:, -1], INSIDE)[0],
    )
