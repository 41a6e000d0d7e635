"""Theorem 2 with its derivatives, Propositions 1 and 2, and what goes beyond the paper.

Formulas for derivatives stand against complex steps, which have no difference error: for an
analytic f, Im f(x + ih) / h equals f'(x) up to h^2, and h = 1e-30 leaves nothing of it.
Beyond the paper: the m-path bound, optimal grids, and the two counterexamples.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import factorial

import numpy as np

from strop.theory import accounting, mpath, sampler, schedules, temperature
from strop.theory.accounting import account, kl
from strop.theory.checks import (
    Assertion,
    Case,
    Check,
    at_most,
    bayes_case,
    equal,
    holds,
    problem_cases,
    random_grid,
    random_target,
)
from strop.theory.document import deflation_target, problem_document, to_problem
from strop.theory.sampler import LawProblem, context_weights, output_by_paths
from strop.theory.schedules import random_problems
from strop.theory.target import CONCENTRATIONS, Array, Conditionals, Target, contexts, temper_slope

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


DERIVATIVES = (
    Check("loss-derivatives", problem_cases(72), loss_derivatives),
    Check("direction", problem_cases(72), direction_forms),
    Check("round-gradient", problem_cases(27, zeros=False), round_gradient),
    Check("random-targets", _study_cases, best_is_stationary),
)


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


BEYOND = (
    Check("m-path", _bound_cases, path_bound),
    Check("price-grid", _price_cases, price_grid),
    Check("entropy-deflation", _deflation_cases, deflation),
    Check("smoothing", _smoothing_cases, smoothing),
)


def orders(case: Case) -> Iterator[Assertion]:
    """One coordinate per round, any order law: the exact denoiser is exact at lambda = 1."""
    problem = to_problem(case)
    law = sampler.order_law(problem.target.L, case["order_weights"])
    log_pi = sampler.output_by_paths(problem.denoiser.tempered(1.0), law)
    yield equal("pi_1 = P", np.exp(log_pi), problem.target.p)
    yield equal("output error is zero", kl(problem.target.p, log_pi), 0.0)
    tempered = sampler.output_by_paths(problem.denoiser.tempered(1.3), law)
    yield at_most("lambda = 1 is optimal", 0.0, kl(problem.target.p, tempered))


def path_laws(case: Case) -> Iterator[Assertion]:
    """Theorem 1 holds for any path law that ignores the data, with ties and empty rounds."""
    problem = to_problem(case)
    law = accounting.path_law(np.array(case["rounds"]), np.array(case["weights"]))
    tables = problem.denoiser.tempered(problem.lam)
    a = accounting.account_paths(problem.target, tables, law)
    yield equal("KL(P x nu || Q) = J - H(X)", a.KL_aug, a.J - problem.target.entropy)
    yield equal("KL(P || pi) = B + C - R", a.KL_out, a.B + a.C - a.R)
    yield at_most("terms are nonnegative", 0.0, np.array([a.B, a.C, a.R, a.KL_out]))
    yield equal("pi is a law", a.pi.sum(), 1.0)
    order = sampler.order_law(problem.target.L)
    alone = accounting.account_paths(problem.target, problem.denoiser.tempered(1.0), order)
    yield equal("one coordinate per round: B = 0", alone.B, 0.0)
    grid = accounting.account_paths(problem.target, tables, problem.paths())
    terms = account(problem)
    yield equal(
        "a grid's paths give the grid's terms",
        np.array([grid.J, grid.B, grid.C, grid.R]),
        np.array([terms.J_N, terms.B_N, terms.C_N, terms.R_N]),
    )


def witness(case: Case) -> Iterator[Assertion]:
    """The V-ary witness: closed form of error and slope, and g < 0."""
    s, values, length = case["s"], case["values"], case["length"]
    problem = LawProblem.bayes(Target.witness(s, values, length), case["grid"])
    c = float((problem.masses**2).sum())
    g = temperature.witness_slope(s, values, c)
    yield equal("g in closed form", temperature.direction(problem).g, g)
    yield holds("sharpening helps the witness", g < 0)
    for lam in (0.5, 1.0, 2.0):
        closed = temperature.witness_error(s, values, c, lam)
        yield equal("output error in closed form", temperature.kl_at(problem, lam), closed)


def repair(case: Case) -> Iterator[Assertion]:
    """Proposition 2 against enumeration, in both regimes and on their boundary."""
    s, grid, lam = case["s"], np.array(case["grid"]), case["lam"]
    problem = LawProblem.bayes(Target.pair(s), grid, lam)
    c = float((problem.masses**2).sum())
    closed, a = temperature.pair(s, c, lam), account(problem)
    for term in ("KL_out", "C_N", "B_N", "R_N"):
        yield equal(term, getattr(closed, term), getattr(a, term))
    yield equal("pi = P_t", np.array(a.pi), Target.pair(closed.t).P)
    if closed.lambda_star is not None and closed.u_star is not None:
        at_star = account(LawProblem.bayes(Target.pair(s), grid, closed.lambda_star))
        yield equal("lambda* makes the sampler exact", at_star.KL_out, 0.0)
        costs = closed.lambda_star > 1 and at_star.C_N > 0
        yield holds("lambda* > 1 and costs posterior loss", costs)
        yield from _inverted(problem, s, closed.u_star)
    else:
        errors = temperature.output_errors(problem, np.array([0.5, 1.0, 2.0, 4.0, 8.0]))
        falls = bool((np.diff(errors) < 0).all())
        yield holds("the error falls with every increase of lambda", falls)
        # The limit is approached from above.
        yield at_most("the limit error is a lower bound", closed.limit_error, errors)
        late = temperature.pair(s, c, 80.0 / float(np.log(s / (1 - s))))
        yield equal("the limit is reached", late.KL_out, closed.limit_error)


def small_c(case: Case) -> Iterator[Assertion]:
    """lambda* = 1 + slope c + O(c^2), with a remainder that settles."""
    s = case["s"]
    slope = temperature.pair(s, 0.01).small_c_slope
    ratios: list[float] = []
    for c in (1e-3, 5e-4, 2.5e-4):
        star = temperature.pair(s, c).lambda_star
        ratios.append(((star if star is not None else np.inf) - 1 - slope * c) / c**2)
    change = abs(ratios[2] - ratios[1]) / max(abs(ratios[2]), 1e-12)
    yield holds("(lambda* - 1 - slope c) / c^2 converges", change < 0.01)
    yield holds("the slope is positive", slope > 0)


def stability(case: Case) -> Iterator[Assertion]:
    """The benefit at lambda* of the pair survives small changes of target and grid."""
    star = case["lam"]
    problem = to_problem(case)
    errors = temperature.output_errors(problem, np.array([1.0, star]))
    yield holds("lambda* still beats 1", bool(errors[1] < errors[0]))


def collapse_program(case: Case) -> Iterator[Assertion]:
    """Per-output scores are optimised by at most two outputs."""
    f, g, h = np.array(case["f"]), np.array(case["g"]), case["threshold"]
    vertex, two = temperature.solve_lp(f, g, h), temperature.two_outputs(f, g, h)
    yield equal("the linear program equals the best pair", vertex.value, two.value)
    yield holds("at most two outputs", two.support <= 2)
    yield at_most("the pair meets the constraint", h, float(two.law @ g))
    yield equal("the pair is a law", two.law.sum(), 1.0)
    yield equal("the value is its own", float(two.law @ f), two.value)


def _inverted(problem: LawProblem, s: float, u_star: float) -> Iterator[Assertion]:
    """Agreement u in (s, u*] at lambda = 1: larger posterior loss, smaller output error."""
    base = account(LawProblem.bayes(problem.target, problem.grid))
    for u in np.linspace(s, u_star, 5)[1:]:
        q = Conditionals.from_tables((2, 2), [agreement_tables(float(u))])
        a = account(LawProblem(problem.target, problem.grid, q, np.ones(1)))
        yield holds("inverted ranking", a.J_N > base.J_N and a.KL_out < base.KL_out)


def agreement_tables(u: float) -> dict[tuple[int, int], Array]:
    """Uniform marginals, and agreement with the visible partner with probability u."""
    half, kernel = np.array([0.5, 0.5]), np.array([[u, 1 - u], [1 - u, u]])
    return {(0, 0): half[:, None], (1, 0): half[None, :], (0, 2): kernel, (1, 1): kernel}


def _order_cases(rng: np.random.Generator) -> Iterator[Case]:
    for k in range(30):
        target = random_target(k, ((2, 2), (2, 3, 2), (2, 2, 2, 2), (3, 3, 3)), rng)
        weights = rng.dirichlet(np.ones(factorial(target.L)))
        yield bayes_case(target, [0.0, 1.0], order_weights=weights.tolist())


def _path_cases(rng: np.random.Generator) -> Iterator[Case]:
    for k in range(24):
        target = random_target(k, ((2, 2), (2, 3, 2), (2, 2, 2)), rng)
        q = Conditionals.bayes(target) if k % 2 else Conditionals.random(target.shape, rng)
        lam = np.array([rng.uniform(0.5, 2.0)])
        problem = LawProblem(target, random_grid(2, rng), q, lam)
        rounds = rng.integers(0, 4, (7, target.L))
        more = {"rounds": rounds.tolist(), "weights": rng.dirichlet(np.ones(7)).tolist()}
        yield {**problem_document(problem), **more}


def _witness_cases(rng: np.random.Generator) -> Iterator[Case]:
    for k in range(36):
        values = 2 + k % 4
        s = float(rng.uniform(1 / values + 0.02, 0.97))
        grid = random_grid(2 + k % 3, rng).tolist()
        yield {"s": s, "values": values, "length": 2 + k % 2, "grid": grid}


def _repair_cases(rng: np.random.Generator) -> Iterator[Case]:
    for _ in range(40):
        grid = random_grid(int(rng.integers(2, 5)), rng).tolist()
        s, lam = float(rng.uniform(0.52, 0.97)), float(rng.uniform(0.3, 4.0))
        yield {"s": s, "grid": grid, "lam": lam}
    # The boundary c = 2(1 - s): c = .6 needs masses (x, 1 - x) with x^2 + (1 - x)^2 = .6.
    x = (1 + np.sqrt(0.2)) / 2
    yield {"s": 0.7, "grid": [0.0, float(x), 1.0], "lam": 1.7}


def _small_c_cases(rng: np.random.Generator) -> Iterator[Case]:
    for s in (0.55, 0.7, 0.9, *rng.uniform(0.52, 0.95, 5)):
        yield {"s": float(s)}


def _stability_cases(rng: np.random.Generator) -> Iterator[Case]:
    for _ in range(40):
        s, first = float(rng.uniform(0.6, 0.8)), float(rng.uniform(0.4, 0.6))
        c = first**2 + (1 - first) ** 2
        star = temperature.pair(s, c).lambda_star
        noise = rng.normal(0, 2e-3, (2, 2))
        law = Target.pair(s).P + noise - noise.mean()
        grid = [0.0, first + float(rng.normal(0, 2e-3)), 1.0]
        if star is not None and star < 20:
            yield bayes_case(Target(law / law.sum()), grid) | {"lam": star}


def _collapse_cases(rng: np.random.Generator) -> Iterator[Case]:
    for k in range(60):
        n = int(rng.integers(2, 13))
        f, g = rng.normal(size=n), rng.normal(size=n)
        if k % 3 == 0:  # ties
            f, g = np.round(f), np.round(g)
        h = float(rng.uniform(g.min() - 0.2, g.max()))
        yield {"f": f.tolist(), "g": g.tolist(), "threshold": h}


CHECKS = (
    Check("orders", _order_cases, orders),
    Check("path-laws", _path_cases, path_laws),
    Check("witness", _witness_cases, witness),
    Check("repair", _repair_cases, repair),
    Check("small-c", _small_c_cases, small_c),
    Check("stability", _stability_cases, stability),
    Check("collapse", _collapse_cases, collapse_program),
)
