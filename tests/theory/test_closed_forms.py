"""Propositions 1 and 2, the witness, occupancy and the counterexamples: known answers."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.errors import UserError
from strop.theory import accounting, sampler, temperature
from strop.theory.accounting import account, entropy_of
from strop.theory.document import deflation_target, example
from strop.theory.sampler import LawProblem, order_law, output_by_paths, output_by_subsets
from strop.theory.target import Target, stationary
from strop.theory.temperature import best_temperature, direction


def call(strop, *args):
    code, out, _ = strop("theory", *args, "--json")
    assert code == 0
    return json.loads(out)


class TestPair:
    def test_paper_example(self, strop):
        found = call(strop, "pair", "--s", "0.7", "--c", "0.5")
        assert found["lambda_star"] == pytest.approx(2.5932138862, abs=1e-10)
        assert found["u_star"] == pytest.approx(0.9)
        assert found["t"] == pytest.approx(0.6)
        assert found["small_c_slope"] == pytest.approx(1.1240214, abs=1e-7)
        assert found["finite_repair"] is True

    def test_other_lambda(self, strop):
        found = call(strop, "pair", "--s", "0.7", "--c", "0.5", "--lam", "1.7")
        u = 0.7**1.7 / (0.7**1.7 + 0.3**1.7)
        t = 0.25 + 0.5 * u
        assert found["u"] == pytest.approx(u, abs=1e-14)
        assert found["KL_out"] == pytest.approx(
            0.7 * math.log(0.7 / t) + 0.3 * math.log(0.3 / (1 - t)), abs=1e-14
        )
        assert found["C_N"] == pytest.approx(
            0.5 * (0.7 * math.log(0.7 / u) + 0.3 * math.log(0.3 / (1 - u))), abs=1e-14
        )

    @pytest.mark.parametrize(("c", "limit"), [("0.6", 0.0), ("0.8", 0.0216009)])
    def test_boundary_and_beyond(self, c, limit, strop):
        found = call(strop, "pair", "--s", "0.7", "--c", c)
        assert found["finite_repair"] is False
        assert found["limit_error"] == pytest.approx(limit, abs=5e-8)
        assert "lambda_star" not in found
        assert "u_star" not in found

    def test_expansion(self):
        c = 1e-4
        star = temperature.pair(0.7, c).lambda_star
        assert star is not None
        assert (star - 1 - 1.1240214297 * c) / c**2 == pytest.approx(1.34, abs=0.01)

    def test_extreme_lambda_stays_finite(self):
        found = temperature.pair(0.999, 0.5, 1e4)
        assert math.isfinite(found.C_N)
        assert math.isfinite(found.KL_out)

    @given(
        s=st.floats(0.51, 0.99),
        first=st.floats(0.05, 0.95),
        lam=st.floats(0.1, 5.0),
    )
    @settings(max_examples=60, deadline=None, derandomize=True)
    def test_equals_enumeration(self, s, first, lam):
        problem = LawProblem.bayes(Target.pair(s), [0, first, 1], lam)
        a, closed = account(problem), temperature.pair(s, first**2 + (1 - first) ** 2, lam)
        for key in ("KL_out", "B_N", "C_N", "R_N"):
            assert getattr(a, key) == pytest.approx(getattr(closed, key), abs=1e-12)


class TestWitness:
    @pytest.mark.parametrize("values", [2, 3, 5])
    @pytest.mark.parametrize("length", [2, 3])
    def test_slope(self, values, length):
        problem = LawProblem.bayes(Target.witness(0.8, values, length), [0, 0.3, 0.6, 1])
        closed = temperature.witness_slope(0.8, values, 0.3**2 * 2 + 0.4**2)
        assert direction(problem).g == pytest.approx(closed, abs=1e-14)
        assert closed < 0

    def test_below_chance_smoothing_is_not_claimed(self):
        # A negative control: at s = 1/V the coordinates are independent and g vanishes.
        problem = LawProblem.bayes(Target.witness(1 / 3, 3), [0, 0.5, 1])
        assert direction(problem).g == pytest.approx(0, abs=1e-14)


class TestCollisions:
    def test_paper_numbers_and_its_misprint(self, strop):
        found = call(strop, "collisions", "--length", "1024", "--rounds", "1024")
        assert found["empty"] == pytest.approx(376.5245, abs=5e-5)
        assert f"{found['empty']:.2f}" == "376.52"  # the paper prints 376.53
        assert found["singleton"] == pytest.approx(376.8926, abs=5e-5)
        assert found["share_prob"] == pytest.approx(0.631941, abs=5e-7)
        assert found["colliding_pairs"] == pytest.approx(511.5)

    def test_clipped_grid(self, strop):
        found = call(strop, "collisions", "--length", "1024", "--rounds", "1024", "--clipped")
        assert found["rounds"] == 1025
        assert found["empty"] == pytest.approx(377.518, abs=5e-4)
        assert found["colliding_pairs"] == pytest.approx(511.490, abs=5e-4)
        assert found["cleanup_tv"] == pytest.approx(0.0101878, abs=5e-8)

    def test_exact_fractions(self):
        found = sampler.collisions(1024, sampler.equal_masses(1024))
        exact = 1024 * Fraction(1023, 1024) ** 1024
        assert found.empty == pytest.approx(float(exact), rel=1e-12)

    def test_listed_assignments(self):
        masses, length = np.array([0.2, 0.5, 0.3]), 4
        empty = share = 0.0
        for rounds in product(range(3), repeat=length):
            chance = math.prod(masses[k] for k in rounds)
            empty += chance * sum(k not in rounds for k in range(3))
            share += chance * (rounds.count(rounds[0]) > 1)
        found = sampler.collisions(length, masses)
        assert found.empty == pytest.approx(empty, abs=1e-14)
        assert found.share_prob == pytest.approx(share, abs=1e-14)

    def test_one_round_and_one_token(self):
        assert sampler.collisions(5, [1.0]).share_prob == 1
        alone = sampler.collisions(1, [0.5, 0.5])
        assert (alone.share_prob, alone.colliding_pairs) == (0, 0)


class TestCollapse:
    @given(seed=st.integers(0, 10**6), n=st.integers(1, 12), ties=st.booleans(), at=st.floats(0, 1))
    @settings(max_examples=80, deadline=None, derandomize=True)
    def test_two_outputs_suffice(self, seed, n, ties, at):
        rng = np.random.default_rng(seed)
        f, g = rng.normal(size=(2, n))
        if ties:
            f, g = np.round(f), np.round(g)
        threshold = min(float(g.min() + at * (g.max() - g.min())), float(g.max()))
        program, two = (m(f, g, threshold) for m in (temperature.solve_lp, temperature.two_outputs))
        assert program.value == pytest.approx(two.value, abs=1e-9)
        assert two.support <= 2
        assert two.law @ g >= threshold - 1e-12

    def test_impossible(self):
        with pytest.raises(UserError, match="constraint"):
            temperature.solve_lp([0.0, 1.0], [0.0, 1.0], 2.0)


class TestOrders:
    @pytest.mark.parametrize("seed", range(5))
    def test_one_at_a_time_is_exact_in_any_order(self, seed):
        rng = np.random.default_rng(seed)
        target = Target.dirichlet((2, 3, 2), 0.5, rng)
        law = order_law(3, rng.dirichlet(np.ones(6)))
        q = LawProblem.bayes(target, [0, 1]).denoiser
        assert np.allclose(np.exp(output_by_paths(q.tempered(1.0), law)), target.p, atol=1e-14)
        # and a negative control: at another temperature it is not
        assert not np.allclose(np.exp(output_by_paths(q.tempered(1.5), law)), target.p, atol=1e-3)


class TestCounterexamples:
    def test_entropy_deflates_at_length_3(self, strop):
        found = call(strop, "account", "example:entropy-deflation")
        assert found["H_pi"] - found["H_X"] == pytest.approx(-0.0897, abs=5e-5)
        assert found["KL_out"] == pytest.approx(
            found["B_N"] + found["C_N"] - found["R_N"], abs=1e-11
        )

    @staticmethod
    def excess(target, grid):
        problem = LawProblem.bayes(target, grid)
        pi = np.exp(output_by_subsets(problem.tables(), problem.masses))
        return entropy_of(pi) - target.entropy

    @pytest.mark.parametrize("grid", [[0, 0.63, 1], [0, 1 / 3, 2 / 3, 1]])
    def test_the_alphabet_it_takes(self, grid):
        assert self.excess(deflation_target(2**13), grid) > 0
        assert self.excess(deflation_target(2**14), grid) < 0

    @pytest.mark.parametrize(("rounds", "wanted"), [(3, -0.068), (4, -0.069)])
    def test_more_rounds(self, rounds, wanted):
        grid = np.linspace(0, 1, rounds + 1)
        assert self.excess(deflation_target(), grid) == pytest.approx(wanted, abs=5e-4)

    def test_other_parameters_need_fewer_symbols(self):
        grid = [0, 0.546, 0.777, 1]
        assert self.excess(deflation_target(2**12, agree=0.94, zero=0.1), grid) < 0
        assert self.excess(deflation_target(2**11, agree=0.92, zero=0.186), grid) > 0

    def test_one_hot_prefers_smoothing(self):
        best = best_temperature(example("smoothing-6"))
        assert best.lambda_star == pytest.approx(0.853, abs=5e-4)


class TestBounds:
    def test_uniform_remainder_is_sharp_for_three_coordinates(self):
        # h is quadratic for L = 3, where the remainder bound is attained.
        target = Target.dirichlet((2, 2, 2), 1.0, np.random.default_rng(0))
        left, right = accounting.uniform_remainder_sides(target, 4)
        assert left == pytest.approx(right, abs=1e-14)
        assert right > 1e-6

    def test_kernel_bound(self):
        product_bound, total = accounting.kernel_tv_bound([0.1, 0.2])
        assert product_bound == pytest.approx(1 - 0.9 * 0.8)
        assert total == pytest.approx(0.3)
        assert accounting.kernel_tv_bound([1.0, 0.2])[0] == pytest.approx(1)

    def test_round_errors_by_hand(self):
        # One round of two bits: the kernel is the output, so its distance is the TV of outputs.
        first = LawProblem.bayes(Target.dirichlet((2, 2), 1.0, np.random.default_rng(1)), [0, 1])
        second = LawProblem(first.target, first.grid, first.denoiser, np.array([2.0]))
        outputs = [np.exp(output_by_paths(p.tables(), p.paths())) for p in (first, second)]
        distance = 0.5 * np.abs(outputs[0] - outputs[1]).sum()
        assert accounting.round_errors(first, second) == pytest.approx([distance], abs=1e-14)


class TestTargets:
    def test_markov(self):
        kernel = np.array([[0.9, 0.1], [0.3, 0.7]])
        target = Target.markov(kernel, 3)
        start = stationary(kernel)
        assert start == pytest.approx([0.75, 0.25])
        for x in product(range(2), repeat=3):
            chain = start[x[0]] * kernel[x[0], x[1]] * kernel[x[1], x[2]]
            assert target.P[x] == pytest.approx(chain, abs=1e-14)

    def test_one_hot(self):
        P = Target.one_hot(3).P
        assert P[1, 0, 0] == P[0, 1, 0] == P[0, 0, 1] == pytest.approx(1 / 3)
        assert P.sum() == pytest.approx(1)

    def test_marginals(self):
        target = Target.dirichlet((2, 3, 2), 1.0, np.random.default_rng(0))
        found = target.marginals.reshape(8, 2, 3, 2)
        assert np.allclose(found[0b101], target.P.sum(axis=1, keepdims=True), atol=1e-14)
        assert np.allclose(found[0], 1)
