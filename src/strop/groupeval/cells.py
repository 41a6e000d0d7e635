"""The judgments of one cell as arrays: the shape in which scores and replicates are computed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strop.groupeval.judgment import Judgment
from strop.groupeval.scores import quality

__all__ = ["Cell", "by_cell"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """All accepted judgments of one generator. A *context* is one output in one partition."""

    name: str
    judgments: tuple[Judgment, ...]
    outputs: tuple[int, ...]
    """The indices that were judged at least once, ascending."""
    partitions: tuple[int, ...]
    """The partitions that have at least one judgment, ascending."""
    q: Floats
    """Quality, `[outputs, partitions]`; 0 where there is no judgment."""
    judged: NDArray[np.bool_]
    """Which contexts have a judgment, `[outputs, partitions]`."""

    row: dict[int, int]
    """Where each output's index stands in the arrays."""

    @property
    def size(self) -> int:
        """Outputs per group."""
        return len(self.judgments[0].outputs)

    @property
    def per_output(self) -> Floats:
        """Each output's mean quality over its judgments."""
        return self.q.sum(axis=1) / self.judged.sum(axis=1)

    @property
    def nonzero(self) -> int:
        """Outputs with a quality above 0 in any judgment."""
        return int((self.q > 0).any(axis=1).sum())

    def geq(self) -> float:
        """The mean over outputs; every output counts once, however often it was judged."""
        return float(self.per_output.mean())


def by_cell(judgments: Iterable[Judgment]) -> dict[str, Cell]:
    """The cells of a set of judgments, in order of first appearance."""
    grouped: dict[str, list[Judgment]] = {}
    for judgment in judgments:
        grouped.setdefault(judgment.cell, []).append(judgment)
    return {name: _cell(name, mine) for name, mine in grouped.items()}


def _cell(name: str, judgments: list[Judgment]) -> Cell:
    outputs = sorted({one.index for judgment in judgments for one in judgment.outputs})
    partitions = sorted({judgment.partition for judgment in judgments})
    row = {index: i for i, index in enumerate(outputs)}
    column = {partition: r for r, partition in enumerate(partitions)}
    q = np.zeros((len(outputs), len(partitions)))
    judged = np.zeros(q.shape, dtype=bool)
    for judgment in judgments:
        for one in judgment.outputs:
            at = row[one.index], column[judgment.partition]
            q[at], judged[at] = quality(one), True
    return Cell(name, tuple(judgments), tuple(outputs), tuple(partitions), q, judged, row)
