"""What goes beyond the paper: the m-path bound, optimal grids, and the two counterexamples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from strop.theory import accounting, mpath, schedules, temperature
from strop.theory.accounting import account
from strop.theory.checks.base import (
    Assertion,
    Case,
    Check,
    at_most,
    bayes_case,
    equal,
    holds,
    random_grid,
)
from strop.theory.document import deflation_target, to_problem
from strop.theory.sampler import LawProblem
from strop.theory.target import CONCENTRATIONS, Target


def path_bound(case: Case) -> Iterator[Assertion]:
    """U_1 = J_N, U_m falls with m, and stays above the output cross-entropy."""
    problem = to_problem(case)
    lam = float(problem.lam[0])
    a = account(problem)
    bound = {m: mpath.exact_bound(problem, [lam], m)[0] for m in (1, 2, 3, 8)}
    yield equal("U_1 = J_N", bound[1], a.J_N)
    for m in (2, 3):
        listed = mpath.exact_bound_by_multisets(problem, [lam], m)[0]
        yield equal("integral and multisets agree", bound[m], listed)
    yield at_most("U_m does not rise with m", np.diff(list(bound.values())), 0.0)
    yield at_most("U_m >= H(X) + KL(P || pi)", a.H_X + a.KL_out, bound[8])


def price_grid(case: Case) -> Iterator[Assertion]:
    """The B_N-optimal grid beats random ones; for two coordinates it is the equal one."""
    problem = to_problem(case)
    target, rounds = problem.target, problem.N
    best = schedules.price_optimal_grid(target, rounds)
    price = accounting.parallel_price(target, best)
    yield holds("a grid", bool((np.diff(best) > 0).all() and best[0] == 0 and best[-1] == 1))
    even = np.linspace(0, 1, rounds + 1)
    yield at_most("at most the equal grid", price, accounting.parallel_price(target, even))
    rng = np.random.default_rng(case["seed"])
    others = [accounting.parallel_price(target, random_grid(rounds, rng)) for _ in range(20)]
    yield at_most("at most any random grid", price, min(others))
    if target.L == 2:
        yield holds("two coordinates: equal rounds", bool(np.abs(best - even).max() < 1e-5))


def deflation(case: Case) -> Iterator[Assertion]:
    """Entropy inflation fails at L = 3: an exact model sampled in parallel is too certain."""
    problem = LawProblem.bayes(deflation_target(case["values"]), case["grid"])
    a = account(problem)
    yield holds(
        "H(pi_1) < H(P)" if case["deflates"] else "H(pi_1) > H(P)",
        (a.H_pi < a.H_X) == case["deflates"],
    )
    yield equal("the accounting identity holds there too", a.KL_out, a.B_N + a.C_N - a.R_N)


def smoothing(case: Case) -> Iterator[Assertion]:
    """Mutually exclusive coordinates: lambda* < 1."""
    problem = to_problem(case)
    best, slope = temperature.best_temperature(problem), temperature.direction(problem)
    yield holds("g > 0", slope.g > 0)
    yield holds("lambda* < 1", best.lambda_star < 1)
    yield holds("smoothing lowers the error", best.KL_at_star < temperature.kl_at(problem, 1.0))


def _bound_cases(rng: np.random.Generator) -> Iterator[Case]:
    for k in range(24):
        shape, rounds = ((2, 2), (2, 3), (2, 2, 2))[k % 3], 2 + (k % 2 if k % 3 < 2 else 0)
        target = Target.dirichlet(shape, CONCENTRATIONS[k // 3 % 3], rng)
        lam = float(rng.uniform(0.5, 2.5))
        yield bayes_case(target, random_grid(rounds, rng), lam)


def _price_cases(rng: np.random.Generator) -> Iterator[Case]:
    for k in range(18):
        shape = ((2, 2), (2, 2, 2), (2, 2, 2, 2))[k % 3]
        target = Target.dirichlet(shape, 1.0, rng)
        grid = random_grid(2 + k % 3, rng)
        yield bayes_case(target, grid, seed=int(rng.integers(2**31)))


def _deflation_cases(_rng: np.random.Generator) -> Iterator[Case]:
    for rounds in (2, 3):
        grid = [0.0, 0.63, 1.0] if rounds == 2 else np.linspace(0, 1, rounds + 1).tolist()
        yield {"values": 2**14, "grid": grid, "deflates": True}
        yield {"values": 2**10, "grid": grid, "deflates": False}


def _smoothing_cases(_rng: np.random.Generator) -> Iterator[Case]:
    for length, first in ((3, 0.2), (6, 0.2), (6, 0.5)):
        yield bayes_case(Target.one_hot(length, smoothing=1e-3), [0.0, first, 1.0])


CHECKS = (
    Check("m-path", _bound_cases, path_bound),
    Check("price-grid", _price_cases, price_grid),
    Check("entropy-deflation", _deflation_cases, deflation),
    Check("smoothing", _smoothing_cases, smoothing),
)
