"""Reveal rounds: hazards, occupancy, the clipped schedule, cleanup, kernels, and simulation.

The ancestral sampler itself, on the tables of a small denoiser: the check by simulation.

In round k every hidden coordinate is revealed with the hazard rho_k = delta_k / (1 - a_{k-1}),
decided on its own, and all revealed ones are drawn from what was visible before the round.
Nothing here knows the path law nu or the mixture pi.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from strop.theory import accounting, reveal, sampler
from strop.theory.checks import (
    Assertion,
    Case,
    Check,
    at_most,
    equal,
    holds,
    problem_cases,
    random_grid,
)
from strop.theory.denoiser import Conditionals
from strop.theory.document import problem_document, to_problem
from strop.theory.sampler import LawProblem
from strop.theory.target import Target


def simulate(problem: LawProblem, draws: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Output indices (into the enumerated space) of `draws` independent runs."""
    shape = problem.target.shape
    strides = np.array([int(np.prod(shape[i + 1 :])) for i in range(len(shape))])
    tables = problem.tables()
    index = np.zeros(draws, dtype=np.int64)
    visible = np.zeros(draws, dtype=np.int64)
    for k, rho in enumerate(reveal.hazards(problem.grid)):
        table = tables[k if len(tables) > 1 else 0]
        gain, shown = np.zeros_like(index), np.zeros_like(visible)
        for i, values in enumerate(shape):
            (rows,) = np.nonzero((visible >> i & 1 == 0) & (rng.random(draws) < rho))
            # Hidden coordinates are at 0 in `index`; the table does not depend on them.
            at = index[rows, None] + strides[i] * np.arange(values)
            probs = np.exp(table[i, visible[rows, None], at])
            cumulative = probs.cumsum(axis=1)
            level = rng.random(rows.size)[:, None] * cumulative[:, -1:]
            drawn = np.minimum((cumulative <= level).sum(axis=1), values - 1)
            gain[rows] += strides[i] * drawn
            shown[rows] |= 1 << i
        index += gain
        visible |= shown
    return index


def hazard_law(case: Case) -> Iterator[Assertion]:
    """Hazards telescope to the grid, and rounds get the masses delta_k."""
    grid = np.array(case["grid"])
    rho = reveal.hazards(grid)
    survival = np.asarray(np.cumprod(1 - rho), dtype=np.float64)
    yield equal("survival is 1 - a_k", survival, 1 - grid[1:])
    first = rho * np.concatenate([[1.0], survival[:-1]])
    yield equal("first reveal has mass delta_k", first, np.diff(grid))
    law = reveal.grid_paths(grid, case["length"])
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
    law = reveal.grid_paths(grid, length)
    counts = (law.rounds[:, :, None] == np.arange(law.N)).sum(axis=1)
    nu, found = law.weights, reveal.collisions(length, np.diff(grid))
    yield equal("empty rounds", found.empty, nu @ (counts == 0).sum(axis=1))
    yield equal("singleton rounds", found.singleton, nu @ (counts == 1).sum(axis=1))
    shared = (counts * (counts > 1)).sum(axis=1) / length
    yield equal("sharing probability", found.share_prob, nu @ shared)
    pairs = (counts * (counts - 1) // 2).sum(axis=1)
    yield equal("colliding pairs", found.colliding_pairs, nu @ pairs)


def equal_rounds(case: Case) -> Iterator[Assertion]:
    """Equal masses in exact rational arithmetic; numbers relative to their size."""
    L, N = case["length"], case["rounds"]
    found = reveal.collisions(L, reveal.equal_masses(N))
    alone = Fraction(N - 1, N) ** (L - 1)
    yield equal("empty", found.empty / N, float(Fraction(N - 1, N) ** L))
    yield equal("singleton", found.singleton / L, float(alone))
    yield equal("share", found.share_prob, float(1 - alone))
    yield equal("pairs", found.colliding_pairs / L**2, float(Fraction(L - 1, 2 * N * L)))


def clipped(case: Case) -> Iterator[Assertion]:
    """The clipped schedule: M equal masses and the cleanup mass eps."""
    M, eps = case["updates"], case["terminal"]
    masses = reveal.clipped_masses(M, eps)
    yield equal("M + 1 rounds", masses.size, M + 1)
    yield equal("ordinary masses (1 - eps) / M", masses[:-1], (1 - eps) / M)
    yield equal("terminal mass eps", masses[-1], eps)
    closed = 1 - (1 - eps) ** case["length"]
    tv = reveal.cleanup_tv(case["length"], eps)
    yield equal("cleanup coupling", tv, closed)
    yield at_most("union bound", tv, case["length"] * eps)


def cleanup(case: Case) -> Iterator[Assertion]:
    """Two samplers that differ only in the last round differ by at most the cleanup bound."""
    problem = to_problem(case)
    shape, other = problem.target.shape, np.array(problem.denoiser.log_q)
    other[-1] = Conditionals.from_tables(shape, [{}]).log_q[0]  # the last round draws uniformly
    changed = LawProblem(problem.target, problem.grid, Conditionals(shape, other), problem.lam)
    gap = np.exp(sampler.log_output(problem)) - np.exp(sampler.log_output(changed))
    bound = reveal.cleanup_tv(problem.target.L, float(problem.masses[-1]))
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


CHECKS = (
    Check("hazards", _grid_cases, hazard_law),
    Check("occupancy", _grid_cases, occupancy),
    Check("equal-rounds", _equal_cases, equal_rounds),
    Check("clipped", _clipped_cases, clipped),
    Check("cleanup", _cleanup_cases, cleanup),
    Check("kernels", _kernel_cases, kernels),
    Check("simulation", _simulation_cases, simulation),
)
