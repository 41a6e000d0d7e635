"""Two frontiers at equal sharpness: the gap in log-perplexity at common entropies.

The common range of entropies is what both frontiers reach in nearly every replicate; below the
entropy guard nothing is compared. It is cut into a sharp and a smooth half, and the gap is averaged
over each: single points of a frontier are noisy, and two halves show where it crosses another. In
every replicate both frontiers are interpolated between their own points of that
replicate, so that noise in entropy counts as well. A side that cannot be tuned is one point; it is
compared with the other's frontier at its own entropy, replicate by replicate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strop.comparing.levels import Level
from strop.comparing.side import Curve, interval
from strop.stats.interval import Interval
from strop.stats.resample import order_statistics

__all__ = ["PARTS", "Equal", "Grid", "equal_sharpness", "grid"]

PARTS = ("sharp", "smooth")
POINTS = 12
"""Entropies at which a part is read off."""
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
    parts: tuple[Interval, ...]
    """Over the sharp and the smooth half; one, where a side is a single point.
    They must lie inside the margin."""
    surely: tuple[Interval, ...]
    """The same, wide enough that all of them hold together: where the frontiers cross."""


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
    gaps = where.averaged(a.at(where.points) - b.at(where.points))
    together = 1 - (1 - level.different) / where.parts
    n = min(a.side.n, b.side.n)
    return Equal(
        where.low,
        where.high,
        interval(gaps.mean(axis=1), level.different, n),
        tuple(interval(column, level.same, n) for column in gaps.T),
        tuple(interval(column, together, n) for column in gaps.T),
    )


def _reached(curve: Curve) -> tuple[float, float]:
    """The entropies that a frontier reaches in nearly every replicate."""
    return (
        order_statistics(curve.entropy[1:, 0], INSIDE)[1],
        order_statistics(curve.entropy[1:, -1], INSIDE)[0],
    )
