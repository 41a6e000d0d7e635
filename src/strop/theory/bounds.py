"""What follows from the profiles: integral form, mesh, refinement, remainder, Lipschitz, kernels.

Each bound is a function that returns its two sides, so that a caller can show or compare them.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike

from strop.theory.accounting import entropy_of
from strop.theory.profile import (
    RateProfile,
    dependence_profile,
    dependence_sum,
    entropy_profile,
    loss_profile,
    token_losses,
)
from strop.theory.sampler import LawProblem, log_output
from strop.theory.target import Array, Target


def parallel_price(target: Target, grid: ArrayLike) -> float:
    """B_N = sum_k delta_k h(a_{k-1}) - H(X): it depends on the target and the grid alone."""
    a = np.asarray(grid, dtype=float)
    return float(np.diff(a) @ entropy_profile(target)(a[:-1])) - target.entropy


def price_as_integral(target: Target, grid: ArrayLike) -> float:
    """B_N = sum_k integral of (a_k - u) D(u) over round k, with D from mutual informations."""
    a = np.asarray(grid, dtype=float)
    D = dependence_profile(target).polynomial
    total = 0.0
    for low, high in pairwise(a):
        integral = (Polynomial([high, -1.0]) * D).integ()
        total += float(integral(high) - integral(low))
    return total


def uniform_remainder_sides(target: Target, rounds: int) -> tuple[float, float]:
    """|B_N - (TC + DTC) / 2N| and its bound max|h''| / 12 N^2, on the equal grid."""
    price = parallel_price(target, np.linspace(0, 1, rounds + 1))
    left = abs(price - dependence_sum(target) / (2 * rounds))
    second = entropy_profile(target).polynomial.deriv(2)
    return left, sup_abs(second) / (12 * rounds**2)


def lipschitz_sides(problem: LawProblem) -> tuple[float, float]:
    """|C_N - area of e_lambda| and (K/2) sum delta^2, for one denoiser shared by all rounds."""
    target, masses = problem.target, problem.masses
    losses = token_losses(target, problem.tables())[0]
    c, h = loss_profile(losses, target.L), entropy_profile(target)
    error = RateProfile(c.values - h.values)
    left = abs(float(masses @ error(problem.grid[:-1])) - error.area)
    slope = sup_abs(error.polynomial.deriv())
    return left, slope / 2 * float((masses**2).sum())


def pair_entropy_sides(problem: LawProblem) -> tuple[float, float]:
    """H(pi_1) and H(P) + c I(X_1; X_2) for two coordinates: the first is never smaller."""
    target = problem.target
    H = target.entropies
    information = float(H[1] + H[2] - H[3])
    c = float((problem.masses**2).sum())
    return entropy_of(np.exp(log_output(problem))), target.entropy + c * information


def kernel_tv_bound(xi: ArrayLike) -> tuple[float, float]:
    """1 - prod(1 - xi_k) and sum xi_k: what step errors of size xi_k can do to the output."""
    steps = np.asarray(xi, dtype=float)
    return float(-np.expm1(np.log1p(-np.minimum(steps, 1 - 1e-16)).sum())), float(steps.sum())


def sup_abs(polynomial: Polynomial) -> float:
    """max |p| on [0, 1]: at an end or at a real root of the derivative."""
    slope = polynomial.deriv()
    roots = slope.roots() if slope.degree() > 0 else np.array([])
    inner = [r.real for r in roots if abs(r.imag) < 1e-9 and 0 < r.real < 1]
    points = np.array([0.0, 1.0, *inner])
    return float(np.abs(polynomial(points)).max())


def round_errors(first: LawProblem, second: LawProblem) -> Array:
    """xi_k = sup over states of the TV distance of the two samplers' kernels in round k.

    Both share the grid. In state (A, x_A) the set B joins with its reveal probability, and the
    kernels then differ by the TV distance of two products over B.
    """
    target, masses, grid = first.target, first.masses, first.grid
    q, r = first.tables(), second.tables()
    out = np.zeros(first.N)
    for k, mass in enumerate(masses):
        rho = 1.0 if k == first.N - 1 else mass / (1 - grid[k])
        contexts = (0,) if k == 0 else range(target.subsets - 1)
        worst = [
            _state_error(q[min(k, len(q) - 1)], r[min(k, len(r) - 1)], A, rho, target.shape)
            for A in contexts
        ]
        out[k] = max(worst)
    return out


def _state_error(q: Array, r: Array, A: int, rho: float, shape: tuple[int, ...]) -> float:
    """The largest kernel distance over the states with visible set A."""
    length = len(shape)
    hidden = [i for i in range(length) if not A >> i & 1]
    total = np.zeros(())
    for choice in range(1, 1 << len(hidden)):
        block = [i for n, i in enumerate(hidden) if choice >> n & 1]
        chance = rho ** len(block) * (1 - rho) ** (len(hidden) - len(block))
        gap = np.abs(np.exp(q[block, A].sum(axis=0)) - np.exp(r[block, A].sum(axis=0)))
        cells = gap.reshape(shape)
        # Coordinates outside A and B do not matter: their axes repeat the same value.
        idle = tuple(i for i in hidden if i not in block)
        distance = 0.5 * cells.mean(axis=idle, keepdims=True).sum(axis=tuple(block), keepdims=True)
        total = total + chance * distance
    return float(np.max(total))
