"""Who is revealed when: grids, reveal paths and their law nu.

A path assigns to every coordinate i its round K_i in 0..N-1; S_k are the coordinates of round k,
and A_i are those revealed in earlier rounds than i. A grid 0 = a_0 < ... < a_N = 1 makes the
rounds independent with Pr(K_i = k) = delta_k = a_k - a_{k-1}. `collisions` counts how many tokens
share their round, `clipped_masses` is the grid that the clipped schedule really uses: both describe
sampling geometry, not output error.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from strop.errors import UserError
from strop.theory.target import Array, shortened, subset_sizes

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
    if grid.ndim != 1 or grid.size < 2 or not np.isfinite(grid).all():
        raise _no_grid("is not a list of numbers", values)
    if abs(grid[0]) > 1e-12 or abs(grid[-1] - 1) > 1e-12:
        raise _no_grid("does not run from 0 to 1", values)
    grid[0], grid[-1] = 0.0, 1.0
    if (np.diff(grid) <= 0).any():
        raise _no_grid("does not increase", values)
    return grid


def _no_grid(why: str, values: ArrayLike) -> UserError:
    return UserError(
        f"The grid {why}.",
        where="grid",
        got=shortened(str(values)),
        expected="numbers that increase strictly from 0 to 1, such as [0, 0.5, 1]",
    )


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


# The time at which the public sampler stops and fills what is left.
TERMINAL_TIME = 1e-5


@dataclass(frozen=True)
class Collisions:
    """Expected occupancy of the reveal rounds."""

    length: int
    rounds: int
    empty: float
    """Rounds that reveal nothing: sum_k (1 - delta_k)^L."""
    singleton: float
    """Rounds that reveal one token: sum_k L delta_k (1 - delta_k)^(L-1)."""
    share_prob: float
    """Chance that a given token shares its round: 1 - sum_k delta_k (1 - delta_k)^(L-1)."""
    colliding_pairs: float
    """Unordered pairs in one round: L(L-1)/2 sum_k delta_k^2."""


def collisions(length: int, masses: ArrayLike) -> Collisions:
    """The four expectations for any reveal masses."""
    delta = np.asarray(masses, dtype=float)
    alone = (1 - delta) ** (length - 1)
    return Collisions(
        length=length,
        rounds=delta.size,
        empty=float(((1 - delta) ** length).sum()),
        singleton=float(length * (delta * alone).sum()),
        share_prob=float(1 - (delta * alone).sum()),
        colliding_pairs=float(length * (length - 1) / 2 * (delta**2).sum()),
    )


def equal_masses(rounds: int) -> Array:
    """N rounds of mass 1/N."""
    _check_rounds(rounds)
    return np.full(rounds, 1.0 / rounds)


def clipped_masses(updates: int, terminal: float = TERMINAL_TIME) -> Array:
    """M updates from time 1 to `terminal` and the cleanup round: N = M + 1 masses.

    A hidden token survives an update t -> s with probability s/t, so at time t it is hidden with
    probability t; the masses are the telescoping differences.
    """
    _check_rounds(updates)
    if not 0 < terminal < 1:
        raise UserError("The terminal time is out of range.", got=terminal, expected="0 < eps < 1")
    times = np.linspace(1.0, terminal, updates + 1)
    survival = np.cumprod(np.append(1.0, times[1:] / times[:-1]))
    return np.append(-np.diff(survival), survival[-1])


def cleanup_tv(length: int, terminal: float = TERMINAL_TIME) -> float:
    """1 - (1 - eps)^L: all that two ways of filling the last masks can differ by."""
    return float(-np.expm1(length * np.log1p(-terminal)))


def _check_rounds(rounds: int) -> None:
    if rounds < 1 or rounds > 10**8:
        raise UserError(
            "The number of rounds is out of range.",
            where="`rounds`",
            got=rounds,
            expected="between 1 and 100,000,000",
        )
