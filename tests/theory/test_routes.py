"""Two routes to each law: paths and subsets, formula and simulation, exact and sampled."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import chi2

from strop.theory import accounting, mpath, schedules
from strop.theory.accounting import account, parallel_price
from strop.theory.checks.identities import simulate
from strop.theory.document import problem_document, to_problem
from strop.theory.sampler import LawProblem, output_by_paths, output_by_subsets
from strop.theory.schedules import random_problems, run_study
from strop.theory.target import Conditionals, Target
from strop.theory.temperature import best_temperature, kl_at, output_errors

from .documents import random_document
from .reference import Reference


@pytest.mark.parametrize("seed", range(16))
def test_paths_subsets_and_loops_give_one_law(seed):
    document = random_document(seed)
    problem = to_problem(document)
    tables = problem.tables()
    by_paths = np.exp(output_by_paths(tables, problem.paths()))
    by_subsets = np.exp(output_by_subsets(tables, problem.masses))
    by_loops = np.array(list(Reference(document).pi().values()))
    assert np.allclose(by_paths, by_loops, rtol=0, atol=1e-14)
    assert np.allclose(by_subsets, by_loops, rtol=0, atol=1e-14)


@pytest.mark.parametrize("seed", range(12))
def test_documents_survive_a_round_trip(seed):
    problem = to_problem(random_document(seed))
    again = to_problem(json.loads(json.dumps(problem_document(problem))))
    assert np.allclose(account(again).pi, account(problem).pi, rtol=0, atol=1e-14)


@pytest.mark.parametrize("kind", ["bayes", "per-round"])
def test_the_ancestral_sampler_follows_the_enumerated_law(kind):
    # 10^6 draws, 7 degrees of freedom, level 1e-6 (limit 40.5): moving half a percent of the
    # mass to one output adds more than 200 to the statistic, so such an error is always found.
    rng = np.random.default_rng(11)
    target = Target.dirichlet((2, 2, 2), 0.7, rng)
    q = Conditionals.bayes(target) if kind == "bayes" else Conditionals.random((2, 2, 2), rng, 3)
    problem = LawProblem(target, np.array([0, 0.2, 0.7, 1]), q, np.array([0.8, 1.0, 1.6]))
    draws = 10**6
    seen = np.bincount(simulate(problem, draws, np.random.default_rng(1)), minlength=8)
    expected = draws * np.exp(output_by_paths(problem.tables(), problem.paths()))
    assert ((seen - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 7)
    shifted = expected * 0.995
    shifted[0] += draws - shifted.sum()
    assert ((seen - shifted) ** 2 / shifted).sum() > chi2.isf(1e-6, 7)


def test_the_forced_mask_estimator_is_unbiased():
    # L [-log q(X_I | X_A)] with the target always masked; 4e5 draws, five standard errors.
    rng = np.random.default_rng(2)
    problem = to_problem(random_document(6))
    target, n = problem.target, 400_000
    tables = problem.tables()
    x = rng.choice(target.size, size=n, p=target.p)
    k = rng.choice(problem.N, size=n, p=problem.masses)
    i = rng.integers(target.L, size=n)
    visible = rng.random((n, target.L)) < problem.grid[k][:, None]
    visible[np.arange(n), i] = False
    mask = (visible * (1 << np.arange(target.L))).sum(axis=1)
    r = k if len(tables) > 1 else 0 * k
    values = -target.L * tables[r, i, mask, x]
    error = values.std() / np.sqrt(n)
    assert abs(values.mean() - account(problem).J_N) < 5 * error
    assert error < 0.01


class TestStudy:
    def test_default_study_is_in_the_accepted_range(self, strop):
        code, out, _ = strop("theory", "study", "--json")
        found = json.loads(out)
        assert code == 0
        assert found["targets"] == 280
        assert 275 <= found["sharpening_count"] <= 280
        assert 1.11 <= found["lambda_star"]["median"] <= 1.19
        assert 1.000 <= found["lambda_star"]["p5"] <= 1.010
        assert 1.5 <= found["lambda_star"]["p95"] <= 2.05
        assert 0.034 <= found["kl_reduction"]["median"] <= 0.072
        assert 0.24 <= found["kl_reduction"]["p95"] <= 0.50
        assert found["entropy_inflation_count"] == 280

    def test_equal_grids_are_a_different_study(self):
        assert np.median(run_study(0, "equal", per_setting=10).reduction) > 0.08

    def test_seeds(self):
        first, again, other = (run_study(seed, per_setting=2) for seed in (3, 3, 4))
        assert np.array_equal(first.lambda_star, again.lambda_star)
        assert not np.array_equal(first.lambda_star, other.lambda_star)

    def test_rows_against_loops(self):
        for _, _, problem in random_problems(5, per_setting=1):
            reference = Reference(problem_document(problem))
            star = best_temperature(problem).lambda_star
            for lam in (1.0, star):
                assert kl_at(problem, lam) == pytest.approx(reference.kl(lam), abs=1e-13)

    def test_exceptions_are_listed(self):
        for seed, wanted in ((0, 0), (34, 1)):
            found = run_study(seed, per_setting=3).summary()
            assert len(found["exceptions"]) == wanted
            assert found["sharpening_count"] + wanted == found["targets"] == 21
        assert found["exceptions"][0]["g"] > 1e-5  # far beyond rounding


class TestSchedules:
    @pytest.fixture
    def problem(self):
        target = Target.dirichlet((2, 2, 2), 0.5, np.random.default_rng(4))
        return LawProblem.bayes(target, [0, 0.5, 1])

    def test_more_freedom_is_never_worse(self, problem):
        removed = schedules.removed_shares(problem)
        eps = 1e-9
        assert removed["per-round"] >= removed["single"] - eps
        assert removed["per-round"] >= removed["after-first"] - eps
        assert removed["grid+single"] >= max(removed["single"], removed["grid"]) - eps
        assert removed["grid+per-round"] >= removed["per-round"] - eps
        assert removed["grid"] >= removed["grid from h"] - eps
        assert removed["single"] >= -eps

    def test_the_optimum_is_real(self, problem):
        # The optimal per-round temperatures, put into the plain sampler, have that error.
        plan = schedules.optimise(problem, "per-round")
        again = LawProblem(problem.target, problem.grid, problem.denoiser, plan.lam)
        assert account(again).KL_out == pytest.approx(plan.error, abs=1e-13)
        scan = np.geomspace(0.1, 10, 25)
        for first in scan:
            for second in scan:
                other = LawProblem(
                    problem.target, problem.grid, problem.denoiser, np.array([first, second])
                )
                log_pi = output_by_paths(other.tables(), other.paths())
                error = float(problem.target.p @ (np.log(problem.target.p) - log_pi))
                assert plan.error <= error + 1e-12

    def test_single_agrees_with_the_scalar_search(self, problem):
        plan = schedules.optimise(problem, "single")
        best = best_temperature(problem)
        assert plan.error == pytest.approx(best.KL_at_star, abs=1e-12)
        assert plan.lam[0] == pytest.approx(best.lambda_star, rel=1e-4)

    @pytest.mark.parametrize("plan", schedules.PLANS)
    def test_gradient_against_differences(self, plan, problem):
        group = schedules.groups_of(plan, 2, 8)
        free = int(group.max()) + 1
        rng = np.random.default_rng(0)
        theta, step = rng.normal(0, 0.3, free + 2), 1e-5

        def error(at):
            weights = np.exp(at[free:]) / np.exp(at[free:]).sum()
            return schedules.error_and_gradient(
                problem, problem.paths(), group, at[:free], weights, with_masses=True
            )

        gradient = error(theta)[1]
        for k in range(theta.size):
            move = np.eye(theta.size)[k] * step
            difference = (error(theta + move)[0] - error(theta - move)[0]) / (2 * step)
            assert gradient[k] == pytest.approx(difference, abs=1e-8)

    def test_price_optimal_grid_for_three_coordinates(self):
        target = Target.dirichlet((2, 2, 2), 0.5, np.random.default_rng(4))
        grid = schedules.price_optimal_grid(target, 2)
        scan = [parallel_price(target, [0, a, 1]) for a in np.linspace(0.01, 0.99, 981)]
        assert parallel_price(target, grid) <= min(scan) + 1e-12
        assert accounting.entropy_profile(target)(grid[1]) > 0


class TestPathBound:
    def test_the_sampled_bound_estimates_the_exact_one(self):
        problem = to_problem({"P": [[0.4, 0.1], [0.2, 0.3]], "grid": [0, 0.4, 1]})
        lams = np.array([0.7, 1.0, 1.5])
        curve = mpath.sample_curve(problem, lams, 3, 200_000, np.random.default_rng(0))
        exact = mpath.exact_bound(problem, lams, 3)
        assert np.all(np.abs(curve.value - exact) < 5 * curve.stderr)
        assert np.all(curve.stderr < 0.003)
        slope = (
            mpath.exact_bound(problem, lams + 1e-5, 3) - mpath.exact_bound(problem, lams - 1e-5, 3)
        ) / 2e-5
        assert np.all(np.abs(curve.slope - slope) < 5 * curve.slope_stderr)

    def test_from_logits_as_a_trained_model_would(self):
        # A denoiser that only has logits: unnormalised, one call per round and path.
        rng = np.random.default_rng(3)
        problem = to_problem(random_document(2))
        target, lams, m = problem.target, np.array([0.5, 1.0, 2.0]), 2
        x = rng.choice(target.size, size=5, p=target.p)
        rounds = mpath.draw_paths(problem.masses, target.L, 5 * m, rng).reshape(5, m, target.L)
        scores = mpath.PathScores(lams, 5, m)
        digits = np.array(np.unravel_index(x, target.shape)).T
        for n in range(5):
            for j in range(m):
                for k in range(problem.N):
                    seen = sum(1 << i for i in range(target.L) if rounds[n, j, i] < k)
                    for i in np.nonzero(rounds[n, j] == k)[0]:
                        table = problem.denoiser.table(int(i), seen)
                        index = [digits[n, a] if seen >> a & 1 else 0 for a in range(target.L)]
                        index[i] = slice(None)
                        logits = np.log(table[tuple(index)]) + rng.normal()
                        scores.add(n, j, logits[None, :], digits[n, [i]])
        log_q, slope = mpath.problem_scores(problem, lams, x, rounds)
        assert np.allclose(scores.log_q, log_q, atol=1e-12)
        assert np.allclose(scores.slope, slope, atol=1e-12)
        assert scores.curve().value == pytest.approx(
            mpath.bound_from_scores(lams, log_q, slope).value
        )

    def test_many_paths_reach_the_output_cross_entropy(self):
        problem = to_problem({"P": [[0.4, 0.1], [0.2, 0.3]], "grid": [0, 0.4, 1]})
        a = account(problem)
        gap = [mpath.exact_bound(problem, [1.0], m)[0] - a.H_X - a.KL_out for m in (1, 10, 100)]
        assert gap[0] == pytest.approx(a.R_N, abs=1e-13)
        assert gap[2] < gap[1] / 9 < gap[0] / 60

    def test_the_direction_test_also_says_smooth(self):
        # One-hot bits: g > 0. 256 sequences and 8 paths; 20 repeats, at least 18 right.
        problem = LawProblem.bayes(Target.one_hot(3, smoothing=1e-3), [0, 0.2, 1])
        rng = np.random.default_rng(0)
        slopes = [
            mpath.sample_curve(problem, [1.0], 8, 256, rng).slope_at_1()[0] for _ in range(20)
        ]
        assert sum(s > 0 for s in slopes) >= 18

    def test_one_path_has_its_optimum_at_1(self):
        problem = to_problem({"P": [[0.4, 0.1], [0.2, 0.3]], "grid": [0, 0.4, 1]})
        lams = np.sort(np.append(np.geomspace(0.5, 2, 20), 1.0))
        assert lams[mpath.exact_bound(problem, lams, 1).argmin()] == 1.0
        assert lams[mpath.exact_bound(problem, lams, 8).argmin()] > 1.0
        assert lams[output_errors(problem, lams).argmin()] > 1.0
