"""Proposition 1 (per-sample metrics reward collapse) as a linear program.

Minimise E_Q f subject to E_Q g >= h over all laws Q on n outputs. The achievable pairs are the
convex hull of the points (f(x), g(x)), so a solution with at most two outputs always exists.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from strop.errors import UserError
from strop.theory.target import Array


@dataclass(frozen=True, eq=False)
class Collapse:
    """An optimal generator: its value and its law over outputs."""

    value: float
    """E_Q f at the optimum."""
    law: Array
    """Q."""

    @property
    def support(self) -> int:
        """The number of outputs in use."""
        return int((self.law > 1e-12).sum())


def solve_lp(f: ArrayLike, g: ArrayLike, threshold: float) -> Collapse:
    """The linear program by the dual simplex, which ends in a vertex."""
    from scipy.optimize import linprog

    cost, score = _scores(f, g, threshold)
    found = linprog(
        cost,
        A_ub=-score[None, :],
        b_ub=[-threshold],
        A_eq=np.ones((1, cost.size)),
        b_eq=[1.0],
        bounds=(0, None),
        method="highs-ds",
    )
    if found.status != 0:
        raise UserError("The linear program has no solution.", got=found.message)
    return Collapse(float(found.fun), np.asarray(found.x, dtype=float))


def two_outputs(f: ArrayLike, g: ArrayLike, threshold: float) -> Collapse:
    """The best law on one or two outputs, by comparing all pairs.

    On a pair (i, j) with g_i >= h > g_j the constraint binds, with weight (h - g_j)/(g_i - g_j)
    on i; an output that meets the constraint on its own is the pair (i, i).
    """
    cost, score = _scores(f, g, threshold)
    above, below = score[:, None] >= threshold, score[None, :] < threshold
    gap = np.where(above & below, score[:, None] - score[None, :], 1.0)
    weight = np.where(below, (threshold - score[None, :]) / gap, 1.0)
    mixed = weight * cost[:, None] + (1 - weight) * cost[None, :]
    values = np.where(above & below, mixed, np.inf)
    np.fill_diagonal(values, np.where(score >= threshold, cost, np.inf))
    i, j = np.unravel_index(values.argmin(), values.shape)
    law = np.zeros(cost.size)
    share = 1.0 if i == j else float(weight[i, j])
    law[i] += share
    law[j] += 1 - share
    return Collapse(float(values[i, j]), law)


def _scores(f: ArrayLike, g: ArrayLike, threshold: float) -> tuple[Array, Array]:
    cost, score = np.asarray(f, dtype=float), np.asarray(g, dtype=float)
    if cost.ndim != 1 or cost.shape != score.shape or cost.size == 0:
        raise UserError(
            "Both scores need one number per output.", got=f"{cost.shape}, {score.shape}"
        )
    if score.max() < threshold:
        raise UserError(
            "No generator meets the constraint.",
            got=f"largest g = {score.max()}",
            expected=f"at least {threshold}",
        )
    return cost, score
