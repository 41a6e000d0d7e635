"""The bootstrap by outputs and by clusters, against enumeration and theory."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from strop.errors import UserError
from strop.stats import resample
from strop.stats.resample import (
    COUNTS,
    GROUPS,
    MANY,
    REPLICATES,
    Statistic,
    bootstrap,
    clustered,
    intervals,
    mean,
    of_replicates,
    order_statistics,
    ratio,
    resampled_sums,
    resamples,
    sums_of,
)

# Three outputs have 27 resamples, all equally likely: the law of a replicate is known exactly.
THREE = np.array([1.0, 2.0, 6.0])
EVERY = np.array([np.mean(one) for one in product(THREE, repeat=3)])


def _shares(values: np.ndarray) -> dict[float, float]:
    names, counts = np.unique(np.round(values, 9), return_counts=True)
    return dict(zip(names.tolist(), (counts / len(values)).tolist(), strict=True))


@pytest.mark.parametrize("at_once", [COUNTS, 0])
def test_replicates_of_three_outputs_have_the_law_of_all_resamples(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways to draw: how often each output comes, and, of many outputs, which ones come.

    A share of 6/27 of 40,000 has a standard error of .002; the bound is five of them.
    """
    monkeypatch.setattr(resample, "COUNTS", at_once)
    columns = np.stack([THREE, np.ones(3)], 1)
    sums = resampled_sums(columns, 40_000, seed=3)
    assert sums.shape == (40_000, 2)
    assert (sums[:, 1] == 3).all()  # n outputs in every resample
    drawn, exact = _shares(sums[:, 0] / 3), _shares(EVERY)
    assert drawn.keys() == exact.keys()
    for value, share in exact.items():
        assert drawn[value] == pytest.approx(share, abs=0.0105)


def test_the_ends_are_the_quantiles_of_all_resamples() -> None:
    """The lowest of 27 means has 1/27 = 3.7% of the mass: at 95% it is the end, and so above."""
    found = bootstrap(mean(THREE), replicates=50_000, seed=1)
    assert found is not None
    assert (found.value, found.low, found.high) == (3.0, 1.0, 6.0)
    assert (found.level, found.n, found.how) == (0.95, 3, "bootstrap")
    # Between 1/27 and 4/27 lies the second mean, (1 + 1 + 2) / 3.
    inner = bootstrap(mean(THREE), replicates=50_000, seed=1, level=0.8)
    assert inner is not None
    assert inner.low == pytest.approx(np.quantile(EVERY, 0.1)) == pytest.approx(4 / 3)


def test_counts_are_those_of_one_generator_whatever_else_is_drawn() -> None:
    rows = resamples(5, 7, seed=11)
    wanted = np.random.default_rng(11).multinomial(5, np.full(5, 0.2), size=7)
    np.testing.assert_array_equal(rows, wanted)
    np.testing.assert_array_equal(resampled_sums(np.eye(5), 7, 11), wanted)
    # Streams of one seed are apart, and known.
    apart = resampled_sums(np.eye(5), 7, 11, 1)
    spawned = np.random.SeedSequence(11, spawn_key=(1,))
    wanted = np.random.default_rng(spawned).multinomial(5, np.full(5, 0.2), size=7)
    np.testing.assert_array_equal(apart, wanted)
    assert (apart != rows).any()


def test_clusters_of_one_are_the_bootstrap_by_outputs() -> None:
    values = np.random.default_rng(0).normal(size=30)
    names = np.random.default_rng(1).permutation(30)  # any names, in any order
    alone = clustered(mean(values), names)
    np.testing.assert_array_equal(alone.columns, mean(values).columns)
    assert bootstrap(alone, seed=4, replicates=500) == bootstrap(
        mean(values), seed=4, replicates=500
    )


def test_clusters_are_drawn_whole() -> None:
    """Sums of three clusters of unequal sizes, and all 27 resamples of them."""
    values, names = np.array([1.0, 5.0, 2.0, 4.0, 9.0, 3.0]), ["b", "a", "b", "c", "b", "a"]
    grouped = clustered(mean(values), names)
    assert grouped.columns.tolist() == [[12.0, 3.0], [8.0, 2.0], [4.0, 1.0]]
    assert grouped.value == values.mean()
    drawn = grouped.finish(resampled_sums(grouped.columns, 20_000, seed=2))
    every = [
        sum(one[0] for one in some) / sum(one[1] for one in some)
        for some in product(grouped.columns.tolist(), repeat=3)
    ]
    assert set(_shares(drawn)) == set(_shares(np.array(every)))
    found = bootstrap(grouped)
    assert found is not None
    assert found.n == 3


def test_answers_that_go_together_make_the_interval_wider() -> None:
    """40 clusters of 5 equal values hold what 40 outputs do: sqrt(5) times the width."""
    level = np.random.default_rng(2).normal(size=40)
    values, names = np.repeat(level, 5), np.repeat(np.arange(40), 5)
    apart, together = bootstrap(mean(values)), bootstrap(clustered(mean(values), names))
    assert apart is not None
    assert together is not None
    assert together == bootstrap(Statistic(5 * mean(level).columns, mean(level).finish))
    assert together.half / apart.half == pytest.approx(5**0.5, rel=0.05)


def test_order_statistics_are_exactly_mirrored() -> None:
    values = np.random.default_rng(3).normal(size=999)
    low, high = order_statistics(values, 0.96)
    assert order_statistics(-values, 0.96) == (-high, -low)
    ordered = np.sort(values)
    assert (low, high) == (ordered[19], ordered[-20])  # floor(.02 * 999) left out at each end
    assert order_statistics(np.full(3, np.nan), 0.9) == (-np.inf, np.inf)


def test_replicates_that_are_no_numbers_are_left_out() -> None:
    found = of_replicates(2.0, np.array([np.nan, 1.0, np.inf, 3.0]), 7, "made up", 0.5)
    assert found is not None
    assert (found.low, found.high, found.n, found.how) == (1.5, 2.5, 7, "made up")
    assert of_replicates(np.nan, np.ones(3), 3) is None
    assert of_replicates(1.0, np.full(3, np.nan), 3) is None


def test_the_interval_of_a_mean_is_the_textbook_one() -> None:
    values = np.random.default_rng(0).normal(3, 2, 400)
    found = intervals({"mean": mean(values)}, seed=1)["mean"]
    assert found is not None
    half = 1.96 * values.std() / 20
    assert found.value == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_equal_seeds_give_equal_intervals_and_resamples_are_shared() -> None:
    values = np.random.default_rng(0).normal(size=50)
    both = intervals({"a": mean(values), "b": mean(2 * values)}, seed=7, replicates=500)
    again = intervals({"a": mean(values)}, seed=7, replicates=500)
    assert both["a"] == again["a"]
    assert both["a"] is not None
    assert both["b"] is not None
    assert both["b"].ends == pytest.approx([2 * end for end in both["a"].ends])
    assert intervals({"a": mean(values)}, seed=8, replicates=500) != again


def test_intervals_of_many_outputs_are_those_of_theory() -> None:
    """Beyond what is remembered, resamples are drawn otherwise; the law is the same.

    A quantile of 10,000 replicates at 2.5% has a standard error of 2.7% of a standard deviation,
    so the width of the interval one of 1%.
    """
    values = np.random.default_rng(3).normal(2.0, 3.0, 5_000)
    found = intervals({"mean": mean(values)}, seed=1)["mean"]
    assert found is not None
    spread = values.std() / len(values) ** 0.5
    assert found.half / (1.96 * spread) == pytest.approx(1, abs=0.04)
    assert sum(found.ends) / 2 == pytest.approx(values.mean(), abs=0.1 * spread)


def test_groups_of_very_many_outputs_give_the_law_of_single_ones() -> None:
    """Mean, spread and skewness: of columns that are dense, and of one that is rarely 1.

    A standard deviation has an error of 1.1% by the groups and of .7% by the replicates; bounds are
    five standard errors of both.
    """
    n = MANY + 4321
    values = np.random.default_rng(4).exponential(size=n)
    rare = np.zeros(n)
    rare[[0, 9000, n - 1]] = 1.0
    rare_sums, dense = sums_of([mean(rare), mean(values)], seed=6)
    assert len(dense) == REPLICATES
    means = dense[:, 0] / dense[:, 1]
    spread = values.std() / np.sqrt(n)
    assert means.mean() == pytest.approx(values.mean(), abs=5 * spread / np.sqrt(REPLICATES))
    assert means.std() == pytest.approx(spread, rel=5 * 0.013)
    # Of three groups with a 1 each comes as often as a Poisson variable of mean one.
    times, counts = np.unique(rare_sums[:, 0], return_counts=True)
    assert times[0] == 0
    assert counts[0] / REPLICATES == pytest.approx(np.exp(-3), abs=5 * 0.0022)
    assert rare_sums[:, 0].mean() == pytest.approx(3, abs=5 * np.sqrt(3 / REPLICATES))
    assert (dense[:, 1] == rare_sums[:, 1]).all()  # all on the same resamples
    assert dense[:, 1].mean() == pytest.approx(n, abs=1)


def test_the_work_of_very_many_outputs_does_not_grow_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[int] = []
    real = resample.resampled_sums
    monkeypatch.setattr(
        resample,
        "resampled_sums",
        lambda columns, *rest: drawn.append(len(columns)) or real(columns, *rest),
    )
    for n in (MANY, MANY + 1, 3 * MANY):
        sums_of([mean(np.ones(n))], replicates=2)
    assert drawn == [MANY, GROUPS, GROUPS]


def test_coverage_of_a_ratio_and_its_negative_control() -> None:
    """200 pairs of cells, true ratio 1.5: coverage .95 has standard error .015.

    The bounds are 3.3 of them. The control, an interval of half the width, must fail.
    """
    rng = np.random.default_rng(5)
    inside = narrow = 0
    for k in range(200):
        a = mean(rng.gamma(4, 0.75, 60))
        b = mean(rng.gamma(4, 0.5, 60))
        found = ratio(a, b, seed=k, replicates=400)
        assert found is not None
        inside += not found.excludes(1.5)
        middle = sum(found.ends) / 2
        narrow += abs(1.5 - middle) <= found.half / 2
    assert 0.90 <= inside / 200 <= 1.0
    assert narrow / 200 < 0.85


def test_ratios_resample_both_sides_apart() -> None:
    x = np.random.default_rng(0).gamma(2, 1, 40)
    apart = ratio(mean(2 * x), mean(x), replicates=200)
    assert apart is not None
    assert apart.half > 0.15
    assert (apart.how, apart.n) == ("bootstrap", 40)
    fewer = ratio(mean(x), mean(x[:30]), replicates=200)
    assert fewer is not None
    assert fewer.n == 30


def test_what_is_not_defined_is_none() -> None:
    nothing = Statistic(
        np.zeros((4, 2)), lambda s: s[..., 0] / np.where(s[..., 1], s[..., 1], np.nan)
    )
    assert intervals({"x": nothing}, replicates=10)["x"] is None
    with pytest.raises(UserError, match="no outputs"):
        intervals({"x": mean(np.zeros(0))})


def test_a_statistic_knows_its_outputs_whatever_its_rows_are() -> None:
    values = np.array([1.0, 5.0, 2.0, 4.0])
    assert (mean(values).outputs, mean(values).exact) == (4, False)
    grouped = clustered(mean(values, exact=True), [0, 1, 0, 1])
    assert (len(grouped.columns), grouped.outputs, grouped.exact) == (2, 4, True)
    assert not Statistic(values[:, None], lambda t: t[..., 0]).exact


def test_seed_and_level_reach_every_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    assert COUNTS == 2**22  # which of the two ways is taken is a part of the stream
    values = mean(np.random.default_rng(0).normal(5, 1, 20))
    assert bootstrap(values, seed=1, replicates=50) != bootstrap(values, seed=2, replicates=50)
    found = ratio(values, values, replicates=50, level=0.5)
    wide = ratio(values, values, replicates=50)
    assert found is not None
    assert wide is not None
    assert (found.level, wide.level) == (0.5, 0.95)
    assert found.half < wide.half / 2
    monkeypatch.setattr(resample, "COUNTS", 0)
    drawn = [resampled_sums(np.eye(4), 6, seed).tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_mean_says_what_it_is() -> None:
    names = (resample.BAYESIAN, resample.BOOTSTRAP, resample.PAIRED)
    assert names == ("Bayesian bootstrap", "bootstrap", "paired bootstrap")
    everywhere, positive, share = (-np.inf, np.inf), (0.0, np.inf), (0.0, 1.0)
    assert (everywhere, positive, share) == (resample.EVERYWHERE, resample.POSITIVE, resample.SHARE)
    plain = resample.mean(np.array([1, 2, 3]))
    assert (plain.columns.tolist(), plain.columns.dtype) == ([[1, 1], [2, 1], [3, 1]], np.float64)
    assert (plain.exact, plain.counted, plain.span) == (False, False, everywhere)
    assert (plain.value, plain.outputs) == (2.0, 3)
    told = resample.mean(np.array([1, 0]), exact=True, span=share, counted=True)
    assert (told.exact, told.counted, told.span) == (True, True, share)
    assert plain.counted is False


def test_a_mean_is_resampled_by_outputs_unless_it_says_otherwise() -> None:
    found = mean(THREE)
    assert [found.exact, found.counted, found.left_out] == [False] * 3
    assert found.outputs == 3
