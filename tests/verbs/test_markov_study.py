"""The study's estimators, and a small run of the whole study."""

from __future__ import annotations

import json

import numpy as np
import pytest

from strop.cli.main import run
from strop.theory.accounting import random_chain
from strop.verbs.markov import (
    conditional_entropy,
    crossing,
    jackknife,
    pair_counts,
    pair_kl,
    run_markov_study,
    vertex,
)


def test_exact_outputs_have_no_pair_error():
    # Draws from the chain itself: the plug-in KL is biased upwards by about
    # (cells - 1) / 2n = .0049; after the jackknife the mean over repeats is within noise of zero.
    chain = random_chain(4, 32, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    plain, corrected = [], []
    for _ in range(60):
        counts = pair_counts(chain.draw(50, rng), 4)
        law = chain.pairs.reshape(-1)
        plain.append(float(pair_kl(law, counts.sum(axis=0)[None])[0]))
        corrected.append(jackknife(counts, lambda c, law=law: pair_kl(law, c))[0])
    error = np.std(corrected) / np.sqrt(60)
    assert np.mean(plain) > 0.003
    assert abs(np.mean(corrected)) < 5 * error
    assert error < 0.0005


def test_pair_counts():
    counts = pair_counts(np.array([[0, 1, 1], [1, 0, 1]]), 2)
    assert counts.tolist() == [[0, 1, 0, 1], [0, 1, 1, 0]]


def test_conditional_entropy_of_a_known_law():
    joint = np.array([[0.4, 0.1], [0.1, 0.4]])
    wanted = -2 * (0.4 * np.log(0.8) + 0.1 * np.log(0.2))
    assert conditional_entropy(joint.reshape(1, 4) * 1000, 2)[0] == pytest.approx(wanted)


def test_vertex_andcrossing():
    lams = np.array([0.5, 1.0, 2.0])
    assert vertex(lams, np.log(lams / 1.2) ** 2) == pytest.approx(1.2)
    assert crossing(lams, np.array([3.0, 2.0, 1.0]), 1.5) == pytest.approx(1.5)
    assert crossing(lams, np.array([3.0, 2.0, 1.0]), 5.0) is None


def test_few_steps_want_sharpening_and_the_bounds_hold():
    study = run_markov_study(length=48, outputs=1500, steps=(2, 48), lams=(1.0, 1.15, 1.4, 2.0))
    few, many = study.best()
    # two updates: lambda* clearly above 1, by more than five standard errors of the pair KL
    assert few["lambda_star_pairs"] > 1.15
    assert few["pair_kl_at_1"] - few["pair_kl_best"] > 5 * few["stderr"]
    # one update per token: nothing to gain from sharpening
    assert many["lambda_star_pairs"] < 1.1
    for row in study.rows:
        assert row["pair_kl"] - 5 * row["pair_kl_stderr"] <= row["upper"]
        assert row["nll"] >= row["pair_entropy"] - 0.02  # NLL - entropy rate is a divergence
    lams, upper = study.curve(2, "upper")
    assert lams[upper.argmin()] == 1.0  # the posterior loss never asks for sharpening
    _, nll = study.curve(2, "nll")
    assert (np.diff(nll) < 0).all()


def test_command(tmp_path, capsys):
    args = ["theory", "markov", "-o", str(tmp_path), "-n", "8", "--length", "16", "--steps", "2,4"]
    assert run([*args, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    stored = json.loads((tmp_path / "markov.json").read_text())
    assert printed["best"] == stored["best"]
    assert {row["steps"] for row in stored["rows"]} == {2, 4}
    assert (tmp_path / "markov.svg").stat().st_size > 1000
    assert (tmp_path / "markov.png").stat().st_size > 1000


@pytest.mark.parametrize("steps", ["0", "4,x", "4,,8", "-1"])
def test_bad_steps(steps, tmp_path, capsys):
    assert run(["theory", "markov", "-o", str(tmp_path), f"--steps={steps}"]) == 1
    assert "--steps" in capsys.readouterr().err
