"""How many outputs would probably decide.

Intervals shrink as one over the square root of the number of outputs, so from the gap and its
interval follows the number at which, if the gap is what it looks like, a rule would hold four times
out of five. The estimate inherits the noise of the gap: it is an order of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from strop.comparing.frontier import Equal
from strop.comparing.verdict import Layer
from strop.stats.interval import Interval

POWER = 0.8416
"""Standard errors that make four times out of five."""
MOST = 1_000_000
ROUND = 32


def enough(n: int, equal: Equal, layer: Layer | None, margin: float) -> int | None:
    """Outputs per temperature; None where no number below a million would do."""
    room = [margin - off for off in equal.bend]
    ways = [_inside(equal.points, room), _outside(equal.mean, sum(equal.bend) / len(room))]
    if layer is not None:
        # On frontiers that are the same the published settings must be told apart, or not be.
        last = min(_inside([layer.gap], [margin]), _outside(layer.sharper))
        ways[0] = max(ways[0], last)
    factor = max(1.0, min(ways))
    found = math.ceil(n * factor / ROUND) * ROUND if factor < MOST / n else MOST
    return None if found >= MOST else max(found, n + ROUND)


def _reach(one: Interval) -> float:
    """Half of an interval, and what makes it hold four times out of five."""
    from scipy.stats import norm

    return one.half * (1 + POWER / float(norm.ppf((1 + one.level) / 2)))


def _inside(points: Sequence[Interval], room: Sequence[float]) -> float:
    """How many times as many outputs put every interval inside its room."""
    pairs = zip(points, room, strict=True)
    return max(_times(_reach(one), most - abs(one.value)) for one, most in pairs)


def _outside(one: Interval, off: float = 0.0) -> float:
    """How many times as many outputs keep an interval away from zero, and from what is near it."""
    return _times(_reach(one), abs(one.value) - off)


def _times(reach: float, room: float) -> float:
    return math.inf if room <= 0 else (reach / room) ** 2
