"""The ancestral sampler itself, on the tables of a small denoiser: the check by simulation.

In round k every hidden coordinate is revealed with the hazard rho_k = delta_k / (1 - a_{k-1}),
decided on its own, and all revealed ones are drawn from what was visible before the round.
Nothing here knows the path law nu or the mixture pi.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from strop.theory.reveal import hazards
from strop.theory.sampler import LawProblem


def simulate(problem: LawProblem, draws: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Output indices (into the enumerated space) of `draws` independent runs."""
    shape = problem.target.shape
    strides = np.array([int(np.prod(shape[i + 1 :])) for i in range(len(shape))])
    tables = problem.tables()
    index = np.zeros(draws, dtype=np.int64)
    visible = np.zeros(draws, dtype=np.int64)
    for k, rho in enumerate(hazards(problem.grid)):
        table = tables[k if len(tables) > 1 else 0]
        gain, shown = np.zeros_like(index), np.zeros_like(visible)
        for i, values in enumerate(shape):
            (rows,) = np.nonzero((visible >> i & 1 == 0) & (rng.random(draws) < rho))
            # Hidden coordinates are at 0 in `index`; the table does not depend on them.
            at = index[rows, None] + strides[i] * np.arange(values)
            probs = np.exp(table[i, visible[rows, None], at])
            cumulative = probs.cumsum(axis=1)
            level = rng.random(rows.size)[:, None] * cumulative[:, -1:]
            drawn = np.minimum((cumulative <= level).sum(axis=1), values - 1)
            gain[rows] += strides[i] * drawn
            shown[rows] |= 1 << i
        index += gain
        visible |= shown
    return index
