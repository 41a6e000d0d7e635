"""What stands beside GEQ and GED: how a cell fails, how its groups fall into modes, how sure it is.

A *context* is one output in one partition: an output that is judged twice counts twice here. Rates
without a denominator are None, never zero. docs/groupeval-scores.md says what each may be read for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from strop.groupeval.cells import Cell
from strop.groupeval.scores import at_ceiling, entropy, group_ged, mode_counts

__all__ = ["diagnose", "ged"]

NON_DEGENERATION = 3
"""Which dimension says whether a text repeats or falls apart."""


def ged(cell: Cell) -> float:
    """The mean GED of the cell's groups."""
    return _mean([group_ged(judgment) for judgment in cell.judgments])


def diagnose(cell: Cell, *, modes: bool) -> dict[str, Any]:
    """All diagnostics of one cell; those about modes are None where the profile has none."""
    return {**_of_outputs(cell), **(_of_modes(cell) if modes else dict.fromkeys(_MODE_KEYS))}


def _of_outputs(cell: Cell) -> dict[str, Any]:
    grades = [one for judgment in cell.judgments for one in judgment.outputs]
    scores = np.array([one.scores for one in grades], dtype=float)
    quality = np.sort(cell.per_output)
    lowest = quality[: math.ceil(len(quality) / 4)]
    return {
        "invalid_rate": _share([not one.valid for one in grades]),
        "severe_degeneration_rate": float((scores[:, NON_DEGENERATION] == 0).mean()),
        "dimension_means": [float(mean) for mean in scores.mean(axis=0)],
        "quality_p10": float(np.quantile(quality, 0.1)),
        "bottom_quartile_quality": float(lowest.mean()),
        "non_high_confidence_rate": _share([one.confidence != "high" for one in cell.judgments]),
    }


_MODE_KEYS = (
    "effective_modes",
    "dominant_share",
    "hybrid_rate",
    "singleton_rate",
    "ceiling_rate",
)


def _of_modes(cell: Cell) -> dict[str, Any]:
    counts = [mode_counts(judgment.outputs) for judgment in cell.judgments]
    valid = [one for judgment in cell.judgments for one in judgment.outputs if one.valid]
    return {
        # No valid output is no mode: 0. (exp of an empty sum would claim one.)
        "effective_modes": _mean([math.exp(entropy(c)) if c else 0.0 for c in counts]),
        "dominant_share": _mean([c[0] / sum(c) for c in counts if c]) if any(counts) else None,
        "hybrid_rate": _share([one.hybrid for one in valid]),
        "singleton_rate": _share([len(c) == sum(c) >= 2 for c in counts]),
        "ceiling_rate": _share([at_ceiling(c, cell.size) for c in counts]),
    }


def _share(facts: Sequence[bool]) -> float | None:
    return sum(facts) / len(facts) if facts else None


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
