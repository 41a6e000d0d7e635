"""GEQ and GED: what a judgment's decisions add up to. The two are never combined.

    q_ir  = 10 / (2 * 4) * sum of the four grades of output i in partition r (an invalid one: 0)
    GEQ   = mean over outputs i of the mean over i's judgments r of q_ir
    GED_g = 10 * V/n * H(mode shares among the V valid outputs) / log n
    GED   = mean of GED_g over the groups g

Both run from 0 to 10. A group with fewer than two valid outputs, or one mode, has GED 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from strop.groupeval.judgment import Grade, Judgment

__all__ = ["TOP", "at_ceiling", "entropy", "ged_of_counts", "group_ged", "mode_counts", "quality"]

TOP = 10.0
"""The best GEQ and the best GED."""


def quality(grade: Grade) -> float:
    """The rubric total of one judged output, rescaled to 0 .. 10."""
    return TOP * sum(grade.scores) / (2 * len(grade.scores))


def mode_counts(outputs: Iterable[Grade]) -> list[int]:
    """How many valid outputs each mode holds, largest first."""
    modes = Counter(one.mode for one in outputs if one.valid)
    return sorted(modes.values(), reverse=True)


def entropy(counts: Sequence[float]) -> float:
    """Entropy of shares in proportion to the counts, in nats; 0 for no count at all."""
    total = math.fsum(counts)
    return math.fsum(-c / total * math.log(c / total) for c in counts if c > 0)


def ged_of_counts(counts: Sequence[int], size: int) -> float:
    """GED of a group from its mode counts: 10 / (n log n) * (V log V - sum of c log c)."""
    bracket = _xlogx(sum(counts)) - math.fsum(_xlogx(c) for c in counts)
    # Rounding may leave a trace of either sign where the exact value is 0 or 10.
    return min(TOP, max(0.0, TOP * bracket / _xlogx(size)))


def group_ged(judgment: Judgment) -> float:
    """GED of one judged group, by its definition."""
    counts, size = mode_counts(judgment.outputs), len(judgment.outputs)
    if at_ceiling(counts, size):
        return TOP
    return TOP * sum(counts) / size * entropy(counts) / math.log(size)


def at_ceiling(counts: Sequence[int], size: int) -> bool:
    """Whether the group cannot score higher: all outputs are valid and all modes differ."""
    return len(counts) == size


def _xlogx(x: float) -> float:
    return x * math.log(x) if x > 0 else 0.0
