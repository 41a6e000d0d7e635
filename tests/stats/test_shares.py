"""Shares of right answers, against textbooks and by enumeration."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binom

from strop.stats.resample import (
    bounded_difference,
    bounded_mean,
    clustered,
    counted_share,
    mean,
    pass_at,
    share_interval,
    sign_test,
    skewed,
    wilson,
)


def test_wilsons_interval_is_where_the_test_of_the_share_ends() -> None:
    """(share - p)^2 = z^2 p (1 - p) / n at both ends."""
    found = wilson(0.9, 40)
    for end in found.ends:
        assert (0.9 - end) ** 2 == pytest.approx(1.959963985**2 * end * (1 - end) / 40)
    assert found.low is not None
    assert found.low < 0.9 < found.ends[1]
    assert (found.n, found.how, found.level) == (40, "Wilson", 0.95)
    z2 = 1.959963985**2
    assert wilson(1.0, 10).ends == pytest.approx((1 / (1 + z2 / 10), 1.0))
    assert wilson(0.0, 10).ends == pytest.approx((0.0, z2 / 10 / (1 + z2 / 10)))


@pytest.mark.parametrize("share", [0.5, 0.92, 0.98, 0.99])
def test_it_holds_as_often_as_it_says_near_one(share: float) -> None:
    """Exact, 256 problems. A percentile bootstrap holds in 88% at 98% right."""
    held = 0.0
    for right in range(257):
        answers = np.repeat([1.0, 0.0], [right, 256 - right])
        held += binom.pmf(right, 256, share) * (not share_interval(answers).excludes(share))
    assert 0.94 < held < 0.965


def test_answers_to_one_problem_count_together() -> None:
    """400 draws of 64 problems with 8 answers each, whose difficulty varies: 95% +- 3 errors.

    As 512 independent answers the interval would hold in about 60%.
    """
    rng, held = np.random.default_rng(0), 0
    for _ in range(400):
        shares = rng.binomial(8, rng.beta(0.8, 0.2, 64)) / 8
        held += not share_interval(shares, 8).excludes(0.8)
    assert 0.917 < held / 400 < 0.983
    # Problems that are all alike are worth all their answers; all right, no more than problems.
    alike = share_interval(np.full(16, 0.5), 4)
    assert alike.half == pytest.approx(wilson(0.5, 16).half)
    shares = np.array([0.25, 0.5, 0.5, 0.75])
    worth = 0.25 / (shares.var(ddof=1) / 4)
    assert worth > 16
    assert share_interval(shares, 4).half == pytest.approx(wilson(0.5, 16).half)
    assert share_interval(np.ones(5), 4).ends == wilson(1.0, 5).ends
    assert share_interval(shares, 4).n == 4


def test_the_sign_test_is_mcnemars() -> None:
    """Four discordant problems to none: 2 / 2^4."""
    assert sign_test(np.array([1, 1, 1, 1, 0, 0.0])) == pytest.approx(2 / 16)
    assert sign_test(np.array([1, 1, 1, 1, 1, -1.0])) == pytest.approx(2 * 7 / 64)
    assert sign_test(np.array([-0.5, -0.25, 1, 0])) == 1.0
    assert sign_test(np.zeros(3)) == 1.0
    assert sign_test(np.array([1] * 9 + [-1])) == pytest.approx(2 * 11 / 1024)


def test_pass_at_k_is_the_share_of_choices_with_a_right_answer() -> None:
    """Over every choice of k of five answers, of which two are right."""
    answers = [1, 1, 0, 0, 0]
    for k in range(1, 6):
        every = [max(some) for some in combinations(answers, k)]
        assert pass_at(np.array([2.0]), 5, k)[0] == pytest.approx(np.mean(every))
    assert pass_at(np.array([0.0, 5.0]), 5, 3).tolist() == [0.0, 1.0]
    # Unbiased: its mean over draws of five answers is the chance of one in three.
    chance = sum(binom.pmf(c, 5, 0.3) * pass_at(np.array([c]), 5, 3)[0] for c in range(6))
    assert chance == pytest.approx(1 - math.pow(0.7, 3))


def test_what_few_problems_are_worth() -> None:
    """Two problems of four answers: a variance of 1/16 is that of four answers."""
    found = share_interval(np.array([0.25, 0.75]), 4, 0.9)
    expected = wilson(0.5, 4, 0.9)
    assert (found.value, *found.ends) == pytest.approx((0.5, *expected.ends))
    assert (found.level, found.n) == (0.9, 2)
    alone = share_interval(np.array([0.5]), 8)
    assert alone.ends == wilson(0.5, 1).ends
    assert wilson(0.5, 1).value == 0.5


def test_a_counted_share_is_wilsons_of_its_outputs_or_prompts() -> None:
    right = np.repeat([1.0, 0.0], [24, 0])
    assert counted_share(mean(right)) == wilson(1.0, 24), "24 of 24 is no certainty"
    assert counted_share(mean(np.repeat([1.0, 0.0], [30, 10]))) == wilson(0.75, 40, n=40)
    # Four prompts, six answers each: all right is worth four answers, and so is all or nothing.
    prompts = np.repeat(np.arange(4), 6)
    assert counted_share(clustered(mean(right), prompts)) == wilson(1.0, 4, n=4)
    either = np.repeat([1.0, 1.0, 0.0, 0.0], 6)
    assert counted_share(clustered(mean(either), prompts)) == wilson(0.5, 4, n=4)
    # Shares of equal prompts are those of tasks; unequal ones count by their answers.
    mixed = np.concatenate([np.repeat([1.0, 0.0], [right, 6 - right]) for right in (6, 4, 2, 1)])
    found = counted_share(clustered(mean(mixed), prompts), 0.9)
    assert found.ends == pytest.approx(share_interval(mixed.reshape(4, 6).mean(1), 6, 0.9).ends)
    assert counted_share(clustered(mean(right[:5]), [0, 0, 0, 0, 1])).n == 2


def test_rows_of_a_clustered_share_are_worth_what_their_spread_says() -> None:
    """Three prompts with 2, 4 and 4 answers: the variance of a ratio of sums."""
    rows = clustered(
        mean(np.array([1.0, 0, 1, 1, 1, 0, 0, 0, 0, 1])), [0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    )
    right, sizes = np.array([1.0, 3, 1]), np.array([2.0, 4, 4])
    spread = 3 / 2 * ((right - 0.5 * sizes) ** 2).sum() / 100
    found = counted_share(rows)
    expected = wilson(0.5, min(max(0.25 / spread, 3), 10))
    assert found.ends == pytest.approx(expected.ends)
    assert (found.value, found.n) == (0.5, 3)
    one = counted_share(clustered(mean(np.array([1.0, 0.0, 1.0])), [0, 0, 0]))
    assert one.ends == pytest.approx(wilson(2 / 3, 1).ends)  # one prompt is worth one answer
    alike = counted_share(clustered(mean(np.array([1.0, 0, 1, 0])), [0, 0, 1, 1]))
    assert alike.ends == pytest.approx(wilson(0.5, 2).ends)


def test_skewness_of_a_mean() -> None:
    """Of a share p it is |1 - 2p| / sqrt(p (1 - p) n), whatever the two values are."""
    for low, high in ((0.0, 1.0), (-3.0, 5.0), (9.0, 10.0)):
        values = np.array([high] * 6 + [low] * 2)
        assert skewed(values) == pytest.approx(0.5 / math.sqrt(0.25 * 0.75 * 8))
        assert skewed(-values) == pytest.approx(skewed(values))
    assert skewed(np.array([1.0, 2.0, 3.0])) == pytest.approx(0)
    assert skewed(np.array([7.0, 7.0])) == skewed(np.array([0.3, 0.1 + 0.2])) == math.inf
    assert skewed(np.array([0.0, 0.0, 1e-6])) < math.inf
    assert skewed(1e3 + np.array([0.0, 0.0, 1e-9])) == math.inf


def test_a_bounded_mean_is_a_share_at_worst() -> None:
    values = np.array([2.0, 3.0, 4.0, 4.0])
    found, share = bounded_mean(values, (2.0, 6.0), 0.9), wilson(1.25 / 4, 4, 0.9)
    assert found.ends == pytest.approx([2 + 4 * end for end in share.ends])
    assert (found.value, found.n, found.level) == (3.25, 4, 0.9)
    # Rounding leaves no share outside of 0 and 1.
    assert bounded_mean(np.array([10.0 + 1e-12]), (0.0, 10.0)).ends[1] == pytest.approx(10)
    assert bounded_mean(np.array([-1e-12]), (0.0, 10.0)).ends[0] == pytest.approx(0, abs=1e-9)


def test_a_bounded_difference_is_that_of_gains_and_losses() -> None:
    differences = np.array([3.0, -1.0, 0.0, 0.0, 1.0])
    gain, loss = (wilson(some, 5, 0.9) for some in (4 / 25, 1 / 25))
    found = bounded_difference(differences, 5.0, 0.9)
    low = 0.6 - 5 * math.hypot(gain.value - gain.ends[0], loss.ends[1] - loss.value)
    high = 0.6 + 5 * math.hypot(gain.ends[1] - gain.value, loss.value - loss.ends[0])
    assert found.ends == pytest.approx((low, high))
    assert (found.value, found.n, found.level) == (pytest.approx(0.6), 5, 0.9)
    assert found.how == "Wilson"
