"""Theorem 1, its profiles, bounds and reveal rounds, each against a second route.

Exact arithmetic through L = 8: entropy area and conditional mutual information, checked in integers
and fractions for formal set functions. Nothing there is an entropy: f is a symbol per subset, and
an identity holds if the coefficient of every symbol agrees.

Rounds: hazards, occupancy, the clipped schedule, cleanup, kernels, and the ancestral sampler itself
on the tables of a small denoiser. In round k every hidden coordinate is revealed with the hazard
rho_k = delta_k / (1 - a_{k-1}), decided on its own, and all revealed ones are drawn from what was
visible before the round. That simulation knows neither the path law nu nor the mixture pi.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import comb

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray

from strop.theory import accounting, sampler
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
from strop.theory.document import problem_document, to_problem
from strop.theory.sampler import LawProblem
from strop.theory.target import Array, Conditionals, Target, contexts, expect, log_of, subset_sizes

Polys = NDArray[np.int64]
"""By subset, the integer coefficients of 1, a, a^2, ..."""


def chance(size: int, among: int) -> list[int]:
    """a^size (1 - a)^(among - size) as an integer polynomial."""
    others = among - size
    return [0] * size + [(-1) ** j * comb(others, j) for j in range(others + 1)]


def profile_coefficients(length: int) -> Polys:
    """h(a) = sum_i E_A [f(A + i) - f(A)]: the polynomial in front of every f(A)."""
    out = np.zeros((1 << length, length), np.int64)
    for i, A in contexts(length):
        term = chance(A.bit_count(), length - 1)
        out[A | 1 << i] += term
        out[A] -= term
    return out


def area_coefficients(length: int) -> list[Fraction]:
    """The integral of h over [0, 1]: the fraction in front of every f(A)."""
    return [
        sum((Fraction(int(c), k + 1) for k, c in enumerate(poly)), Fraction(0))
        for poly in profile_coefficients(length)
    ]


def dependence_coefficients(length: int) -> Polys:
    """D(a) = sum_{i != j} E_A [f(A+i) + f(A+j) - f(A+i+j) - f(A)], by ordered pairs."""
    out = np.zeros((1 << length, length - 1), np.int64)
    for i, A in contexts(length):
        for bj in (1 << j for j in range(length) if j != i and not A >> j & 1):
            term, bi = np.array(chance(A.bit_count(), length - 2)), 1 << i
            for mask, sign in ((A | bi, 1), (A | bj, 1), (A | bi | bj, -1), (A, -1)):
                out[mask] += sign * term
    return out


def slopes(polys: Polys) -> Polys:
    """The derivatives of some profiles."""
    return polys[:, 1:] * np.arange(1, polys.shape[1])


def area(case: Case) -> Iterator[Assertion]:
    """The area of h is f(all) - f(none), coefficient by coefficient."""
    L = case["length"]
    coefficients, sizes = area_coefficients(L), subset_sizes(L)
    for size in range(L + 1):
        expected = {L: 1, 0: -1}.get(size, 0)
        sets = np.flatnonzero(sizes == size)
        exact = all(coefficients[A] == expected for A in sets)
        yield holds(f"area: {len(sets)} sets of size {size}", exact)


def information(case: Case) -> Iterator[Assertion]:
    """-h' is the sum of conditional mutual informations, as integer polynomials."""
    L = case["length"]
    same = (-slopes(profile_coefficients(L)) == dependence_coefficients(L)).all(axis=1)
    for size in range(L + 1):
        sets = subset_sizes(L) == size
        yield holds(f"-h' = D: {sets.sum()} sets of size {size}", bool(same[sets].all()))


def integer_values(case: Case) -> Iterator[Assertion]:
    """Both identities on a random integer set function, evaluated in fractions."""
    L, f = case["length"], case["f"]
    area_value = sum((c * v for c, v in zip(area_coefficients(L), f, strict=True)), Fraction(0))
    yield holds("area = f(all) - f(none)", area_value == f[-1] - f[0])
    at = Fraction(*case["a"])
    slope = _evaluate(slopes(profile_coefficients(L)), f, at)
    yield holds("-h'(a) = D(a)", -slope == _evaluate(dependence_coefficients(L), f, at))


def _evaluate(polys: Polys, f: list[int], at: Fraction) -> Fraction:
    return sum((int(c) * at**k for k, c in enumerate(np.array(f) @ polys)), Fraction(0))


def _functions(rng: np.random.Generator) -> Iterator[Case]:
    for length in range(2, 7):
        for _ in range(4):
            f = rng.integers(-1000, 1000, 1 << length).tolist()
            yield {"length": length, "f": f, "a": [int(rng.integers(0, 8)), 7]}


FORMAL = (
    Check("entropy-area", lambda _: [{"length": length} for length in range(1, 9)], area),
    Check("mutual-information", lambda _: [{"length": n} for n in range(2, 9)], information),
    Check("integer-set-functions", _functions, integer_values),
)


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
    h, D = accounting.entropy_profile(target), accounting.dependence_profile(target)
    levels = np.linspace(0, 1, 9)
    yield equal("area of h is H(X)", h.area, target.entropy)
    yield equal("area of h by quadrature", _quadrature(h), target.entropy)
    yield equal("D = -h'", D(levels), -h.polynomial.deriv()(levels))
    yield at_most("D is nonnegative", -D(levels), 0.0)
    yield at_most("h does not increase", np.diff(h(levels)), 0.0)
    TC, DTC = accounting.total_correlations(target)
    yield equal("TC + DTC = sum I(X_i; X_-i)", TC + DTC, accounting.dependence_sum(target))
    yield equal("area of D is the dependence sum", D.area, accounting.dependence_sum(target))
    losses = accounting.token_losses(target, problem.tables())
    c = accounting.loss_profile(losses[0], target.L)
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
    h, before = accounting.entropy_profile(target), accounting.parallel_price(target, grid)
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


def _quadrature(function: accounting.RateProfile) -> float:
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


def simulate(problem: LawProblem, draws: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Output indices (into the enumerated space) of `draws` independent runs."""
    shape = problem.target.shape
    strides = np.array([int(np.prod(shape[i + 1 :])) for i in range(len(shape))])
    tables = problem.tables()
    index = np.zeros(draws, dtype=np.int64)
    visible = np.zeros(draws, dtype=np.int64)
    for k, rho in enumerate(sampler.hazards(problem.grid)):
        table = tables[k if len(tables) > 1 else 0]
        gain, revealed = np.zeros_like(index), np.zeros_like(visible)
        for i, values in enumerate(shape):
            (rows,) = np.nonzero((visible >> i & 1 == 0) & (rng.random(draws) < rho))
            # Hidden coordinates are at 0 in `index`; the table does not depend on them.
            at = index[rows, None] + strides[i] * np.arange(values)
            probs = np.exp(table[i, visible[rows, None], at])
            cumulative = probs.cumsum(axis=1)
            level = rng.random(rows.size)[:, None] * cumulative[:, -1:]
            drawn = np.minimum((cumulative <= level).sum(axis=1), values - 1)
            gain[rows] += strides[i] * drawn
            revealed[rows] |= 1 << i
        index += gain
        visible |= revealed
    return index


def hazard_law(case: Case) -> Iterator[Assertion]:
    """Hazards telescope to the grid, and rounds get the masses delta_k."""
    grid = np.array(case["grid"])
    rho = sampler.hazards(grid)
    survival = np.asarray(np.cumprod(1 - rho), dtype=np.float64)
    yield equal("survival is 1 - a_k", survival, 1 - grid[1:])
    first = rho * np.concatenate([[1.0], survival[:-1]])
    yield equal("first reveal has mass delta_k", first, np.diff(grid))
    law = sampler.grid_paths(grid, case["length"])
    yield equal("nu is a law", law.weights.sum(), 1.0)
    seen = (law.contexts[:, :, None] >> np.arange(case["length"])) & 1
    for k in range(law.N):
        at_k = (law.rounds == k)[:, :, None] * law.weights[:, None, None]
        off = ~np.eye(case["length"], dtype=bool)
        visible = (at_k * seen).sum(axis=0)[off]
        mass = np.broadcast_to(at_k.sum(axis=0), (case["length"],) * 2)[off]
        if off.any():
            yield equal("others are visible with probability a_{k-1}", visible, mass * grid[k])


def occupancy(case: Case) -> Iterator[Assertion]:
    """Occupancy formulas against the list of all assignments."""
    grid, length = np.array(case["grid"]), case["length"]
    law = sampler.grid_paths(grid, length)
    counts = (law.rounds[:, :, None] == np.arange(law.N)).sum(axis=1)
    nu, counted = law.weights, sampler.collisions(length, np.diff(grid))
    yield equal("empty rounds", counted.empty, nu @ (counts == 0).sum(axis=1))
    yield equal("singleton rounds", counted.singleton, nu @ (counts == 1).sum(axis=1))
    shared = (counts * (counts > 1)).sum(axis=1) / length
    yield equal("sharing probability", counted.share_prob, nu @ shared)
    pairs = (counts * (counts - 1) // 2).sum(axis=1)
    yield equal("colliding pairs", counted.colliding_pairs, nu @ pairs)


def equal_rounds(case: Case) -> Iterator[Assertion]:
    """Equal masses in exact rational arithmetic; numbers relative to their size."""
    L, N = case["length"], case["rounds"]
    counted = sampler.collisions(L, sampler.equal_masses(N))
    alone = Fraction(N - 1, N) ** (L - 1)
    yield equal("empty", counted.empty / N, float(Fraction(N - 1, N) ** L))
    yield equal("singleton", counted.singleton / L, float(alone))
    yield equal("share", counted.share_prob, float(1 - alone))
    yield equal("pairs", counted.colliding_pairs / L**2, float(Fraction(L - 1, 2 * N * L)))


def clipped(case: Case) -> Iterator[Assertion]:
    """The clipped schedule: M equal masses and the cleanup mass eps."""
    M, eps = case["updates"], case["terminal"]
    masses = sampler.clipped_masses(M, eps)
    yield equal("M + 1 rounds", masses.size, M + 1)
    yield equal("ordinary masses (1 - eps) / M", masses[:-1], (1 - eps) / M)
    yield equal("terminal mass eps", masses[-1], eps)
    closed = 1 - (1 - eps) ** case["length"]
    tv = sampler.cleanup_tv(case["length"], eps)
    yield equal("cleanup coupling", tv, closed)
    yield at_most("union bound", tv, case["length"] * eps)


def cleanup(case: Case) -> Iterator[Assertion]:
    """Two samplers that differ only in the last round differ by at most the cleanup bound."""
    problem = to_problem(case)
    shape, other = problem.target.shape, np.array(problem.denoiser.log_q)
    other[-1] = Conditionals.from_tables(shape, [{}]).log_q[0]  # the last round draws uniformly
    changed = LawProblem(problem.target, problem.grid, Conditionals(shape, other), problem.lam)
    gap = np.exp(sampler.log_output(problem)) - np.exp(sampler.log_output(changed))
    bound = sampler.cleanup_tv(problem.target.L, float(problem.masses[-1]))
    yield at_most("TV <= 1 - (1 - eps)^L", 0.5 * np.abs(gap).sum(), bound)


def kernels(case: Case) -> Iterator[Assertion]:
    """Step errors xi_k move the output by at most 1 - prod(1 - xi_k), at most their sum."""
    problem = to_problem(case)
    other = LawProblem(problem.target, problem.grid, problem.denoiser, problem.lam * case["factor"])
    xi = accounting.round_errors(problem, other)
    product, total = accounting.kernel_tv_bound(xi)
    gap = np.exp(sampler.log_output(problem)) - np.exp(sampler.log_output(other))
    yield at_most("TV <= 1 - prod(1 - xi_k)", 0.5 * np.abs(gap).sum(), product)
    yield at_most("1 - prod(1 - xi_k) <= sum xi_k", product, total)
    yield at_most("xi_k is a distance", xi, 1.0)


def simulation(case: Case) -> Iterator[Assertion]:
    """The ancestral sampler against the enumerated law, by chi-squared.

    The threshold has level 1e-6; with 200,000 draws a shift of one percentage point of mass in
    eight outputs gives a statistic above 150 and is found.
    """
    from scipy.stats import chi2

    problem = to_problem(case)
    rng = np.random.default_rng(case["seed"])
    seen = np.bincount(simulate(problem, case["draws"], rng), minlength=problem.target.size)
    expected = case["draws"] * np.exp(sampler.output_by_subsets(problem.tables(), problem.masses))
    live = expected > 0
    yield holds("nothing impossible is drawn", not seen[~live].any())
    statistic = float(((seen - expected)[live] ** 2 / expected[live]).sum())
    limit = float(chi2.isf(1e-6, max(1, int(live.sum()) - 1)))
    yield holds("draws follow pi", statistic < limit)


def _grid_cases(rng: np.random.Generator) -> Iterator[Case]:
    for k in range(40):
        rounds, length = 1 + k % 5, 1 + k % 4
        yield {"grid": random_grid(rounds, rng).tolist(), "length": length}


def _equal_cases(_rng: np.random.Generator) -> Iterator[Case]:
    for length, rounds in ((1, 1), (2, 2), (7, 3), (64, 64), (100, 1000), (1024, 64), (1024, 1024)):
        yield {"length": length, "rounds": rounds}


def _clipped_cases(_rng: np.random.Generator) -> Iterator[Case]:
    for updates in (1, 4, 16, 1024):
        for terminal in (1e-5, 1e-3):
            yield {"updates": updates, "terminal": terminal, "length": 1024}


def _cleanup_cases(rng: np.random.Generator) -> Iterator[Case]:
    for k in range(20):
        shape, rounds = ((2, 2), (2, 2, 2), (3, 2, 2))[k % 3], 2 + k % 2
        target = Target.dirichlet(shape, 1.0, rng)
        grid, q = random_grid(rounds, rng), Conditionals.random(shape, rng, rounds)
        yield problem_document(LawProblem(target, grid, q, np.ones(1)))


def _kernel_cases(rng: np.random.Generator) -> Iterator[Case]:
    for case in problem_cases(24, zeros=False)(rng):
        yield {**case, "factor": float(rng.uniform(0.8, 1.25))}


def _simulation_cases(rng: np.random.Generator) -> Iterator[Case]:
    for case in problem_cases(9)(rng):
        yield {**case, "seed": int(rng.integers(2**31)), "draws": 200_000}


ROUNDS = (
    Check("hazards", _grid_cases, hazard_law),
    Check("occupancy", _grid_cases, occupancy),
    Check("equal-rounds", _equal_cases, equal_rounds),
    Check("clipped", _clipped_cases, clipped),
    Check("cleanup", _cleanup_cases, cleanup),
    Check("kernels", _kernel_cases, kernels),
    Check("simulation", _simulation_cases, simulation),
)
