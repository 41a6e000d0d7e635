"""Temperature derivatives: the formulas against complex steps, which have no difference error.

For an analytic f, Im f(x + ih) / h equals f'(x) up to h^2, and h = 1e-30 leaves nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from strop.theory import schedules, temperature
from strop.theory.checks import Assertion, Case, Check, at_most, equal, holds, problem_cases
from strop.theory.denoiser import temper_slope
from strop.theory.document import problem_document, to_problem
from strop.theory.random_targets import random_problems
from strop.theory.reveal import context_weights
from strop.theory.sampler import LawProblem, output_by_paths
from strop.theory.target import contexts

STEP = 1e-30


def loss_derivatives(case: Case) -> Iterator[Assertion]:
    """J_N' and J_N'' by complex steps; convexity; the Bayes optimum at 1."""
    problem = to_problem(case)
    first, second = temperature.loss_slopes(problem)
    q = problem.denoiser
    tables = q.tempered(problem.lam + 1j * STEP)
    slopes = temper_slope(q.log_q, q.shape, tables)
    yield equal("J_N'", first, _context_sum(problem, -tables).imag / STEP)
    yield equal("J_N''", second, _context_sum(problem, -slopes).imag / STEP)
    yield at_most("J_N is convex", -second, 0.0)
    at_1 = LawProblem(problem.target, problem.grid, problem.denoiser, np.ones(1))
    if case["denoiser"] == "bayes":
        yield equal("J_N'(1) = 0 for Bayes", temperature.loss_slopes(at_1)[0], 0.0)


def direction_forms(case: Case) -> Iterator[Assertion]:
    """g in three forms, by complex step, and without listing paths."""
    problem = to_problem(case)
    d = temperature.direction(problem)
    yield equal(
        "g = E[w (sigma - eta)] is the slope", d.g, _error(problem, 1 + 1j * STEP).imag / STEP
    )
    split = d.sharpening_term - d.cov_w_eta + d.loss_slope
    yield equal("g = sharpening - Cov(w, eta) + J_N'(1)", d.g, split)
    yield equal("g = Cov(w, sigma - eta) + J_N'(1)", d.g, d.covariance + d.loss_slope)
    yield at_most("the first term never smooths", d.sharpening_term, 0.0)
    live = problem.target.p > 0
    listed = temperature.path_moments(problem)[:, live]
    carried = temperature.subset_moments(problem)[:, live]
    yield equal("moments by paths and by subsets", listed, carried)
    if case["denoiser"] == "bayes":
        yield equal("E[sigma - eta] = 0 for Bayes", d.loss_slope, 0.0)
    for lam in (0.6, 1.9):
        slope = temperature.output_slope(problem, lam)
        stepped = _error(problem, lam + 1j * STEP).imag / STEP
        yield equal("slope at other temperatures", slope, stepped)
        q = problem.denoiser
        tables = q.tempered(lam)
        scores = temper_slope(q.log_q, q.shape, tables)
        mean = temperature.slope_by_subsets(problem, tables, scores)
        by_sets = -float(problem.target.p[live] @ mean[live])
        yield equal("slope without listing paths", by_sets, stepped)


def round_gradient(case: Case) -> Iterator[Assertion]:
    """Per-round slopes add up to the common one; the optimum beats its start."""
    problem = to_problem(case)
    group = schedules.groups_of("per-round", problem.N, problem.target.subsets)
    for log_lam in (0.0, 0.4):
        theta = np.full(problem.N, log_lam)
        error, grad = schedules.error_and_gradient(
            problem, problem.paths(), group, theta, problem.masses, with_masses=True
        )
        lam = float(np.exp(log_lam))
        yield equal("error of equal rounds", error, temperature.kl_at(problem, lam))
        slope = temperature.output_slope(problem, lam)
        yield equal("round slopes add up", grad[: problem.N].sum(), lam * slope)
        yield equal("mass slopes sum to zero", grad[problem.N :].sum(), 0.0)


def best_is_stationary(case: Case) -> Iterator[Assertion]:
    """The 280 targets: 1 is not stationary, lambda* is better, and on the side g points to."""
    problem = to_problem(case)
    d, best = temperature.direction(problem), temperature.best_temperature(problem)
    at_1 = temperature.kl_at(problem, 1.0)
    yield holds("lambda = 1 is not stationary", d.g != 0.0)
    yield equal("g by complex step", d.g, _error(problem, 1 + 1j * STEP).imag / STEP)
    yield at_most("lambda* is at least as good as 1", best.KL_at_star, at_1)
    if not best.at_limit:
        slope = temperature.output_slope(problem, best.lambda_star)
        yield equal("the slope vanishes at lambda*", slope, 0.0)


def _context_sum(problem: LawProblem, tables: np.ndarray) -> complex:
    """J_N of such tables: sums over contexts, no path."""
    target = problem.target
    chance = context_weights(problem.grid[:-1], target.L)
    live = target.p > 0
    total = 0j
    for k, mass in enumerate(problem.masses):
        per_token = tables[k if len(tables) > 1 else 0][..., live] @ target.p[live]
        for i, A in contexts(target.L):
            total += mass * complex(chance[k, A] * per_token[i, A])
    return total


def _error(problem: LawProblem, lam: complex) -> complex:
    """-sum P log pi_lambda, a complex function of lambda with the slope of the output error."""
    target = problem.target
    log_pi = output_by_paths(problem.denoiser.tempered(lam), problem.paths())
    live = target.p > 0
    return complex(-(target.p[live] @ log_pi[live]))


def _study_cases(rng: np.random.Generator) -> Iterator[Case]:
    for _, _, problem in random_problems(int(rng.integers(2**31))):
        yield problem_document(problem)


CHECKS = (
    Check("loss-derivatives", problem_cases(72), loss_derivatives),
    Check("direction", problem_cases(72), direction_forms),
    Check("round-gradient", problem_cases(27, zeros=False), round_gradient),
    Check("random-targets", _study_cases, best_is_stationary),
)
