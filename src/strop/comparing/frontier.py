"""Two frontiers at equal sharpness: the gap in log-perplexity at common entropies.

The common range of entropies is what both frontiers reach in nearly every replicate; below the
entropy guard nothing is compared. It depends on entropies alone, so it is fixed before a gap is
read. At 24 entropies of it the gap has an interval of its own, and there is a band that holds at
all of them together. In every replicate both frontiers are interpolated between their own points
of that replicate, so that noise in entropy counts as well. A side that cannot be tuned is one
point; it is compared with the other's frontier at its own entropy, replicate by replicate.

Straight lines between the points of a curve are off, and no resampling sees that. How far they may
be off is estimated by leaving points out (`Curve.bend`), and a claim must hold with that added.
Whether frontiers are the same is read off parabolas, where they have them (`smooth.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from strop.comparing.levels import Level
from strop.comparing.side import Curve, interval, simultaneous
from strop.comparing.smooth import smoothed
from strop.stats.interval import Interval
from strop.stats.resample import order_statistics

PARTS = ("sharp", "smooth")
POINTS = 12
"""Entropies at which a part is read off."""
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
    """The gap there, each interval for itself. Where it is better, none may reach the margin."""
    band: tuple[Interval, ...]
    """The gap there, wide enough that all intervals hold together: where the frontiers cross."""
    bend: tuple[float, ...]
    """How far straight lines between temperatures may be off there, both sides together."""
    smooth: tuple[Interval, ...]
    """The gap there between parabolas. For "the same" all must lie inside the margin."""
    misfit: tuple[float, ...]
    """How far the parabolas may be off there, both sides together; lines, where there are none."""

    @property
    def lines(self) -> bool:
        """Whether there are no parabolas."""
        return self.misfit == self.bend

    @property
    def straight(self) -> Equal:
        """As if straight lines were exact."""
        flat = (0.0,) * len(self.bend)
        return replace(self, bend=flat, misfit=flat if self.lines else self.misfit)


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
    entropies, n = _entropies(where), min(a.side.n, b.side.n)
    smooth, misfit = smooth_gaps(a, b, where, level)
    return Equal(
        where.low,
        where.high,
        interval(gaps.mean(axis=1), level.different, n),
        tuple(map(float, entropies)),
        tuple(interval(column, level.everywhere, n) for column in gaps.T),
        simultaneous(gaps, level.different, n),
        tuple(map(float, _bend(a, b, entropies))),
        tuple(interval(column, level.everywhere, n) for column in smooth.T),
        tuple(map(float, misfit)),
    )


def smooth_gaps(a: Curve, b: Curve, where: Grid, level: Level) -> tuple[Floats, Floats]:
    """The gap between parabolas [1 + R, K], and how far they may be off, both together [K].

    If a side has no parabola, both are read off straight lines.
    """
    both = [smoothed(side, where.points, level) for side in (a, b)]
    if both[0] is None or both[1] is None:
        return a.at(where.points) - b.at(where.points), _bend(a, b, _entropies(where))
    (one, off_one), (two, off_two) = both[0], both[1]
    return one - two, np.zeros(len(off_one)) if _alike(a, b) else off_one + off_two


def _entropies(where: Grid) -> Floats:
    """Of the outputs as they are [K]."""
    return where.points if where.points.ndim == 1 else where.points[0]


def _alike(a: Curve, b: Curve) -> bool:
    """Frontiers of the same outputs are off by the same: that is no part of the gap."""
    return a.level.shape == b.level.shape and bool((a.level[0] == b.level[0]).all())


def _bend(a: Curve, b: Curve, entropies: Floats) -> Floats:
    return np.zeros(len(entropies)) if _alike(a, b) else a.bend(entropies) + b.bend(entropies)


def thin(curve: Curve, where: Grid, allowed: float, level: Level) -> tuple[int, int] | None:
    """The two points of a side between which another temperature is wanted, or None.

    That is where straight lines may be off by more than is allowed, for sure and not by noise.
    """
    points = _entropies(where)
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
