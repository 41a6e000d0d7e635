"""Who is revealed when: grids, reveal paths and their law nu.

A path assigns to every coordinate i its round K_i in 0..N-1; S_k are the coordinates of round k,
and A_i are those revealed in earlier rounds than i. A grid 0 = a_0 < ... < a_N = 1 makes the
rounds independent with Pr(K_i = k) = delta_k = a_k - a_{k-1}.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from strop.errors import UserError
from strop.theory.target import Array, subset_sizes

Ints = NDArray[np.int64]

# An array over all paths; beyond this the sum over subsets is the only route.
MAX_PATHS = 2**22


@dataclass(frozen=True, eq=False)
class PathLaw:
    """A law over reveal paths: `rounds[s, i]` is K_i on path s, which has weight nu(s)."""

    rounds: Ints
    weights: Array
    N: int

    @property
    def contexts(self) -> Ints:
        """The mask of A_i(S), what coordinate i sees when it is drawn: shape `(paths, L)`."""
        earlier = self.rounds[:, None, :] < self.rounds[:, :, None]
        bits = 1 << np.arange(self.rounds.shape[1])
        return (earlier * bits).sum(axis=2)


def checked_grid(values: ArrayLike) -> Array:
    """A grid as an array, or the message that says what is wrong with it."""
    try:
        grid = np.array(values, dtype=float)
    except (TypeError, ValueError):
        grid = np.array(np.nan)
    rule = "numbers that increase strictly from 0 to 1, such as [0, 0.5, 1]"
    if grid.ndim != 1 or grid.size < 2 or not np.isfinite(grid).all():
        raise UserError(
            "The grid is not a list of numbers.", where="grid", got=_short(values), expected=rule
        )
    if abs(grid[0]) > 1e-12 or abs(grid[-1] - 1) > 1e-12:
        raise UserError(
            "The grid does not run from 0 to 1.", where="grid", got=_short(values), expected=rule
        )
    grid[0], grid[-1] = 0.0, 1.0
    if (np.diff(grid) <= 0).any():
        raise UserError(
            "The grid does not increase.", where="grid", got=_short(values), expected=rule
        )
    return grid


def hazards(grid: Array) -> Array:
    """rho_k: the chance that a still hidden coordinate is revealed in round k."""
    rho = np.asarray(np.diff(grid) / (1 - grid[:-1]), dtype=np.float64)
    rho[-1] = 1.0
    return rho


def grid_paths(grid: Array, length: int) -> PathLaw:
    """All N**L paths of a grid, with nu(S) the product of the masses of the rounds."""
    masses = np.diff(grid)
    count = masses.size**length
    if count > MAX_PATHS:
        raise UserError(
            "There are too many reveal paths to enumerate.",
            got=f"{masses.size}^{length} = {count:,} paths",
            expected=f"at most {MAX_PATHS:,}",
        )
    rounds = np.indices((masses.size,) * length).reshape(length, -1).T
    return PathLaw(rounds.astype(np.int64), masses[rounds].prod(axis=1), masses.size)


def order_law(length: int, weights: ArrayLike | None = None) -> PathLaw:
    """One coordinate per round, in an order drawn from `weights` over all permutations.

    Theorem 2(a): no two coordinates ever share a round. Uniform weights unless given.
    """
    orders = np.array(list(permutations(range(length))), dtype=np.int64)
    rounds = np.argsort(orders, axis=1)
    law = np.ones(len(orders)) if weights is None else np.asarray(weights, dtype=float)
    return PathLaw(rounds.astype(np.int64), law / law.sum(), length)


def context_weights(levels: ArrayLike, length: int) -> Array:
    """Pr(A) for a set A of the other L-1 coordinates, each visible with probability a.

    Shape `(levels, 2**L)`: a**|A| (1-a)**(L-1-|A|), meant for sets that leave out one coordinate.
    """
    a = np.atleast_1d(np.asarray(levels, dtype=float))[:, None]
    sizes = np.minimum(subset_sizes(length), length - 1)[None, :]
    return a**sizes * (1 - a) ** (length - 1 - sizes)


def _short(values: object) -> str:
    text = str(values)
    return text if len(text) <= 80 else text[:77] + "..."
