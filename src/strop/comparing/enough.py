"""How many outputs would probably decide.

Intervals shrink as one over the square root of the number of outputs. So from the gap and its
interval follows the number at which, if the gap is what it looks like, a rule holds four times out
of five. More outputs are another look (`strop.comparing.levels`), whose intervals are wider: it is
the chance at that look that is counted. "The same" must hold at every entropy at once: its chance
is the share of the replicates, drawn closer together, in which it does. The estimate inherits the
noise of the gap: it is an order of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from strop.comparing.frontier import Equal
from strop.comparing.levels import Level, spent
from strop.comparing.verdict import Layer
from strop.stats.interval import Interval

POWER = 0.8
MOST = 1_000_000
ROUND = 32


def enough(
    n: int,
    equal: Equal,
    gaps: NDArray[np.float64],
    layer: Layer | None,
    margin: float,
    level: Level | None = None,
) -> int | None:
    """Outputs per temperature at the look after this one; None where no million would do.

    `gaps` are the replicates behind `equal.smooth`, the outputs as they are first [1 + R, K].
    """
    level = Level() if level is None else level
    wider = spent(level.look + 1) / spent(level.look)
    everywhere = _everywhere(equal, gaps, margin, replace(level, look=level.look + 1))
    off = sum(equal.bend) / len(equal.bend)

    def power(outputs: int) -> float:
        times = outputs / n
        same = everywhere(times)
        if layer is not None:
            # On frontiers that are the same the published settings must be told apart, or not be.
            alike = _inside(layer.gap, margin, times, wider)
            same *= max(alike, _outside(layer.sharper, times, wider))
        return max(same, _outside(equal.mean, times, wider, off))

    found = _least(lambda blocks: power(ROUND * blocks) >= POWER, MOST // ROUND)
    return None if found is None else max(ROUND * found, n + ROUND)


def _everywhere(
    equal: Equal, gaps: NDArray[np.float64], margin: float, level: Level
) -> Callable[[float], float]:
    """The chance that at a look the gap is inside the margin everywhere, by times the outputs.

    What parabolas are off by is not told from noise, so it shrinks likewise; lines stay off.
    """
    from scipy.special import ndtri

    value, errors = gaps[0], gaps[1:][np.isfinite(gaps[1:]).all(axis=1)] - gaps[0]
    reach = -float(ndtri((1 - level.everywhere) / 2)) * errors.std(axis=0)
    misfit = np.array(equal.misfit)

    def chance(times: float) -> float:
        closer = 1 / math.sqrt(times)
        room = margin - closer * reach - (1 if equal.lines else closer) * misfit
        return float((np.abs(value + closer * errors) < room).all(axis=1).mean())

    return chance


def _least(holds: Callable[[int], bool], most: int) -> int | None:
    """The least number from which on something holds; None where it does not at the most."""
    if not holds(most):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _errors(found: Interval, times: float, wider: float) -> tuple[float, float]:
    """The standard error with so many times the outputs, and how many of them an interval takes.

    `wider` is the share of today's error rate that the next look may spend.
    """
    from scipy.special import ndtri

    error = found.half / float(ndtri((1 + found.level) / 2)) / math.sqrt(times)
    return error, float(-ndtri((1 - found.level) * wider / 2))


def _inside(one: Interval, most: float, times: float, wider: float) -> float:
    """The chance that an interval lies inside its room: neither end may reach it."""
    from scipy.special import ndtr

    error, reach = _errors(one, times, wider)
    if error == 0:
        return float(abs(one.value) < most)
    ends = [(side * most - one.value) / error - side * reach for side in (-1, 1)]
    return float(ndtr(ends[1]) - ndtr(ends[0])) if ends[0] < ends[1] else 0.0


def _outside(one: Interval, times: float, wider: float, off: float = 0.0) -> float:
    """The chance that an interval lies beyond `off`, on the side of zero on which its value is."""
    from scipy.special import ndtr

    error, reach = _errors(one, times, wider)
    beyond = abs(one.value) - off
    return float(ndtr(beyond / error - reach)) if error else float(beyond > 0)
