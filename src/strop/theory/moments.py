"""What the slope g is made of: averages over paths of weight, surprisal and entropy.

For a path S and output x: w = Q^S(x) / pi(x), sigma = -log Q^S(x), and eta the entropies of the
predictions along the path. Both functions return, for every output, the five averages over nu of
(w, w sigma, w eta, sigma, eta), at lambda = 1; one lists the paths, the other never does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from strop.theory.denoiser import Denoiser
from strop.theory.reveal import context_weights
from strop.theory.sampler import (
    CHUNK,
    Problem,
    gather,
    log_output,
    nested_pairs,
    reachable,
    transitions,
)
from strop.theory.target import Array

__all__ = ["entropy_tables", "path_moments", "subset_moments"]


def entropy_tables(q: Denoiser, tables: NDArray) -> NDArray:
    """H(q^i(. | x_A)) in the layout of the tables."""
    out = np.empty_like(tables)
    log_p = np.where(np.isneginf(tables), 0.0, tables)
    for i in range(len(q.shape)):
        cells = (np.exp(tables[:, i]) * -log_p[:, i]).reshape(*tables[:, i].shape[:2], *q.shape)
        summed = cells.sum(axis=i + 2, keepdims=True)
        out[:, i] = np.broadcast_to(summed, cells.shape).reshape(out[:, i].shape)
    return out


def path_moments(problem: Problem) -> Array:
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


def subset_moments(problem: Problem) -> Array:
    """The same averages by the recursion over visible sets, for any number of rounds.

    Besides the weight W(A) of every visible set it carries W sigma and W eta; the unweighted
    averages are linear in the tables and need only the law of the contexts.
    """
    q = problem.denoiser
    tables = q.tempered(1.0)
    entropies = entropy_tables(q, tables)
    small, large = nested_pairs(problem.target.L)
    step = max(1, CHUNK // small.size)
    parts = [
        _weighted(tables[..., s : s + step], entropies[..., s : s + step], problem, small, large)
        for s in range(0, problem.target.size, step)
    ]
    pi, pi_sigma, pi_eta = np.concatenate(parts, axis=-1)
    safe = np.where(pi > 0, pi, 1.0)
    plain = [_plain_average(problem, table) for table in (-_no_minus_inf(tables), entropies)]
    return np.stack([pi / safe, pi_sigma / safe, pi_eta / safe, *plain])


def _weighted(
    tables: NDArray, entropies: NDArray, problem: Problem, small: NDArray, large: NDArray
) -> Array:
    subsets, masses = tables.shape[-2], problem.masses
    state = np.zeros((3, subsets, tables.shape[-1]))
    state[0, 0] = 1.0
    for k, mass in enumerate(masses):
        keep = reachable(small, large, k, masses.size, subsets)
        low, high, r = small[keep], large[keep], k if len(tables) > 1 else 0
        log_step = transitions(tables[r], low, high, 0.0)
        eta = transitions(entropies[r], low, high, 0.0)
        chance = np.exp(transitions(tables[r], low, high, float(np.log(mass))))
        sigma = -_no_minus_inf(log_step)
        W, W_sigma, W_eta = state[:, low]
        moved = np.stack([W, W_sigma + W * sigma, W_eta + W * eta]) * chance
        ends, starts = np.unique(high, return_index=True)
        state = np.zeros_like(state)
        state[:, ends] = np.add.reduceat(moved, starts, axis=1)
    return state[:, -1]


def _plain_average(problem: Problem, table: NDArray) -> Array:
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
