"""GED of a group from its mode counts alone, by the formula that needs no shares."""

from __future__ import annotations

import math
from collections.abc import Sequence

from strop.groupeval.scores import TOP


def ged_of_counts(counts: Sequence[int], size: int) -> float:
    """10 / (n log n) * (V log V - sum of c log c)."""
    bracket = _xlogx(sum(counts)) - math.fsum(map(_xlogx, counts))
    # Rounding may leave a trace of either sign where the exact value is 0 or 10.
    return min(TOP, max(0.0, TOP * bracket / _xlogx(size)))


def _xlogx(x: float) -> float:
    return x * math.log(x) if x > 0 else 0.0
