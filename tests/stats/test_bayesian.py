"""Weights of the Bayesian bootstrap: their law, and that chunks do not matter."""

from __future__ import annotations

import numpy as np
import pytest

from strop.stats import resample
from strop.stats.resample import dirichlet, exponentials


def test_dirichlet_weights_are_positive_and_sum_to_one() -> None:
    weights = dirichlet(5, 400, seed=2)
    assert weights.shape == (400, 5)
    assert (weights > 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(weights, dirichlet(5, 400, seed=2))
    assert (weights != dirichlet(5, 400, seed=3)).any()


def test_weights_are_flat_dirichlet_whatever_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = np.concatenate(list(exponentials(6, 500, 1)))
    monkeypatch.setattr(resample, "CHUNK", 37)
    monkeypatch.setattr(resample, "LEAST_ROWS", 1)
    parts = list(exponentials(6, 500, 1))
    assert len(parts) > 50
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    weights = np.concatenate(list(exponentials(6, 20_000, 1)))
    weights /= weights.sum(axis=1, keepdims=True)
    # Mean 1/6 and variance (1/6)(5/6)/7 of a flat Dirichlet; 20,000 draws know them to about 1%.
    for found in (weights, dirichlet(6, 20_000, 4)):
        np.testing.assert_allclose(found.mean(axis=0), 1 / 6, rtol=0.03)
        np.testing.assert_allclose(found.var(axis=0), 5 / 252, rtol=0.06)


def test_the_spread_of_a_mean_is_that_of_theory() -> None:
    """The posterior variance of a mean is var / (n + 1), with var over n (Rubin 1981)."""
    values = np.array([0.0, 1.0, 3.0, 8.0])
    means = dirichlet(4, 200_000, 5) @ values
    assert means.mean() == pytest.approx(values.mean(), abs=0.02)
    assert means.var() == pytest.approx(values.var() / 5, rel=0.02)


def test_there_are_as_many_weights_as_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [part.shape for part in exponentials(3, 7, 0)] == [(7, 3)]
    monkeypatch.setattr(resample, "CHUNK", 10)
    monkeypatch.setattr(resample, "LEAST_ROWS", 2)
    assert [len(part) for part in exponentials(3, 7, 0)] == [3, 3, 1]
    assert [len(part) for part in exponentials(9, 3, 0)] == [2, 1]
