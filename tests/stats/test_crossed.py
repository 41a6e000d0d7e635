"""The mean of crossed readings: by hand, and how often its interval holds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import stdtrit

from strop.stats.resample import Crossed, crossed

SIZE = 8


def drawn(
    rng: np.random.Generator, n: int, group: float, unit: float = 2.0, rest: float = 1.0
) -> Crossed:
    """Units read twice in groups of eight, around 5, with these standard deviations."""
    groups = np.stack([rng.permutation(n) // SIZE for _ in range(2)], 1)
    moods = rng.normal(0, group, (n // SIZE, 2))
    shared = np.stack([moods[groups[:, r], r] for r in range(2)], 1)
    values = 5 + rng.normal(0, unit, (n, 1)) + shared + rng.normal(0, rest, (n, 2))
    return crossed(values, np.ones((n, 2), bool), groups)


def test_of_two_whole_rounds_it_is_the_sum_of_two_mean_squares() -> None:
    """Variance of the mean: (between groups + covariance of rounds) / 2n, all by hand."""
    values = np.array([[8.0, 6.0], [5.0, 2.0], [3.0, 0.0], [0.0, 0.0], [1.0, 8.0], [6.0, 9.0]])
    groups = np.array([[0, 0], [0, 1], [1, 1], [1, 2], [2, 0], [2, 2]])
    found = crossed(values, np.ones((6, 2), bool), groups)
    between = within = 0.0
    for r in range(2):
        for g in range(3):
            mine = values[groups[:, r] == g, r]
            between += 2 * (mine.mean() - values[:, r].mean()) ** 2 / 4
            within += ((mine - mine.mean()) ** 2).sum() / 6
    shared = np.cov(values.T)[0, 1]
    assert found.value == pytest.approx(values.mean())
    assert found.unit == pytest.approx(shared)
    assert found.group == pytest.approx((between - within) / 2)
    assert found.rest == pytest.approx(within - shared)
    assert found.variance is not None
    assert found.variance == pytest.approx((between + shared) / 12)
    doubt = (between / 12) ** 2 * 2 / 4 + (shared**2 + (within + found.group) ** 2) / 5 / 144
    assert found.freedom == pytest.approx(min(5, 2 * found.variance**2 / doubt))
    half = stdtrit(found.freedom, 0.975) * math.sqrt(found.variance)
    assert found.interval().ends == pytest.approx([values.mean() - half, values.mean() + half])


def test_one_round_is_students_interval_over_its_groups() -> None:
    rng = np.random.default_rng(0)
    moods = np.array([-3.0, 0.0, 1.0, 4.0])
    values = np.repeat(moods, 2)[:, None] + rng.normal(0, 0.1, (8, 1))
    found = crossed(values, np.ones((8, 1), bool), np.repeat(np.arange(4), 2)[:, None])
    means = values.reshape(4, 2).mean(1)
    assert found.variance == pytest.approx(means.var(ddof=1) / 4)
    assert found.freedom == pytest.approx(3)


def test_what_is_missing_weighs_less() -> None:
    """Units that were read once count once; without groups to compare there is no variance."""
    values = np.array([[1.0, 3.0], [2.0, 4.0], [6.0, 0.0], [8.0, 0.0]])
    read = np.array([[True, True], [True, True], [True, False], [True, False]])
    groups = np.array([[0, 0], [0, 0], [1, 0], [1, 0]])
    found = crossed(values, read, groups)
    assert found.value == pytest.approx((2 + 3 + 6 + 8) / 4)
    assert found.variance is not None
    weight = np.array([[1, 1], [1, 1], [2, 0], [2, 0]]) / 8
    by_group = (weight[:2, 0].sum()) ** 2 + weight[2:, 0].sum() ** 2 + weight[:, 1].sum() ** 2
    expected = found.unit / 4 + found.group * by_group + found.rest * (weight**2).sum()
    assert found.variance == pytest.approx(expected)
    assert found.group > 0
    alone = crossed(values[:2], read[:2], groups[:2])
    assert (alone.variance, alone.interval().ends) == (None, (-math.inf, math.inf))
    assert (found - alone).variance is None


def test_a_difference_adds_variances() -> None:
    rng = np.random.default_rng(1)
    one, other = drawn(rng, 32, 1.0), drawn(rng, 64, 1.0)
    found = one - other
    assert found.variance is not None
    assert found.value == one.value - other.value
    assert one.variance is not None
    assert other.variance is not None
    assert found.variance == one.variance + other.variance
    doubt = one.variance**2 / one.freedom + other.variance**2 / other.freedom
    assert found.freedom == pytest.approx(found.variance**2 / doubt)
    assert found.n == 32
    same = crossed(np.ones((16, 2)), np.ones((16, 2), bool), np.arange(32).reshape(16, 2) // 16)
    assert (same - same).interval().ends == (0.0, 0.0)


@pytest.mark.parametrize(("n", "group"), [(16, 1.0), (32, 0.0), (32, 1.5), (128, 1.5)])
def test_null_pairs_are_told_apart_as_often_as_they_should(n: int, group: float) -> None:
    """800 pairs: 5% has a standard error of .8%. Without groups the rate is below, never above.

    Intervals over outputs alone would tell 14% apart at a leniency of 1.5 points.
    """
    rng = np.random.default_rng([n, round(10 * group)])
    wrong = sum((drawn(rng, n, group) - drawn(rng, n, group)).interval().excludes(0)
                for _ in range(800))  # fmt: skip
    assert wrong / 800 < 0.074
    assert wrong / 800 > (0.026 if n > 16 and group > 0 else 0.008)


def test_the_variances_are_those_of_the_law() -> None:
    """Means over 300 pools of 128; the bounds are about five standard errors."""
    rng = np.random.default_rng(3)
    found = [drawn(rng, 128, 1.5) for _ in range(300)]
    assert np.mean([one.unit for one in found]) == pytest.approx(4, abs=0.2)
    assert np.mean([one.group for one in found]) == pytest.approx(2.25, abs=0.3)
    assert np.mean([one.rest for one in found]) == pytest.approx(1, abs=0.2)
    truth = 4 / 128 + 2.25 / 32 + 1 / 256
    assert np.mean([one.variance or 0.0 for one in found]) == pytest.approx(truth, rel=0.1)
    assert np.var([one.value for one in found]) == pytest.approx(truth, rel=0.4)


def by_hand(values: np.ndarray, groups: np.ndarray) -> tuple[float, float, float, float, float]:
    """Two whole rounds: between, within, covariance, variance of the mean, degrees of freedom."""
    n = len(values)
    between = within = 0.0
    free, size = 0, n / len(np.unique(groups[:, 0]))
    for r in range(2):
        names = np.unique(groups[:, r])
        for g in names:
            mine = values[groups[:, r] == g, r]
            between += len(mine) * (mine.mean() - values[:, r].mean()) ** 2
            within += ((mine - mine.mean()) ** 2).sum()
        free += len(names) - 1
    between, within = between / free, within / (2 * n - free - 2)
    unit = min(max(np.cov(values.T)[0, 1], 0.0), within)
    group = max(0.0, (between - within) / size)
    # Weights are 1 / 2n: of a unit 1/n in all, of a group `size` of them.
    variance = unit / n + (group * size + within - unit) / (2 * n)
    measured = between if group > 0 else within
    doubt = (measured / (2 * n)) ** 2 * 2 / free
    doubt += (1 / (2 * n)) ** 2 * (unit**2 + (within + group) ** 2) / (n - 1)
    return unit, group, within - unit, variance, min(n - 1, 2 * variance**2 / doubt)


@pytest.mark.parametrize("mood", [0.0, 6.0])
def test_degrees_of_freedom_below_those_of_the_units(mood: float) -> None:
    """Few groups that differ much have few degrees of freedom; without a mood all count."""
    rng = np.random.default_rng(0)
    groups = np.stack([np.arange(12) // 6, np.arange(12) % 2], 1)
    values = rng.normal(0, 1, (12, 1)) + rng.normal(0, 1, (12, 2)) + mood * groups
    found = crossed(values, np.ones((12, 2), bool), groups)
    expected = by_hand(values, groups)
    numbers = (found.unit, found.group, found.rest, found.variance, found.freedom)
    assert numbers == pytest.approx(expected, rel=1e-9)
    assert (found.group > 0) == (mood > 0)
    assert found.freedom < (3 if mood else 6)


def test_what_an_interval_and_its_parts_say() -> None:
    unknown = Crossed(1.5, 4, None)
    assert (unknown.freedom, unknown.parts) == (0.0, {"output": 0.0, "group": 0.0, "rest": 0.0})
    found = unknown.interval(0.9)
    assert (found.value, found.low, found.level) == (1.5, None, 0.9)
    assert (found.n, found.how) == (4, "crossed model")
    known = Crossed(1.5, 4, 0.25, 3.0, 1.0, 2.0, 3.0)
    assert known.parts == {"output": 1.0, "group": 2.0, "rest": 3.0}
    found = known.interval(0.9)
    assert (found.value, found.level, found.n, found.how) == (1.5, 0.9, 4, "crossed model")
    assert found.half == pytest.approx(0.5 * stdtrit(3, 0.95))


def test_three_rounds_of_which_one_has_a_single_group() -> None:
    """The covariance is over all pairs of rounds; a round with one group has no size of a group."""
    values = np.array([[1.0, 2.0, 4.0], [3.0, 7.0, 5.0], [6.0, 4.0, 9.0], [8.0, 9.0, 9.0]])
    groups = np.array([[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0]])
    found = crossed(values, np.ones((4, 3), bool), groups)
    pairs = np.cov(values.T)
    shared = (pairs[0, 1] + pairs[0, 2] + pairs[1, 2]) / 3
    inside = 2.0 + 2.0 + 2.0 + 2.0 + values[:, 2].var() * 4  # squares inside groups
    within = inside / (2 + 2 + 3)
    between = (25.0 + 25.0) / 2
    assert found.unit == pytest.approx(min(shared, within))
    assert found.group == pytest.approx((between - within) / 2)


def test_groups_of_one_say_nothing_about_what_is_inside() -> None:
    values = np.array([[1.0], [2.0], [6.0]])
    found = crossed(values, np.ones((3, 1), bool), np.arange(3)[:, None])
    assert (found.unit, found.group, found.rest) == pytest.approx((7.0, 0.0, 0.0))
    assert found.variance == pytest.approx(7 / 3)


def test_groups_of_unequal_size_without_a_mood_count_as_units() -> None:
    """Means of groups that lie closer together than units would put them: no variance of groups."""
    values = np.array([[1.0], [9.0], [2.0], [8.0], [4.0], [6.0]])
    found = crossed(values, np.ones((6, 1), bool), np.array([[0], [0], [0], [0], [1], [1]]))
    assert (found.group, found.unit) == pytest.approx((0.0, 52 / 4))
    assert found.variance == pytest.approx(52 / 4 / 6)
    assert found.freedom == pytest.approx(1)  # of two groups
