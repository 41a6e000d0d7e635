"""`strop theory derivative`: g against loops and differences, lambda* against a dense scan."""

from __future__ import annotations

import numpy as np
import pytest

from .documents import random_document, random_grid, random_law
from .reference import Reference


@pytest.mark.parametrize("seed", [s for s in range(36) if s % 8 not in (7,)])
def test_g_and_its_split(seed, theory):
    document = random_document(seed)
    document.pop("lam", None)
    code, found = theory("derivative", document)
    assert code == 0
    reference = Reference(document)
    wanted = reference.direction()
    for key, value in wanted.items():
        assert found[key] == pytest.approx(value, abs=1e-12), key
    split = found["sharpening_term"] - found["cov_w_eta"] + found["loss_slope"]
    assert found["g"] == pytest.approx(split, abs=1e-13)
    if document.get("denoiser", "bayes") == "bayes":
        assert found["loss_slope"] == pytest.approx(0, abs=1e-13)
    assert found["KL_at_1"] == pytest.approx(reference.kl(1.0), abs=1e-13)


@pytest.mark.parametrize("seed", range(6))
def test_g_is_the_slope_of_the_enumerated_error(seed, theory):
    rng = np.random.default_rng(seed)
    document = {"P": random_law((2, 3), rng), "grid": random_grid(2 + seed % 2, rng)}
    _, found = theory("derivative", document)
    f, step = Reference(document).kl, 1e-3
    difference = (f(1 - 2 * step) - 8 * f(1 - step) + 8 * f(1 + step) - f(1 + 2 * step)) / (
        12 * step
    )
    assert found["g"] == pytest.approx(difference, abs=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_lambda_star_is_the_global_minimum(seed, theory):
    rng = np.random.default_rng(100 + seed)
    document = {"P": random_law((2, 2), rng), "grid": random_grid(2, rng)}
    _, found = theory("derivative", document)
    reference = Reference(document)
    scan = [reference.kl(float(lam)) for lam in np.geomspace(0.05, 50, 400)]
    assert found["KL_at_star"] <= min(scan) + 1e-14
    assert found["KL_at_star"] == pytest.approx(reference.kl(found["lambda_star"]), abs=1e-14)
    assert (found["lambda_star"] > 1) == (found["g"] < 0)


def test_lambda_star_of_the_pair_to_ten_digits(theory):
    _, found = theory("derivative", {"P": [[0.35, 0.15], [0.15, 0.35]], "grid": [0, 0.5, 1]})
    assert found["lambda_star"] == pytest.approx(2.5932138862, abs=1e-10)
    assert found["direction"] == "sharpen"


def test_without_a_finite_repair_the_answer_is_the_end_of_the_range(theory):
    # c = .8 >= 2 (1 - .7): the error falls for ever.
    x = (1 + np.sqrt(0.6)) / 2
    _, found = theory("derivative", {"P": [[0.35, 0.15], [0.15, 0.35]], "grid": [0, x, 1]})
    assert found["lambda_star"] == 50
    assert found["at_limit"] is True
    assert found["KL_at_star"] == pytest.approx(0.0216009, abs=5e-8)


def test_a_target_that_does_not_care_keeps_lambda_1(theory):
    _, found = theory("derivative", {"P": [[0.25, 0.25], [0.25, 0.25]], "grid": [0, 0.5, 1]})
    assert found["lambda_star"] == 1
    assert found["g"] == pytest.approx(0, abs=1e-14)


@pytest.mark.parametrize(
    ("name", "lambda_star"),
    [("smoothing", 0.825), ("smoothing-6", 0.853), ("smoothing-6-equal", 0.974)],
)
def test_smoothing_can_be_right(name, lambda_star, strop):
    import json

    code, out, _ = strop("theory", "derivative", f"example:{name}", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["g"] > 0
    assert found["lambda_star"] == pytest.approx(lambda_star, abs=5e-4)


def test_too_many_paths_are_no_obstacle(theory):
    rng = np.random.default_rng(3)
    document = {"P": random_law((2, 2, 2, 2), rng), "grid": np.linspace(0, 1, 61).tolist()}
    code, found = theory("derivative", document)
    assert code == 0
    split = found["sharpening_term"] - found["cov_w_eta"]
    assert found["g"] == pytest.approx(split, abs=1e-13)
    assert found["lambda_star"] == pytest.approx(1, abs=0.1)
