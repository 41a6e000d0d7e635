"""Who is revealed when, and the parallel sampler as an exact law: the mixture over reveal paths.

A path S assigns to every coordinate i its round K_i in 0..N-1; S_k are the coordinates of round k,
and A_i are those revealed in earlier rounds than i. A grid 0 = a_0 < ... < a_N = 1 makes the
rounds independent with Pr(K_i = k) = delta_k = a_k - a_{k-1}. `collisions` counts how many tokens
share their round, `clipped_masses` is the grid that the clipped schedule really uses: both describe
sampling geometry, not output error.

In round k the coordinates of S_k are drawn independently given all earlier rounds:
Q^S(x) = prod_k prod_{i in S_k} q^i(x_i | x_{A_{k-1}}), and pi(x) = sum_S nu(S) Q^S(x).

Two routes to pi: the sum over all N**L paths, and a recursion over visible sets that adds up the
weight of every set round by round (3**L transitions per round, any number of rounds).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from strop.errors import UserError
from strop.theory.target import (
    Array,
    Conditionals,
    Target,
    log_sum,
    members,
    shortened,
    subset_sizes,
)

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


# Entries of one block of the array over (path, output).
CHUNK = 2**21

# Below this a plain product may have lost terms to underflow.
UNDERFLOW = 1e-250


@dataclass(frozen=True, eq=False)
class LawProblem:
    """A target, a grid, a denoiser and its inverse temperature(s): all that a law depends on."""

    target: Target
    grid: Array
    """a_0..a_N."""
    denoiser: Conditionals
    lam: Array
    """One inverse temperature (length 1) or one per round (length N)."""

    @classmethod
    def bayes(cls, target: Target, grid: ArrayLike, lam: ArrayLike = 1.0) -> LawProblem:
        """The exact denoiser of the target itself."""
        return cls(
            target,
            np.asarray(grid, dtype=float),
            Conditionals.bayes(target),
            np.atleast_1d(np.asarray(lam, dtype=float)),
        )

    @property
    def N(self) -> int:  # noqa: N802
        """The number of rounds."""
        return self.grid.size - 1

    @property
    def masses(self) -> Array:
        """delta_1..delta_N."""
        return np.diff(self.grid)

    @property
    def entries(self) -> int:
        """How large the array over (path, output) is."""
        return self.N**self.target.L * self.target.size

    @property
    def enumerable(self) -> bool:
        """Whether the sum over paths is cheap enough to be one of the routes."""
        return self.N**self.target.L <= MAX_PATHS and self.entries <= 2**25

    def tables(self) -> NDArray:
        """log q_lambda for every round, coordinate, visible set and output."""
        return self.denoiser.tempered(self.lam)

    def paths(self) -> PathLaw:
        """All reveal paths of the grid."""
        return grid_paths(self.grid, self.target.L)


def path_log_law(tables: NDArray, law: PathLaw) -> NDArray:
    """log Q^S(x): shape `(..., paths, outputs)`, with the leading axes of `tables`."""
    return gather(tables, law.rounds, law.contexts)


def gather(tables: NDArray, rounds: NDArray, contexts: NDArray) -> NDArray:
    """Add up one table entry per coordinate along each path."""
    shared = tables.shape[-4] == 1
    total: NDArray | None = None
    for i in range(rounds.shape[1]):
        r = np.zeros_like(rounds[:, i]) if shared else rounds[:, i]
        part = tables[..., r, i, contexts[:, i], :]
        total = part if total is None else np.add(total, part, out=total)
    if total is None:
        raise ValueError("a path needs at least one coordinate")
    return total


def path_chunks(problem: LawProblem, *tables: NDArray) -> Iterator[tuple[NDArray, ...]]:
    """Blocks of all paths, so that memory stays bounded: nu, and what each table adds up to."""
    law = problem.paths()
    contexts = law.contexts
    step = max(1, CHUNK // problem.target.size)
    for start in range(0, law.weights.size, step):
        rows = slice(start, start + step)
        sums = (gather(table, law.rounds[rows], contexts[rows]) for table in tables)
        yield (law.weights[rows], *sums)


def output_by_paths(tables: NDArray, law: PathLaw) -> NDArray:
    """log pi as the logarithm of the mixture over all paths at once."""
    log_nu = np.log(law.weights)[:, None]
    return log_sum(log_nu + path_log_law(tables, law), axis=-2)


def output_by_subsets(tables: NDArray, masses: Array) -> NDArray:
    """log pi by following the weight W_k(A, x) of every visible set A through the rounds.

    W_k(A') = sum over A in A' of W_{k-1}(A) prod_{i in A' minus A} delta_k q^i(x_i | x_A).
    Outputs do not interact, so they are taken in blocks to bound memory.
    """
    small, large = nested_pairs(tables.shape[-3])
    lead = int(np.prod(tables.shape[:-4], dtype=np.int64))
    step = max(1, 2 * CHUNK // (small.size * lead))
    parts = [
        _block(tables[..., start : start + step], masses, small, large)
        for start in range(0, tables.shape[-1], step)
    ]
    return np.concatenate(parts, axis=-1)


def _block(tables: NDArray, masses: Array, small: NDArray, large: NDArray) -> NDArray:
    """log pi of some outputs: plain products where they do not underflow, logarithms elsewhere.

    All terms are positive, so the plain sum is as exact as the other and several times faster.
    """
    with np.errstate(divide="ignore", under="ignore"):
        out = np.log(_recursion(np.exp(tables), masses, small, large, log=False))
    (tiny,) = np.nonzero((out < np.log(UNDERFLOW)).any(axis=tuple(range(out.ndim - 1))))
    if tiny.size:
        out[..., tiny] = _recursion(tables[..., tiny], masses, small, large, log=True)
    return out


def _recursion(
    tables: NDArray, masses: Array, small: NDArray, large: NDArray, log: bool
) -> NDArray:
    """The weight of the full set after the last round, from tables q or log q."""
    subsets, combine = tables.shape[-2], np.logaddexp if log else np.add
    empty, certain = (-np.inf, 0.0) if log else (0.0, 1.0)
    weight = np.full((*tables.shape[:-4], subsets, tables.shape[-1]), empty)
    weight[..., 0, :] = certain
    for k, mass in enumerate(masses):
        keep = reachable(small, large, k, masses.size, subsets)
        table = tables[..., k if tables.shape[-4] > 1 else 0, :, :, :]
        low, high = small[keep], large[keep]
        if log:
            step = transitions(table, low, high, float(np.log(mass)))
            step += weight[..., low, :]
        else:
            step = weight[..., low, :]
            step *= (mass ** members(high & ~low))[:, None]
            for i in range(table.shape[-3]):  # the predictions of every pair's new coordinates
                (chosen,) = np.nonzero((high & ~low) >> i & 1)
                step[..., chosen, :] *= table[..., i, low[chosen], :]
        ends, starts = np.unique(high, return_index=True)
        weight = np.full_like(weight, empty)
        weight[..., ends, :] = combine.reduceat(step, starts, axis=-2)
    return weight[..., -1, :]


def reachable(
    small: NDArray, large: NDArray, k: int, rounds: int, subsets: int
) -> NDArray[np.bool_]:
    """Pairs that round k can join: nothing is visible before the first, all after the last."""
    keep = np.ones(small.size, dtype=bool)
    if k == 0:
        keep &= small == 0
    if k == rounds - 1:
        keep &= large == subsets - 1
    return keep


def transitions(tables: NDArray, small: NDArray, large: NDArray, log_mass: float) -> NDArray:
    """log of prod_{i in A' minus A} delta q^i(x_i | x_A) for every listed pair of sets."""
    new = large & ~small
    count = members(new)[:, None] * log_mass
    out = np.broadcast_to(count, (*tables.shape[:-3], small.size, tables.shape[-1])).copy()
    for i in range(tables.shape[-3]):
        (chosen,) = np.nonzero(new >> i & 1)
        out[..., chosen, :] += tables[..., i, small[chosen], :]
    return out


def nested_pairs(length: int) -> tuple[NDArray, NDArray]:
    """All pairs A inside A' as masks, sorted by A': there are 3**L."""
    subsets = np.arange(1 << length)
    large, small = np.nonzero((subsets[None, :] & ~subsets[:, None]) == 0)
    return small, large


def log_output(problem: LawProblem, tables: NDArray | None = None) -> NDArray:
    """log pi by the cheaper of the two routes."""
    tables = problem.tables() if tables is None else tables
    if problem.N ** (problem.target.L - 1) <= 3**problem.target.L and problem.enumerable:
        return output_by_paths(tables, problem.paths())
    return output_by_subsets(tables, problem.masses)
