"""`strop theory account` against the definitions written as loops, key by key."""

from __future__ import annotations

import math

import numpy as np
import pytest

from strop.errors import UserError
from strop.theory.accounting import account_paths, path_law
from strop.theory.sampler import LawProblem
from strop.theory.target import Target

from .documents import random_document
from .reference import Reference

KEYS = (
    *("H_X", "J_N", "B_N", "C_N", "R_N", "KL_out", "KL_aug", "H_pi", "TV", "h_at_grid"),
    *("c_at_grid", "dependence_sum", "mesh_bound", "pinsker_bound", "share_prob_c"),
)


@pytest.mark.parametrize("seed", range(48))
def test_every_key_equals_the_slow_enumeration(seed, theory):
    document = random_document(seed)
    code, found = theory("account", document)
    assert code == 0
    wanted = Reference(document).account()
    for key in KEYS:
        # The square root turns rounding of B + C near zero into 1e-8.
        tolerance = 1e-7 if key == "pinsker_bound" else 1e-12
        assert np.allclose(found[key], wanted[key], rtol=0, atol=tolerance), key


def test_the_two_bits_of_the_paper(theory):
    code, found = theory("account", {"P": [[0.35, 0.15], [0.15, 0.35]], "grid": [0, 0.5, 1]})
    assert code == 0
    # sum over rounds of delta^2 is 1/2; the branches agree with .5 and .7, so pi agrees with .6.
    assert np.allclose(found["pi"], [[0.3, 0.2], [0.2, 0.3]], rtol=0, atol=1e-14)
    assert found["KL_out"] == pytest.approx(0.7 * math.log(0.7 / 0.6) + 0.3 * math.log(0.3 / 0.4))
    assert found["B_N"] == pytest.approx(0.041141, abs=5e-7)
    assert found["R_N"] == pytest.approx(0.019541, abs=5e-7)


def test_at_lambda_star_the_credit_outgrows_the_error(theory):
    document = {"P": [[0.35, 0.15], [0.15, 0.35]], "grid": [0, 0.5, 1], "lam": 2.593213886238}
    _, found = theory("account", document)
    assert found["C_N"] == pytest.approx(0.076832, abs=5e-7)
    assert found["R_N"] == pytest.approx(0.117973, abs=5e-7)
    assert found["KL_out"] == pytest.approx(0, abs=1e-14)


def test_bayes_is_uniform_on_null_contexts(theory):
    # X_1 = 0 always: the context X_1 = 1 has no mass and predicts X_2 uniformly.
    document = {"P": [[0.8, 0.2], [0.0, 0.0]], "grid": [0, 0.5, 1], "lam": 0.5}
    code, found = theory("account", document)
    assert code == 0
    assert found["KL_out"] == pytest.approx(Reference(document).account()["KL_out"], abs=1e-14)


def test_many_rounds_use_the_recursion(theory):
    # 60^4 paths cannot be listed; as rounds grow the exact denoiser approaches P.
    rng = np.random.default_rng(5)
    P = rng.dirichlet(np.ones(16)).reshape(2, 2, 2, 2).tolist()
    _, few = theory("account", {"P": P, "grid": [0, 0.5, 1]})
    code, many = theory("account", {"P": P, "grid": np.linspace(0, 1, 61).tolist()})
    assert code == 0
    assert many["KL_out"] == pytest.approx(many["B_N"] + many["C_N"] - many["R_N"], abs=1e-13)
    assert many["KL_out"] < few["KL_out"] / 100
    assert many["B_N"] == pytest.approx(many["dependence_sum"] / 120, rel=0.1)


def test_a_denoiser_that_rules_out_the_data_has_infinite_loss(theory):
    tables = [
        {"i": 0, "A": [], "table": [[1.0], [0.0]]},
        {"i": 0, "A": [1], "table": [[0.5, 0.5], [0.5, 0.5]]},
        {"i": 1, "A": [], "table": [[0.5, 0.5]]},
        {"i": 1, "A": [0], "table": [[0.5, 0.5], [0.5, 0.5]]},
    ]
    document = {"P": [[0.25, 0.25], [0.25, 0.25]], "grid": [0, 0.5, 1], "denoiser": tables}
    code, found = theory("account", document)
    assert code == 0
    assert found["J_N"] == found["C_N"] == found["R_N"] == found["KL_aug"] == "Infinity"
    assert math.isfinite(found["KL_out"])
    assert found["pinsker_bound"] == "Infinity"


def test_one_coordinate_is_always_exact(theory):
    _, found = theory("account", {"P": [0.1, 0.2, 0.7], "grid": [0, 0.3, 0.9, 1]})
    assert found["B_N"] == pytest.approx(0, abs=1e-14)
    assert found["KL_out"] == pytest.approx(0, abs=1e-14)
    assert found["dependence_sum"] == pytest.approx(0, abs=1e-14)


def test_the_table_without_json_shows_the_same_numbers(strop, tmp_path):
    path = tmp_path / "t.json"
    path.write_text('{"P": [[0.35, 0.15], [0.15, 0.35]], "grid": [0, 0.5, 1]}')
    code, out, err = strop("theory", "account", path)
    assert code == 0
    assert "0.02160085414" in out
    assert "next: strop theory derivative" in err


class TestPathLaws:
    def test_two_fixed_paths_by_hand(self):
        # Half of the time both bits together, half the first before the second: the pair again.
        target = Target.pair(0.7)
        tables = LawProblem.bayes(target, [0, 1]).tables()
        law = path_law(np.array([[0, 0], [0, 1]]), np.array([0.5, 0.5]))
        found = account_paths(target, tables, law)
        assert found.pi == pytest.approx([0.3, 0.2, 0.2, 0.3], abs=1e-14)
        information = 0.7 * math.log(1.4) + 0.3 * math.log(0.6)
        assert pytest.approx(information / 2, abs=1e-14) == found.B
        assert pytest.approx(0, abs=1e-14) == found.C
        assert found.KL_out == pytest.approx(found.B - found.R, abs=1e-14)

    @pytest.mark.parametrize(
        ("rounds", "weights"),
        [([[0, 1]], [0.5]), ([0, 1], [1.0]), ([[0, -1]], [1.0]), ([[0, 1]], [0.5, 0.5])],
    )
    def test_what_is_no_path_law(self, rounds, weights):
        with pytest.raises(UserError):
            path_law(np.array(rounds), np.array(weights))


def test_no_slope_for_a_denoiser_that_rules_out_the_data(theory):
    tables = [
        {"i": 0, "A": [], "table": [[1.0], [0.0]]},
        {"i": 0, "A": [1], "table": [[0.5, 0.5], [0.5, 0.5]]},
        {"i": 1, "A": [], "table": [[0.5, 0.5]]},
        {"i": 1, "A": [0], "table": [[0.5, 0.5], [0.5, 0.5]]},
    ]
    document = {"P": [[0.25, 0.25], [0.25, 0.25]], "grid": [0, 0.5, 1], "denoiser": tables}
    code, found = theory("derivative", document)
    assert code == 1
    assert "rules out" in found["error"]["what"]
