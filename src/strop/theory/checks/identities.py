"""Theorem 1, its profiles and its bounds, each against a second route."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.polynomial.legendre import leggauss

from strop.theory import accounting, profile, sampler
from strop.theory.checks.base import (
    Assertion,
    Case,
    Check,
    at_most,
    bayes_case,
    equal,
    problem_cases,
    random_grid,
    random_target,
)
from strop.theory.document import to_problem
from strop.theory.sampler import LawProblem
from strop.theory.target import Array, Target, contexts, expect, log_of, subset_sizes


def accounting_identity(case: Case) -> Iterator[Assertion]:
    """Both KL identities and the meaning of every term."""
    problem = to_problem(case)
    a, target = accounting.account(problem), problem.target
    tables = problem.tables()
    log_pi = sampler.output_by_paths(tables, problem.paths())
    yield equal("KL(P x nu || Q) = J_N - H(X)", a.KL_aug, a.J_N - a.H_X)
    yield equal("KL(P x nu || Q) = B_N + C_N", a.KL_aug, a.B_N + a.C_N)
    yield equal("KL(P || pi) = B_N + C_N - R_N", a.KL_out, a.B_N + a.C_N - a.R_N)
    conditional = accounting.expected_conditional_tc(target, problem.masses)
    yield equal("B_N is the expected conditional total correlation", a.B_N, conditional)
    integral = accounting.price_as_integral(target, problem.grid)
    yield equal("B_N is the integral of (a_k - u) D(u)", a.B_N, integral)
    yield equal("C_N is the expected posterior KL over contexts", a.C_N, _posterior_kl(problem))
    yield at_most("terms are nonnegative", 0.0, np.array([a.B_N, a.C_N, a.R_N, a.KL_out]))
    yield equal("pi is a law", np.exp(log_pi).sum(), 1.0)
    subsets = sampler.output_by_subsets(tables, problem.masses)
    yield equal("pi by paths equals pi by subsets", np.exp(log_pi), np.exp(subsets))
    yield equal("KL_out is that of the enumerated law", a.KL_out, accounting.kl(target.p, log_pi))
    yield at_most("B_N is at most its mesh bound", a.B_N, a.mesh_bound)
    yield at_most("Pinsker: TV <= sqrt((B_N + C_N) / 2)", a.TV, a.pinsker_bound)


def profiles(case: Case) -> Iterator[Assertion]:
    """Areas, slopes and dependence."""
    problem = to_problem(case)
    target = problem.target
    h, D = profile.entropy_profile(target), profile.dependence_profile(target)
    levels = np.linspace(0, 1, 9)
    yield equal("area of h is H(X)", h.area, target.entropy)
    yield equal("area of h by quadrature", _quadrature(h), target.entropy)
    yield equal("D = -h'", D(levels), -h.polynomial.deriv()(levels))
    yield at_most("D is nonnegative", -D(levels), 0.0)
    yield at_most("h does not increase", np.diff(h(levels)), 0.0)
    TC, DTC = profile.total_correlations(target)
    yield equal("TC + DTC = sum I(X_i; X_-i)", TC + DTC, profile.dependence_sum(target))
    yield equal("area of D is the dependence sum", D.area, profile.dependence_sum(target))
    losses = profile.token_losses(target, problem.tables())
    c = profile.loss_profile(losses[0], target.L)
    yield at_most("h <= c_lambda", h(levels), c(levels))
    yield equal("the objective is the area of c_lambda", c.area, _objective(losses[0], target))
    for rounds in (1, 2, 3, 5):
        left, right = accounting.uniform_remainder_sides(target, rounds)
        # Equality holds for quadratic h, so the slack is that of rounding.
        yield at_most("uniform-grid remainder", left, right + 1e-12)
    if len(losses) == 1:
        left, right = accounting.lipschitz_sides(problem)
        yield at_most("Lipschitz bound on C_N", left, right)


def refinement(case: Case) -> Iterator[Assertion]:
    """A new grid point lowers B_N by (d - c)[h(b) - h(c)]."""
    problem = to_problem(case)
    target, grid = problem.target, problem.grid
    h, before = profile.entropy_profile(target), accounting.parallel_price(target, grid)
    for k in range(problem.N):
        low, high = grid[k], grid[k + 1]
        new = low + 0.37 * (high - low)
        after = accounting.parallel_price(target, np.insert(grid, k + 1, new))
        drop = float((high - new) * (h(low) - h(new)))
        yield equal("refinement lowers B_N by (d - c)[h(b) - h(c)]", before - after, drop)
        yield at_most("nested refinement never raises B_N", after, before)


def pair_entropy(case: Case) -> Iterator[Assertion]:
    """Two coordinates: an exact model is too random by at least c I(X_1; X_2)."""
    problem = to_problem(case)
    entropy, least = accounting.pair_entropy_sides(problem)
    yield at_most("H(pi_1) >= H(P) + c I(X_1; X_2)", least, entropy)
    P, c = problem.target.P, float((problem.masses**2).sum())
    mixture = c * np.outer(P.sum(axis=1), P.sum(axis=0)) + (1 - c) * P
    pi = np.exp(sampler.log_output(problem)).reshape(P.shape)
    yield equal("pi_1 = c P_1 x P_2 + (1 - c) P", pi, mixture)


def _posterior_kl(problem: LawProblem) -> float:
    """sum_k delta_k E_A sum_i KL(P(X_i | X_A) || q^i(. | X_A)), prediction by prediction."""
    target, tables = problem.target, problem.tables()
    joint, sizes, total = target.marginals, subset_sizes(target.L), 0.0
    for k, (level, mass) in enumerate(zip(problem.grid[:-1], problem.masses, strict=True)):
        table = tables[k if len(tables) > 1 else 0]
        for i, A in contexts(target.L):
            with np.errstate(invalid="ignore"):
                truth = log_of(joint[A | 1 << i]) - log_of(joint[A])
                gap = float(expect(target.p, truth - table[i, A]))
            chance = level ** sizes[A] * (1 - level) ** (target.L - 1 - sizes[A])
            total += mass * chance * gap
    return total


def _quadrature(function: profile.RateProfile) -> float:
    """Gauss-Legendre on [0, 1], exact for these polynomials."""
    nodes, weights = leggauss(16)
    return float(weights @ function((nodes + 1) / 2)) / 2


def _objective(losses: Array, target: Target) -> float:
    """The continuous-time objective: hidden tokens at time t weighed by 1/t, visible odds 1 - t.

    The quadrature runs over masked sets, unlike the profile, which forces one mask.
    """
    nodes, weights = leggauss(16)
    sizes, total = subset_sizes(target.L), 0.0
    hidden = [[i for i in range(target.L) if not A >> i & 1] for A in range(target.subsets)]
    summed = np.array([losses[idx, A].sum() for A, idx in enumerate(hidden)])
    for a, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        chance = a**sizes * (1 - a) ** (target.L - sizes)
        total += weight / (1 - a) * float(chance @ summed)
    return total


def _two_tokens(rng: np.random.Generator) -> Iterator[Case]:
    for k in range(60):
        target = random_target(k, ((2, 2), (3, 3), (2, 4), (5, 3)), rng)
        yield bayes_case(target, random_grid(1 + k % 4, rng))


CHECKS = (
    Check("accounting", problem_cases(108), accounting_identity),
    Check("profiles", problem_cases(54), profiles),
    Check("refinement", problem_cases(36, bayes_only=True), refinement),
    Check("pair-entropy", _two_tokens, pair_entropy),
)
