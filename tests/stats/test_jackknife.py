"""The jackknife, against textbook formulas."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from strop.stats.interval import Interval
from strop.stats.resample import POSITIVE, SHARE, Statistic, clustered, jackknife, mean, student

T_975_4 = 2.7764451051977987
"""The 97.5% quantile of Student's t with four degrees of freedom, from tables."""


def test_of_a_mean_it_is_the_textbook_interval() -> None:
    values = np.array([3.0, 1.0, 4.0, 1.5, 9.0])
    found = jackknife(mean(values))
    error = values.std(ddof=1) / math.sqrt(5)
    assert found.value == values.mean()
    assert found.half == pytest.approx(T_975_4 * error, rel=1e-12)
    assert found.low == pytest.approx(values.mean() - T_975_4 * error, rel=1e-12)
    assert (found.level, found.n, found.how) == (0.95, 5, "jackknife")
    assert student(0.95, 4) == pytest.approx(T_975_4, rel=1e-9)
    assert jackknife(mean(values), 0.5).half < found.half


def test_of_a_ratio_it_is_the_sum_over_those_left_out() -> None:
    """Pseudo-values by hand: (n - 1) / n times the squares around their mean."""
    a, b = np.array([1.0, 2.0, 4.0, 4.5]), np.array([2.0, 2.5, 3.0, 5.0])
    found = jackknife(Statistic(np.stack([a, b], 1), lambda t: t[..., 0] / t[..., 1]))
    left = [np.delete(a, i).sum() / np.delete(b, i).sum() for i in range(4)]
    error = math.sqrt(3 / 4 * sum((one - np.mean(left)) ** 2 for one in left))
    assert found.half == pytest.approx(student(0.95, 3) * error, rel=1e-12)


def test_paired_differences_cancel_what_both_share() -> None:
    """The interval of the difference is that of the differences, not of two independent means."""
    rng = np.random.default_rng(0)
    shared = rng.normal(0, 5, 20)
    one, other = shared + rng.normal(0, 0.1, 20), shared + rng.normal(1, 0.1, 20)
    found = jackknife(mean(one), 0.95, mean(other))
    alone = jackknife(mean(one - other))
    assert found.value == pytest.approx(alone.value)
    assert found.half == pytest.approx(alone.half, rel=1e-9)
    assert found.half < jackknife(mean(one)).half / 10
    assert found.how == "paired jackknife"
    assert found.excludes(0)
    # Only the outputs that both have count, and swapping the sides turns the sign.
    short = jackknife(mean(one), 0.95, mean(other[:12]))
    assert short.n == 12
    assert short.value == pytest.approx((one - other)[:12].mean())
    back = jackknife(mean(other[:12]), 0.95, mean(one))
    assert back.ends == pytest.approx([-short.ends[1], -short.ends[0]])


def test_a_logarithm_is_compared_by_ratios() -> None:
    values = np.array([1.0, 2.0, 4.0, 8.0])
    geometric = Statistic(
        np.stack([np.log(values), np.ones(4)], 1), lambda t: np.exp(t[..., 0] / t[..., 1])
    )
    found, plain = jackknife(geometric, log=True), jackknife(mean(np.log(values)))
    assert found.ends == pytest.approx(plain.ends)
    assert found.exp().value == pytest.approx(geometric.value)


def test_ends_stay_inside_what_a_statistic_can_be() -> None:
    """One of four right is 0.25 +- 3.182 times 0.25 by Student's t: from -0.55 to 1.05."""
    answers = np.array([1.0, 0.0, 0.0, 0.0])
    open_ended, share = jackknife(mean(answers)), jackknife(mean(answers, span=SHARE))
    assert open_ended.ends == pytest.approx((-0.5456, 1.0456), abs=1e-4)
    assert (share.value, share.low, share.high) == (0.25, 0.0, 1.0)
    assert jackknife(mean(answers, span=SHARE), cut=False) == open_ended
    assert jackknife(mean(answers, span=POSITIVE)).ends == (0.0, open_ended.high)
    # Inside the bounds nothing changes, and clusters know them too.
    half = np.tile([0.0, 1.0], 20)
    assert jackknife(mean(half, span=SHARE)) == jackknife(mean(half))
    assert jackknife(clustered(mean(answers, span=SHARE), [0, 1, 2, 3])) == share


def test_a_difference_stays_between_the_bounds_of_both() -> None:
    one, other = np.array([1.0, 1.0, 0.0]), np.array([0.0, 0.0, 0.0])
    open_ended = jackknife(mean(one), minus=mean(other))
    assert open_ended.low < -0.7
    assert open_ended.high > 2
    assert jackknife(mean(one, span=SHARE), minus=mean(other, span=(0.0, 0.5))).ends == (-0.5, 1.0)
    assert jackknife(mean(one, span=SHARE), minus=mean(other)) == open_ended
    ten = (0.0, 10.0)
    assert jackknife(mean(one, span=ten), minus=mean(other, span=ten)) == open_ended


def test_bounds_are_none_of_a_logarithm() -> None:
    values = mean(np.array([0.1, 0.2, 0.4]))
    inside = replace(values, span=SHARE)
    assert jackknife(inside, log=True) == jackknife(values, log=True)
    assert jackknife(inside, log=True).ends[0] < 0


def test_clusters_are_left_out_whole() -> None:
    values, names = np.array([1.0, 1.0, 4.0, 4.0, 6.0, 6.0]), [0, 0, 1, 1, 2, 2]
    found = jackknife(clustered(mean(values), names))
    assert found.n == 3
    assert found.half == pytest.approx(jackknife(mean(np.array([1.0, 4.0, 6.0]))).half)


def test_intervals_hold_at_eight_outputs() -> None:
    """Coverage of the paired difference of two log-means, nominally 95%.

    2,000 pairs: the standard error of a share of 0.95 is 0.5%, and the bound is four of them below.
    """
    rng, held = np.random.default_rng(5), 0
    for _ in range(2000):
        one, other = rng.normal(0, 0.3, (2, 8))
        logs = [
            Statistic(mean(x).columns, lambda total: np.exp(total[..., 0] / total[..., 1]))
            for x in (one, other)
        ]
        found = jackknife(logs[0], 0.95, logs[1], log=True)
        held += not found.excludes(0)
    assert held / 2000 > 0.93


def test_equal_values_are_not_believed_at_once() -> None:
    """All of eight answers right says little; all of 32 is taken as it is."""
    few, many = jackknife(mean(np.ones(8)), 0.95), jackknife(mean(np.ones(32)), 0.95)
    assert (few.value, few.low, few.high) == (1.0, None, None)
    assert (many.low, many.high) == (1.0, 1.0)


def test_an_undefined_value_decides_nothing() -> None:
    nothing = Statistic(np.zeros((8, 2)), lambda total: total[..., 0] / total[..., 1])
    found = jackknife(nothing, 0.95)
    assert math.isnan(found.value)
    assert (found.low, found.high) == (None, None)


def test_where_outputs_do_not_tell_there_are_no_ends() -> None:
    """One output, values that are no numbers, and a few that happen to be the same."""
    alone = jackknife(mean(np.array([2.0])), 0.9)
    assert alone == Interval(2.0, None, None, 0.9, 1, "jackknife")
    # The logarithm of zero, in the value or without one of the outputs.
    zero = jackknife(mean(np.zeros(3)), 0.9, log=True)
    assert zero == Interval(-math.inf, None, None, 0.9, 3, "jackknife")
    once = jackknife(mean(np.array([0.0, 0.0, 3.0])), 0.9, log=True)
    assert once == Interval(0.0, None, None, 0.9, 3, "jackknife")
    same = jackknife(mean(np.full(5, 4.0)), 0.9)
    assert same == Interval(4.0, None, None, 0.9, 5, "jackknife")
    assert jackknife(mean(np.full(32, 4.0)), 0.9).ends == (4.0, 4.0)
    # A spread of some 1e-12 of the value is rounding; the same spread of a small value is not.
    values = np.array([0.0, 2e-12, 4e-12])
    assert not jackknife(mean(100 + values)).bounded
    assert jackknife(mean(values)).bounded


def test_counts_that_a_setting_fixes_are_believed_on_both_sides() -> None:
    values = np.full(5, 4.0)
    exact, found = mean(values, exact=True), mean(values)
    assert jackknife(exact).ends == (4.0, 4.0)
    assert jackknife(exact, minus=exact).ends == (0.0, 0.0)
    for minus in ((exact, found), (found, exact)):
        assert not jackknife(minus[0], minus=minus[1]).bounded
    two = jackknife(mean(np.array([1.0, 3.0])))
    assert two.half == pytest.approx(student(0.95, 1))  # the mean of two: half their difference
