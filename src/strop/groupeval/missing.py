"""What the missing judgments could change: GEQ and GED if all of them were worst, or best.

A number from 300 of 320 groups is a number about 300 groups. The bounds say what it may become
when the rest is judged: a missing context has quality 0 or 10, a missing group GED 0 or 10.
"""

from __future__ import annotations

import numpy as np

from strop.groupeval.cells import Cell
from strop.groupeval.scores import TOP
from strop.groupeval.verdicts import Planned

__all__ = ["ged_bounds", "geq_bounds"]


def geq_bounds(cell: Cell | None, planned: Planned) -> list[float]:
    """The least and the greatest GEQ that the whole plan can still have."""
    if cell is None:
        return [0.0, TOP]
    known = float(np.sum(cell.q))
    contexts = planned.outputs * planned.partitions
    missing = contexts - int(cell.judged.sum())
    return [known / contexts, (known + TOP * missing) / contexts]


def ged_bounds(ged: float | None, accepted: int, planned: Planned) -> list[float]:
    """The least and the greatest GED that the whole plan can still have."""
    known = (ged or 0.0) * accepted
    return [known / planned.groups, (known + TOP * (planned.groups - accepted)) / planned.groups]
