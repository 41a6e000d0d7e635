"""Two frontiers at equal sharpness: the gap in log-perplexity at common entropies.

The common range of entropies is what both frontiers reach in nearly every replicate; below the
entropy guard nothing is compared. It depends on entropies alone, so it is fixed before a gap is
read. At 24 entropies of it the gap has an interval of its own, and there is a band that holds at
all of them together. In every replicate both frontiers are interpolated between their own points of
that replicate, so that noise in entropy counts as well. A side that cannot be tuned is one point;
it is compared with the other's frontier at its own entropy, replicate by replicate.

Straight lines between the points of a curve are off, and no resampling sees that. How far they may
be off is estimated by leaving points out (`Curve.bend`), and a claim must hold with that added.
Whether frontiers are the same is read off parabolas, where they have them (`smoothed`).

`Level` says how sure a verdict must be where several budgets are compared and a run is looked at
again. Together all verdicts of a run may err with probability `ALPHA`. The first look spends
`FIRST` of it, and every later look half of what is left: 4%, 0.5%, 0.25%, ... Looking again is
taking a verdict on more outputs; asking again for the same is no new look. Within a look the
budgets share alike. Generators may be called different for two reasons, their frontiers or their
sharpness, and these have equal shares too. All of it is Bonferroni's bound, so nothing is assumed
of how looks, budgets and reasons depend on each other.

Frontiers that are not the same differ by the margin at some entropy, on one side. To be called the
same, or better on the other side, that one interval must err, at one end. Then the part for
sharpness is not needed; of the part for frontiers one of its two ends may still err (a quarter of
the whole: a crossing where there is none, or a mean on the wrong side). So three quarters are left
for one end of an interval at every entropy, whatever the number of entropies.

Parabolas serve the question whether two frontiers are the same. Temperature moves the points of one
generator along a smooth curve, so all of them inform each part of it: a parabola through seven
points is known about twice as well as the line between two of them. It is fitted by least squares
in every replicate. How far the frontier may be off its parabola is what the points are off it
beyond noise, and a claim must hold with that added. Where points surely lie off it, or are too few
to show it, there is no parabola.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from strop.comparing.side import Curve, Floats, interval, simultaneous
from strop.errors import UserError
from strop.stats.interval import Interval
from strop.stats.resample import order_statistics

# ----------------------------------------------------------------------------------------- levels

ALPHA = 0.05
FIRST = 0.8
REASONS = 2


def spent(look: int) -> float:
    """The part of `ALPHA` that look 1, 2, 3, ... may spend; all of them together spend it whole."""
    if look < 1:
        raise UserError("Looks are counted from one.", got=look)
    return ALPHA * FIRST if look == 1 else ALPHA * (1 - FIRST) / 2 ** (look - 1)


@dataclass(frozen=True)
class Level:
    """Of the intervals behind one verdict."""

    look: int = 1
    budgets: int = 1

    @property
    def alpha(self) -> float:
        """How often a verdict at one budget in this look may be wrong."""
        return spent(self.look) / self.budgets

    @property
    def same(self) -> float:
        """The confidence of intervals that must lie inside the margin at one setting."""
        return 1 - self.alpha

    @property
    def everywhere(self) -> float:
        """The confidence of intervals that must do so at every entropy: an end errs in 3/4."""
        return 1 - 2 * self.alpha * (1 - 1 / (2 * REASONS))

    @property
    def different(self) -> float:
        """The confidence of intervals that must lie on one side of zero."""
        return 1 - self.alpha / REASONS


# ----------------------------------------------------------------------------------------- smooth

FEWEST_POINTS = 5
"""Temperatures that a parabola needs: two more than it has coefficients."""
ROUNDING = 1e-9
"""Points that are off by less are on it."""


def smoothed(curve: Curve, entropies: Floats, level: Level) -> tuple[Floats, Floats] | None:
    """Log-perplexity at entropies [K] or [1 + R, K] by the parabola, and how far that may be off.

    [1 + R, K] and [K]; None where a frontier has no parabola. A single point is what it is.
    """
    wanted = np.broadcast_to(entropies, (len(curve.entropy), np.shape(entropies)[-1]))
    if curve.entropy.shape[1] == 1:
        return curve.at(entropies), np.zeros(wanted.shape[1])
    if curve.entropy.shape[1] < FEWEST_POINTS:
        return None
    fitted = parabola(curve.entropy, curve.level)
    left = curve.level - fitted(curve.entropy)
    sure = simultaneous(left, level.different, curve.side.n)
    if any(residual.above(ROUNDING) or residual.below(-ROUNDING) for residual in sure):
        return None
    usable = left[1:][np.isfinite(left[1:]).all(axis=1)]
    beyond = np.sqrt(np.maximum(left[0] ** 2 - usable.var(axis=0), 0.0))
    return fitted(wanted), np.interp(wanted[0], curve.entropy[0], beyond)


def parabola(x: Floats, y: Floats) -> Callable[[Floats], Floats]:
    """The parabola of least squares of every row [R, T], as a function of places [R, K].

    Where all places of a row are the same it is level.
    """

    def part(column: Floats) -> Floats:
        """The coefficient of a column that is orthogonal to those before it."""
        size = (column**2).sum(axis=1, keepdims=True)
        sums = (column * y).sum(axis=1, keepdims=True)
        return np.divide(sums, size, out=np.zeros_like(size), where=size > 0)

    centre, height = (values.mean(axis=1, keepdims=True) for values in (x, y))
    line = x - centre
    square = (line**2).sum(axis=1, keepdims=True)
    cube = (line**3).sum(axis=1, keepdims=True)
    skew = np.divide(cube, square, out=np.zeros_like(square), where=square > 0)
    wide = square / x.shape[1]
    slope, bow = part(line), part(line**2 - wide - skew * line)

    def value(places: Floats) -> Floats:
        away = places - centre
        return height + slope * away + bow * (away**2 - wide - skew * away)

    return value


# --------------------------------------------------------------------------------------- frontier

PARTS = ("sharp", "smooth")
POINTS = 12
"""Entropies at which a part is read off."""
FEWEST = 3
"""Temperatures that a frontier needs."""
INSIDE = 0.95
"""Share of the replicates that must reach the ends of the common range."""


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
    bounds = [_reached(curve) for curve in (a, b)]
    low, high = max(bound[0] for bound in bounds), min(bound[1] for bound in bounds)
    low = low if floor is None else max(low, floor)
    points = [curve for curve in (a, b) if curve.entropy.shape[1] == 1]
    if len(points) == 2:
        return None
    if points:
        [single] = points
        inside = order_statistics(single.entropy[1:, 0], INSIDE)
        outer = _reached(b if single is a else a)
        least = outer[0] if floor is None else max(outer[0], floor)
        if inside[0] < least or inside[1] > outer[1]:
            return None
        return Grid(inside[0], inside[1], single.entropy)
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
    pair = [smoothed(side, where.points, level) for side in (a, b)]
    if pair[0] is None or pair[1] is None:
        return a.at(where.points) - b.at(where.points), _bend(a, b, _entropies(where))
    (smooth_a, off_a), (smooth_b, off_b) = pair[0], pair[1]
    return smooth_a - smooth_b, np.zeros(len(off_a)) if _alike(a, b) else off_a + off_b


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
    near = [index for index in (upper - 2, upper - 1) if 0 <= index < len(bent)]
    if not any(low > 0 or high < 0 for low, high in (bent[index] for index in near)):
        return None
    return int(order[upper - 1]), int(order[upper])


def _reached(curve: Curve) -> tuple[float, float]:
    """The entropies that a frontier reaches in nearly every replicate."""
    return (
        order_statistics(curve.entropy[1:, 0], INSIDE)[1],
        order_statistics(curve.entropy[1:, -1], INSIDE)[0],
    )
