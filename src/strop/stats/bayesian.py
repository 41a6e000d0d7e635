"""Weights of the Bayesian bootstrap (Rubin 1981): flat Dirichlet over the units.

Where the bootstrap counts how often a unit is drawn, this gives every unit a weight; no unit is
ever left out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

BAYESIAN = "Bayesian bootstrap"
CHUNK, LEAST_ROWS = 2**16, 16
"""Weights held at a time: half a megabyte stays in the processor's cache. Of a large pool a few
replicates all the same, because sums are taken over several at once."""

Floats = NDArray[np.float64]


def dirichlet(n: int, replicates: int, seed: int) -> Floats:
    """Weights of n units [replicates, n]; each row sums to one."""
    return np.random.default_rng(seed).dirichlet(np.ones(n), replicates)


def exponentials(n: int, replicates: int, seed: int) -> Iterator[Floats]:
    """Weights before they are divided by their sum, `[some replicates, n]` at a time."""
    rng = np.random.default_rng(seed)
    rows = max(LEAST_ROWS, CHUNK // max(1, n))
    for start in range(0, replicates, rows):
        yield rng.standard_exponential((min(rows, replicates - start), n))
