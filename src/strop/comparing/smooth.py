"""A frontier as a parabola, for the question whether two frontiers are the same.

Temperature moves the points of one generator along a smooth curve, so all of them say something
about each place on it: a parabola through seven points is known about twice as well as the line
between two of them. It is fitted by least squares in every replicate. How far the frontier may be
off its parabola is what the points are off it beyond noise, and a claim must hold with that added.
Where points surely lie off, or too few are there to see it, there is no parabola.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from strop.comparing.levels import Level
from strop.comparing.side import Curve, simultaneous

Floats = NDArray[np.float64]
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
    if any(one.above(ROUNDING) or one.below(-ROUNDING) for one in sure):
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
