"""What the slope g is made of: averages over paths of weight, surprisal and entropy.

For a path S and output x: w = Q^S(x) / pi(x), sigma = -log Q^S(x), and eta the entropies of the
predictions along the path. Both functions return, for every output, the five averages over nu of
(w, w sigma, w eta, sigma, eta), at lambda = 1; one lists the paths, the other never does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from strop.theory.denoiser import Conditionals
from strop.theory.reveal import context_weights
from strop.theory.sampler import (
    CHUNK,
    LawProblem,
    gather,
    log_output,
    nested_pairs,
    reachable,
    transitions,
)
from strop.theory.target import Array


def entropy_tables(q: Conditionals, tables: NDArray) -> NDArray:
    """H(q^i(. | x_A)) in the layout of the tables."""
    out = np.empty_like(tables)
    log_p = np.where(np.isneginf(tables), 0.0, tables)
    for i in range(len(q.shape)):
        cells = (np.exp(tables[:, i]) * -log_p[:, i]).reshape(*tables[:, i].shape[:2], *q.shape)
        summed = cells.sum(axis=i + 2, keepdims=True)
        out[:, i] = np.broadcast_to(summed, cells.shape).reshape(out[:, i].shape)
    return out


def path_moments(problem: LawProblem) -> Array:
    """The five averages by listing all paths, in blocks."""
    q, law = problem.denoiser, problem.paths()
    tables = q.tempered(1.0)
    entropies, contexts = entropy_tables(q, tables), law.contexts
    log_pi = _no_minus_inf(log_output(problem, tables))
    step = max(1, CHUNK // problem.target.size)
    sums = np.zeros((5, problem.target.size))
    for start in range(0, law.weights.size, step):
        rows = slice(start, start + step)
        log_q = gather(tables, law.rounds[rows], contexts[rows])
        eta = gather(entropies, law.rounds[rows], contexts[rows])
        w, sigma = np.exp(log_q - log_pi), -_no_minus_inf(log_q)
        nu = law.weights[rows]
        sums += np.stack([nu @ part for part in (w, w * sigma, w * eta, sigma, eta)])
    return sums


def subset_moments(problem: LawProblem) -> Array:
    """The same averages by the recursion over visible sets, for any number of rounds.

    Besides the weight W(A) of every visible set it carries W sigma and W eta; the unweighted
    averages are linear in the tables and need only the law of the contexts.
    """
    q = problem.denoiser
    tables = q.tempered(1.0)
    surprisals, entropies = -_no_minus_inf(tables), entropy_tables(q, tables)
    pi, pi_sigma, pi_eta = carried(problem, tables, (surprisals, entropies))
    safe = np.where(pi > 0, pi, 1.0)
    plain = [_plain_average(problem, table) for table in (surprisals, entropies)]
    return np.stack([pi / safe, pi_sigma / safe, pi_eta / safe, *plain])


def carried(problem: LawProblem, tables: NDArray, extras: tuple[NDArray, ...]) -> Array:
    """pi(x), and sum_S nu(S) Q^S(x) f(x, S) for every f that adds up table entries along S."""
    small, large = nested_pairs(problem.target.L)
    step = max(1, CHUNK // small.size)
    parts = []
    for start in range(0, problem.target.size, step):
        at = slice(start, start + step)
        some = tuple(extra[..., at] for extra in extras)
        parts.append(_carry(tables[..., at], some, problem.masses, small, large))
    return np.concatenate(parts, axis=-1)


def _carry(
    tables: NDArray, extras: tuple[NDArray, ...], masses: Array, small: NDArray, large: NDArray
) -> Array:
    """The recursion over visible sets with W and W f for every f as its state."""
    subsets = tables.shape[-2]
    state = np.zeros((1 + len(extras), subsets, tables.shape[-1]))
    state[0, 0] = 1.0
    for k, mass in enumerate(masses):
        keep = reachable(small, large, k, masses.size, subsets)
        low, high, r = small[keep], large[keep], k if len(tables) > 1 else 0
        chance = np.exp(transitions(tables[r], low, high, float(np.log(mass))))
        moved = state[:, low]
        for n, extra in enumerate(extras):
            moved[n + 1] += moved[0] * transitions(extra[r], low, high, 0.0)
        ends, starts = np.unique(high, return_index=True)
        state = np.zeros_like(state)
        state[:, ends] = np.add.reduceat(moved * chance, starts, axis=1)
    return state[:, -1]


def _plain_average(problem: LawProblem, table: NDArray) -> Array:
    """E_nu of a sum over coordinates of table entries (round K_i, i, A_i)."""
    length = problem.target.L
    chance = context_weights(problem.grid[:-1], length) * problem.masses[:, None]
    masks = np.arange(1 << length)
    total = np.zeros(problem.target.size)
    for i in range(length):
        A = masks[masks >> i & 1 == 0]
        weights = chance[:, A] if len(table) > 1 else chance[:, A].sum(axis=0, keepdims=True)
        total += np.einsum("ka,kax->x", weights, table[:, i, A])
    return total


def _no_minus_inf(values: NDArray) -> NDArray:
    """Impossible outputs carry no weight; zero keeps their products defined."""
    return np.where(np.isneginf(values), 0.0, values)
