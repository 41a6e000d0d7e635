"""The paired bootstrap: coverage, pairing, determinism."""

from __future__ import annotations

import numpy as np
import pytest

from strop.rng import derive_seed
from strop.stats.resample import Resampled, replicate_means


def test_replicates_have_the_variance_of_a_mean():
    values = np.random.default_rng(0).normal(3, 2, size=(400, 1))
    means = replicate_means(values, seed=1)
    assert means.shape == (10_000, 1)
    assert means.mean() == pytest.approx(values.mean(), abs=0.005)
    # Of 10,000 replicates the standard deviation is known to .7%: 4% is beyond five of those.
    assert means.std() == pytest.approx(values.std() / 20, rel=0.04)


def test_intervals_cover():
    # 300 samples of 60: coverage within .95 +- .05 (four standard errors); control: half of it.
    rng = np.random.default_rng(2)
    hits = narrow = 0
    for seed in range(300):
        values = rng.normal(size=60)
        found = Resampled({0: values}, seed=seed, replicates=500).interval(0)
        hits += not found.excludes(0)
        narrow += abs(found.value) <= found.half / 2
    assert 0.90 < hits / 300 < 1.0
    assert narrow / 300 < 0.80


def test_columns_are_paired():
    noise = np.random.default_rng(3).normal(size=100)
    drawn = Resampled({"a": noise + 0.1, "b": noise, "c": noise[::-1].copy()}, seed=0)
    together = drawn.interval("a", "b")
    assert (together.low, together.high) == pytest.approx((0.1, 0.1))
    assert together.excludes(0)
    assert (together.value, together.n) == (pytest.approx(0.1), 100)
    assert (together.how, drawn.interval("a").how) == ("paired bootstrap", "bootstrap")
    apart = drawn.interval("a", "c")  # the same values, not paired
    assert apart.half > 0.15
    best, shares = drawn.lowest(["a", "b"])
    assert best == 1
    assert shares.tolist() == [0.0, 1.0]


def test_the_same_seed_draws_the_same_sequences():
    values = np.random.default_rng(4).normal(size=(30, 2))
    whole = replicate_means(values, seed=5, replicates=700)
    alone = replicate_means(values[:, :1], seed=5, replicates=700)
    assert alone == pytest.approx(whole[:, :1], abs=1e-13)
    assert (replicate_means(values, seed=6, replicates=700) != whole).any()


def test_the_stream_is_that_of_its_seed_and_number() -> None:
    """Three sequences: the counts are known, and so is every replicate."""
    values = np.array([[1.0], [10.0], [100.0]])
    seed = derive_seed(5, "bootstrap", 3)
    counts = np.random.default_rng(seed).multinomial(3, np.full(3, 1 / 3), size=4)
    wanted = counts @ values / 3
    np.testing.assert_array_equal(replicate_means(values, seed=5, replicates=4), wanted)
    found = Resampled({"x": values[:, 0]}, seed=5, replicates=4).interval("x")
    assert found.ends == pytest.approx(np.quantile(wanted, [0.025, 0.975]))


def test_values_that_are_no_numbers_have_no_ends() -> None:
    found = Resampled({"x": np.array([1.0, np.inf])}, seed=0, replicates=5).interval("x")
    assert (found.value, found.low, found.high, found.n) == (np.inf, None, None, 2)


def test_a_column_that_is_never_the_lowest_has_a_share_of_none() -> None:
    columns = {"low": np.zeros(3), "high": np.ones(3), "middle": np.full(3, 0.5)}
    best, shares = Resampled(columns, seed=0, replicates=10).lowest(["middle", "low", "high"])
    assert (best, shares.tolist()) == (1, [0.0, 1.0, 0.0])
