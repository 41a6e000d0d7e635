"""Frontiers, diversity and verdicts on pools without spread, where every number is known by hand.

Outputs that are all the same have replicates that are all the same: intervals of one point, so that
each side of each limit is reached exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, t

from strop.comparing.compare import (
    Comparison,
    _everywhere,
    _layer,
    _least,
    _measures,
    _outside,
    compare,
    enough,
    sentence,
)
from strop.comparing.diversity import (
    Diversity,
    _state,
    copies,
    diversity,
    held_out_diversity,
    unseen_copies,
    with_copy,
)
from strop.comparing.frontier import Equal, Level, equal_sharpness, grid, spent, thin
from strop.comparing.side import Curve, Sample, Side, interval, of_one_setting, simultaneous
from strop.comparing.verdict import (
    BENT,
    SHORTER,
    SMOKE,
    UNCERTAIN,
    Layer,
    SideVerdict,
    decide,
    frontiers,
    overall,
)
from strop.errors import UserError
from strop.measure.guard import guard
from strop.rng import derive_seed
from strop.stats.interval import Interval
from strop.stats.resample import order_statistics

N, R = 32, 50
LEVEL = Level()


def flat(level: float, entropy: float, alike: float = 0.0, n: int = N) -> Sample:
    """Outputs that are all the same: so many nats a token at so much entropy."""
    ones = np.ones(n)
    return Sample(8 * level * ones, 8 * ones, entropy * ones, {"copies": np.full((n, n), alike)})


def curve(*points: tuple[float, float], alike: Sequence[float] | None = None) -> Curve:
    """A frontier of (entropy, log-perplexity)."""
    shares = [0.0] * len(points) if alike is None else alike
    made = [flat(level, h, share) for (h, level), share in zip(points, shares, strict=True)]
    return Curve(Side(made), R, 0)


# ---------------------------------------------------------------- one side


def test_a_sample_is_nats_over_tokens_and_mean_entropy_under_weights() -> None:
    sample = Sample(np.array([6.0, 1.0]), np.array([2.0, 4.0]), np.array([3.0, 5.0]))
    level, entropy = sample.levels(np.array([[1.0, 1.0], [2.0, 0.0], [0.0, 2.0]]))
    assert level.tolist() == [7 / 6, 3.0, 0.25]
    assert entropy.tolist() == [4.0, 3.0, 5.0]


def test_the_first_outputs_of_a_sample() -> None:
    pairs = np.arange(9.0).reshape(3, 3)
    sample = Sample(np.arange(3.0), np.arange(3.0) + 1, np.arange(3.0) + 5, {"copies": pairs})
    found = sample.first(2)
    assert (found.n, sample.n) == (2, 3)
    assert found.nll.tolist() == [0, 1]
    assert found.tokens.tolist() == [1, 2]
    assert found.entropy.tolist() == [5, 6]
    assert found.alike["copies"].tolist() == [[0, 1], [3, 4]]


def test_an_interval_leaves_out_as_many_at_both_ends() -> None:
    values = np.random.default_rng(0).permutation(np.arange(100.0))
    assert order_statistics(values, 0.875) == (6, 93)  # a sixteenth of a hundred, rounded down
    assert order_statistics(values, 0.5) == (25, 74)
    assert order_statistics(values, 1.0) == (0, 99)
    assert order_statistics(np.append(values, [np.nan, np.inf]), 0.5) == (25, 74)
    assert order_statistics(np.array([np.nan]), 0.5) == (-np.inf, np.inf)
    found = interval(np.append(-7.0, values), 0.5, 24)  # the first row is the value, no replicate
    assert (found.value, found.low, found.high) == (-7, 25, 74)
    assert (found.level, found.n) == (0.5, 24)


def test_a_frontier_is_read_off_between_its_points_in_order_of_entropy() -> None:
    mine = curve((4.0, 10.0), (3.0, 2.0), (3.5, 4.0))
    wanted = np.array([3.0, 3.25, 3.5, 3.875, 4.0])
    assert mine.at(wanted)[0].tolist() == [2, 3, 4, 8.5, 10]
    assert (mine.at(wanted) == mine.at(wanted)[0]).all()
    # Beyond its ends the last piece goes on, for at most its own width.
    assert mine.at(np.array([2.75, 2.0, 4.25, 9.0]))[0].tolist() == [1, 0, 13, 16]
    rows = np.linspace(3, 4, R + 1)[:, None]
    assert mine.at(rows)[[0, -1], 0].tolist() == [2, 10]


def test_pairs_of_an_output_and_itself_do_not_count() -> None:
    """Of three outputs one pair is alike: a third; and in a resample only different ones count."""
    pairs = np.array([[9.0, 1, 0], [1, 9, 0], [0, 0, 9]])
    ones = np.ones(3)
    mine = Curve(Side([Sample(ones, ones, ones, {"copies": pairs})]), 40, 0)
    found = mine.alike("copies")[:, 0]
    assert found[0] == pytest.approx(1 / 3)
    for rows, share in zip(mine.rows, found, strict=True):
        a, b, c = rows
        different = a * b + a * c + b * c
        assert share == pytest.approx(a * b / different if different else 0.0)


# ---------------------------------------------------------------- the common range

WIDE = curve((3.0, 1.0), (4.0, 2.0))
TALL = curve((3.25, 1.0), (5.0, 2.0))


@pytest.mark.parametrize(
    ("floor", "ends"),
    [
        (None, (3.25, 4.0)),
        (3.0, (3.25, 4.0)),
        (3.25, (3.25, 4.0)),
        (3.5, (3.5, 4.0)),
        (4.0, None),
        (9.0, None),
    ],
)
def test_the_common_range_of_two_frontiers(floor, ends) -> None:
    for a, b in ((WIDE, TALL), (TALL, WIDE)):
        found = grid(a, b, floor)
        if ends is None:
            assert found is None
            continue
        assert found is not None
        assert (found.low, found.high, found.parts) == (*ends, 2)
        # Twelve points a part, in the middles of equal pieces.
        width = (ends[1] - ends[0]) / 24
        assert found.points == pytest.approx(ends[0] + width * (np.arange(24) + 0.5))
        halves = found.averaged(np.repeat([[1.0, 5.0]], 3, 0).repeat(12, 1))
        assert halves.tolist() == [[1, 5]] * 3


@pytest.mark.parametrize(
    ("entropy", "floor", "there"),
    [
        (3.5, None, True),
        (3.0, None, True),
        (4.0, None, True),
        (2.9375, None, False),
        (4.0625, None, False),
        (3.5, 3.0, True),
        (3.5, 3.5, True),
        (3.5, 3.5625, False),
        (3.5, 9.0, False),
        (2.9375, 2.0, False),
    ],
)
def test_a_single_point_must_lie_in_the_others_range_and_above_the_guard(
    entropy, floor, there
) -> None:
    point = curve((entropy, 1.25))
    for a, b in ((point, WIDE), (WIDE, point)):
        found = grid(a, b, floor)
        assert (found is not None) is there
        if found is not None:
            assert (found.low, found.high, found.parts) == (entropy, entropy, 1)
            gap = equal_sharpness(a, b, found, LEVEL).mean.value
            assert gap == (1 if a is point else -1) * (1.25 - (entropy - 2.0))


def noisy(entropy: float) -> Sample:
    """Half of the outputs a tenth below, half a tenth above."""
    one = flat(1.0, entropy)
    return Sample(one.nll, one.tokens, entropy + np.tile([-0.1, 0.1], N // 2), one.alike)


def test_nearly_every_replicate_must_lie_in_the_common_range() -> None:
    """Of noisy points the inner ends of the intervals count, of a single one both outer ends."""
    point = Curve(Side([noisy(3.5)]), R, 0)
    low, high = order_statistics(point.entropy[1:, 0], 0.95)
    assert low < 3.5 - 0.02
    assert high > 3.5 + 0.02
    found = grid(point, WIDE, None)
    assert found is not None
    assert (found.low, found.high) == (low, high)
    assert grid(point, WIDE, low) is not None
    assert grid(point, WIDE, low + 1e-9) is None
    for entropy in (3.0, 4.0):  # half of the replicates lie outside
        assert grid(Curve(Side([noisy(entropy)]), R, 0), WIDE, None) is None
    spread = grid(Curve(Side([noisy(3.0), noisy(4.0)]), R, 0), curve((2.0, 1.0), (5.0, 1.0)), None)
    assert spread is not None
    assert (spread.low, spread.high) == pytest.approx((3.0 + high - 3.5, 4.0 + low - 3.5))


def test_two_single_points_have_no_range() -> None:
    assert grid(curve((3.0, 1.0)), curve((3.0, 1.0)), None) is None


def test_the_gap_is_that_of_log_perplexities_at_every_entropy() -> None:
    """Between 3 and 4: from 0 up to 2 against 0.5, so -0.5 + 2 x."""
    a, b = curve((3.0, 0.0), (4.0, 2.0)), curve((3.0, 0.5), (4.0, 0.5))
    where = grid(a, b, None)
    assert where is not None
    found = equal_sharpness(a, b, where, LEVEL)
    assert (found.low, found.high) == (3.0, 4.0)
    assert found.mean.value == pytest.approx(0.5)
    middles = (np.arange(24) + 0.5) / 24
    assert found.entropies == pytest.approx(3 + middles)
    for intervals in (found.points, found.band):
        assert [one.value for one in intervals] == pytest.approx(-0.5 + 2 * middles)
    back = equal_sharpness(b, a, where, LEVEL)
    assert back.mean.value == -found.mean.value


def test_each_interval_is_as_sure_as_it_must_be() -> None:
    """Outside zero by `different`, inside the margin everywhere, the whole band by `different`."""
    level = Level(1, 2)
    where = grid(WIDE, TALL, None)
    assert where is not None
    found = equal_sharpness(WIDE, TALL, where, level)
    assert found.mean.level == pytest.approx(0.99)
    assert [one.level for one in found.points] == pytest.approx([0.97] * 24)
    assert [one.level for one in found.smooth] == pytest.approx([0.97] * 24)
    assert [one.level for one in found.band] == pytest.approx([0.99] * 24)


def test_the_band_reaches_the_largest_error_in_units_of_each_columns_own() -> None:
    """Two columns of four replicates, one ten times as wide as the other."""
    steps = np.array([-1.5, -0.5, 0.5, 1.5])
    gaps = np.concatenate([[[0.0, 3.0]], np.stack([steps, 3 + 10 * steps[[1, 2, 3, 0]]], 1)])
    error = steps.std()
    largest = np.sort([1.5, 0.5, 1.5, 1.5]) / error
    for level, place in ((0.25, 1), (0.5, 2), (0.99, 3)):
        found = simultaneous(gaps, level, 7)
        for one, value, scale in zip(found, (0.0, 3.0), (1, 10), strict=True):
            reach = largest[place] * error * scale
            assert (one.low, one.high) == pytest.approx((value - reach, value + reach))
            assert (one.value, one.level, one.n) == (value, level, 7)
    still = simultaneous(np.full((5, 2), 2.0), 0.9, 7)
    assert [(one.low, one.high) for one in still] == [(2.0, 2.0)] * 2


def test_a_band_holds_everywhere_as_often_as_it_says() -> None:
    """400 curves of 24 points that are alike: between 85 and 95% are inside a band of 90%.

    Single intervals of 90% all hold in far fewer; limits are three standard errors.
    """
    rng = np.random.default_rng(5)
    mix = np.exp(-0.5 * ((np.arange(24)[:, None] - np.arange(24)) / 4.0) ** 2)
    scale = np.linspace(1, 5, 24)
    held = single = 0
    for _ in range(400):
        value = rng.standard_normal(24) @ mix * scale
        drawn = value + rng.standard_normal((400, 24)) @ mix * scale
        gaps = np.concatenate([value[None], drawn])
        held += not any(one.excludes(0) for one in simultaneous(gaps, 0.9, 9))
        ends = [order_statistics(column[1:], 0.9) for column in gaps.T]
        single += all(low <= 0 <= high for low, high in ends)
    assert 0.855 * 400 <= held <= 0.945 * 400
    assert single < 0.8 * 400


# ---------------------------------------------------------------- how far straight lines are off


def parabola(*entropies: float) -> Curve:
    return curve(*((h, 2 * (h - 3) ** 2) for h in entropies))


def test_a_bend_is_what_straight_lines_miss_of_a_parabola() -> None:
    mine = parabola(3.0, 3.2, 3.5, 3.6, 4.0)
    wanted = np.linspace(3.0, 4.0, 41)
    missed = mine.at(wanted)[0] - 2 * (wanted - 3) ** 2
    assert mine.bend(wanted) == pytest.approx(missed, abs=1e-12)
    assert mine.bend(wanted).max() > 0.07
    # In any order of temperatures.
    assert parabola(4.0, 3.2, 3.6, 3.0, 3.5).bend(wanted) == pytest.approx(missed, abs=1e-12)


def test_two_points_show_no_bend_so_nothing_is_known_and_one_has_none() -> None:
    assert parabola(3.0, 4.0).bend(np.array([3.5])).tolist() == [np.inf]
    assert parabola(3.5).bend(np.array([3.5])).tolist() == [0]
    two = [flat(h - 2.0, h) for h in (3.0, 4.0)]
    found = compare(Side(two), Side([flat(h - 3.0, h) for h in (3.0, 4.0)]), replicates=R)
    assert (found.verdict.kind, found.verdict.why) == ("cannot tell", BENT)


def test_what_noise_does_to_a_point_that_is_left_out_is_no_bend() -> None:
    """A straight frontier with noise: the bends are a fraction of what noise alone would make."""
    rng = np.random.default_rng(2)
    sizes = []
    for _ in range(40):
        points = [
            Sample(8 * (h - 2 + 0.1 * rng.standard_normal(64)), np.full(64, 8.0), np.full(64, h))
            for h in (3.0, 3.25, 3.5, 3.75, 4.0)
        ]
        mine = Curve(Side(points), 200, 0)
        sizes.append((mine.bend(np.array([3.625]))[0], np.abs(mine.missed[0, 1:]).max() / 4))
    bend, noise = np.mean(sizes, axis=0)
    assert bend < 0.75 * noise


def test_frontiers_of_the_same_outputs_are_off_by_the_same() -> None:
    points = [flat(2 * (h - 3) ** 2, h) for h in (3.0, 3.5, 4.0)]
    found = compare(Side(points, points[0]), Side(points, points[2]), replicates=R)
    assert found.equal is not None
    assert set(found.equal.bend) == {0.0}
    assert found.verdict.kind == "only sharper"


def test_what_both_frontiers_are_off_is_added() -> None:
    straight = [flat(h - 2.0, h) for h in (3.0, 3.5, 4.0)]
    bent = [flat(2 * (h - 3) ** 2, h) for h in (3.0, 3.6, 4.0)]
    more = [flat(3 * (h - 3) ** 2, h) for h in (3.0, 3.5, 4.0)]

    def off(*sides: list[Sample]) -> np.ndarray:
        found = compare(*map(Side, sides), replicates=R).equal
        assert found is not None
        return np.array(found.bend)

    assert off(straight, bent).max() > 0.05
    assert off(straight, bent) == pytest.approx(off(bent, straight))
    assert off(more, bent) == pytest.approx(off(more, straight) + off(straight, bent))


def test_a_temperature_is_wanted_where_lines_are_surely_off() -> None:
    mine, other = parabola(4.0, 3.0, 3.3), curve((3.0, 0.0), (4.0, 2.0), (3.5, 1.0))
    where = grid(mine, other, None)
    assert where is not None
    assert thin(mine, where, 0.01, LEVEL) == (2, 0)  # by place, between 3.3 and 4
    assert thin(parabola(4.0, 3.0, 3.7), where, 0.01, LEVEL) == (1, 2)  # below the inner point
    assert thin(mine, where, 1.0, LEVEL) is None
    assert thin(other, where, 0.01, LEVEL) is None
    assert thin(parabola(3.0, 4.0), where, 0.01, LEVEL) is None  # refused, not mended


def test_a_point_that_lies_on_its_line_is_not_surely_off() -> None:
    """Off is only the third of four points, by one and a half errors of the last one."""
    noise = 0.1 * (-1.0) ** np.arange(N)
    last = replace(flat(0.0, 4.0), nll=8 * (noise + 1.5 * 0.1 / math.sqrt(N)))
    mine = Curve(Side([*(flat(0.0, h) for h in (3.0, 3.2, 3.8)), last]), 200, 0)
    other = curve((3.0, 0.0), (3.5, 0.0), (4.0, 0.0))
    where = grid(mine, other, None)
    assert where is not None
    assert set(mine.missed[:, 0]) == {0.0}
    assert mine.bend(where.points).max() > 0.001
    assert thin(mine, where, 0.001, LEVEL) is None


def lying(
    mean: Interval,
    points: tuple[Interval, ...],
    band: tuple[Interval, ...],
    bend: tuple[float, ...],
) -> Equal:
    """Read off lines alone."""
    flat = (0.0,) * len(points)
    return Equal(3.0, 4.0, mean, flat, points, band, bend, points, bend)


def test_a_claim_must_hold_with_the_bend_added() -> None:
    made = (between(-0.02, 0.02),) * 2
    for off, lie in ((0.0, "the same"), (0.0099, "the same"), (0.01, "undecided")):
        equal = lying(made[0], made, made, (off, off))
        assert frontiers(equal, 0.03) == lie
        assert frontiers(equal.straight, 0.03) == "the same"
    low = (between(-0.2, -0.05),) * 2
    for off, lie in ((0.0499, "better"), (0.05, "undecided")):
        equal = lying(low[0], low, low, (off, off))
        assert frontiers(equal, 0.03) == lie
        mirror = tuple(between(0.05, 0.2) for _ in low)
        equal = lying(mirror[0], mirror, mirror, (off, off))
        assert frontiers(equal, 0.03) == {"better": "worse"}.get(lie, lie)
    apart = between(-0.2, -0.05), between(0.05, 0.2)
    for off, lie in ((0.0499, "crossing"), (0.05, "undecided")):
        equal = lying(between(-0.1, 0.1), apart, apart, (off, off))
        assert frontiers(equal, 0.03) == lie
    near, far = between(0.05, 0.2), between(0.06, 0.2)
    for one, other in ((near, far), (far, near)):  # either side of a crossing by itself
        parts = between(-one.ends[1], -one.ends[0]), other
        equal = lying(between(-0.1, 0.1), parts, parts, (0.05, 0.05))
        assert frontiers(equal, 0.03) == "undecided"


# ---------------------------------------------------------------- diversity


@pytest.mark.parametrize(
    ("mine", "other", "state"),
    [
        (0.5, 0.5, "not less"),
        (0.545, 0.5, "not less"),  # less than a tenth more alike
        (0.5505, 0.5, "not less"),  # a tenth more alike, and less than a thousandth on top
        (0.5515, 0.5, "less"),
        (0.46, 0.5, "not less"),  # nearly a tenth less alike
        (0.0, 0.5, "not less"),
        (0.0005, 0.0, "not less"),
        (0.0015, 0.0, "less"),
    ],
)
def test_more_than_a_tenth_more_alike_is_less_diverse(mine, other, state) -> None:
    a, b = (curve((3.0, 1.0), (4.0, 2.0), alike=[share] * 2) for share in (mine, other))
    where = grid(a, b, None)
    assert where is not None
    [found] = diversity(a, b, where, LEVEL)
    assert (found.measure, found.state_a) == ("copies", state)
    assert (found.a, found.b) == pytest.approx((mine, other))
    assert [one.mirrored() for one in diversity(b, a, where, LEVEL)] == [found]


def test_few_outputs_say_nothing_of_copies() -> None:
    """No copy among 31 is no evidence; of other measures as many outputs are."""
    points = (3.0, 1.0), (4.0, 2.0)

    def side(n: int, measure: str) -> Curve:
        made = [flat(level, h, n=n) for h, level in points]
        named = [replace(one, alike={measure: one.alike["copies"]}) for one in made]
        return Curve(Side(named), R, 0)

    for n, measure, state in (
        (31, "copies", "undecided"),
        (32, "copies", "not less"),
        (31, "embeddings", "not less"),
    ):
        a, b = side(n, measure), side(n, measure)
        where = grid(a, b, None)
        assert where is not None
        [found] = diversity(a, b, where, LEVEL)
        assert (found.state_a, found.state_b) == (state, state)
    # The share that n outputs meet at most once in 5%.
    for n in (32, 256):
        share = unseen_copies(n)
        assert (1 - share) ** n + n * share * (1 - share) ** (n - 1) == pytest.approx(0.05)
    assert 256 * unseen_copies(256) == pytest.approx(4.72, abs=0.02)


def test_one_half_is_enough_to_be_less_diverse() -> None:
    """Alike at the sharp end only, as a generator that collapses there."""
    a = curve((3.0, 1.0), (3.5, 1.0), (4.0, 2.0), alike=[0.5, 0.0, 0.0])
    b = curve((3.0, 1.0), (3.5, 1.0), (4.0, 2.0), alike=[0.0, 0.0, 0.0])
    where = grid(a, b, None)
    assert where is not None
    [found] = diversity(a, b, where, LEVEL)
    assert (found.state_a, found.state_b) == ("less", "not less")
    assert found.a == pytest.approx(0.125)  # a line from 0.5 to 0 over half of the range


def replicates(below: int, low: float, high: float, parts: int = 1) -> np.ndarray:
    """The value 0.5 and 1,000 replicates, so many of them low."""
    column = np.concatenate([[0.5], np.full(below, low), np.full(1000 - below, high)])
    return np.repeat(column[:, None], parts, 1)


@pytest.mark.parametrize(
    ("below", "parts", "measures", "state"),
    [
        (8, 1, 1, "less"),  # of 1,000 replicates ten may be below zero at 98%
        (12, 1, 1, "undecided"),
        (8, 2, 1, "undecided"),  # two halves share them: five
        (4, 2, 1, "less"),
        (8, 1, 2, "undecided"),  # and so do two measures
        (4, 1, 2, "less"),
        (4, 2, 2, "undecided"),
        (978, 1, 1, "undecided"),  # 96%: twenty may be above zero where nothing is claimed
        (982, 1, 1, "not less"),
        (982, 2, 5, "not less"),
    ],
)
def test_how_sure_diversity_must_be(below, parts, measures, state) -> None:
    mine, other = replicates(below, 0.1, 0.9, parts), np.full((1001, parts), 0.25)
    assert _state(mine, other, LEVEL, measures) == state


def test_not_less_only_if_every_part_says_so() -> None:
    other = np.full((1001, 2), 0.25)
    sure, doubtful = replicates(1000, 0.1, 0.9)[:, 0], replicates(500, 0.1, 0.9)[:, 0]
    assert _state(np.stack([sure, sure], 1), other, LEVEL, 1) == "not less"
    assert _state(np.stack([sure, doubtful], 1), other, LEVEL, 1) == "undecided"
    assert _state(np.stack([doubtful, sure], 1), other, LEVEL, 1) == "undecided"


def grams(row: np.ndarray) -> set[tuple[int, ...]]:
    ids = [one for one in row.tolist() if one >= 0]
    return {tuple(ids[i : i + 4]) for i in range(len(ids) - 3)}


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_copies_share_half_of_the_shorter_ones_grams(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 30, (6, 15))
    for i, j in rng.integers(0, 6, (6, 2)):
        take = int(rng.integers(4, 15))
        ids[i, :take] = ids[j, :take]
    for row in ids:  # outputs of different lengths
        row[rng.integers(5, 16) :] = -1
    sets, found = [grams(row) for row in ids], copies(ids)
    for i in range(6):
        for j in range(6):
            shared, least = len(sets[i] & sets[j]), min(len(sets[i]), len(sets[j]))
            assert found[i, j] == (i != j and 2 * shared >= least)


def test_exactly_half_is_a_copy() -> None:
    ids = np.arange(22).reshape(2, 11)  # eight 4-grams each
    ids[1, :7] = ids[0, :7]
    assert copies(ids)[0, 1] == 1
    ids[1, 6] = 99
    assert copies(ids)[0, 1] == 0


def test_which_outputs_have_a_copy() -> None:
    ids = np.random.default_rng(0).integers(0, 50, (5, 20))
    ids[3] = ids[1]
    found = with_copy(ids)
    assert (found.dtype, found.tolist()) == (bool, [False, True, False, True, False])
    none = with_copy(ids[:0])
    assert (none.dtype, len(none)) == (bool, 0)


BELOW, ABOVE, DOUBT = (0.3, 0.8), (0.95, 1.2), (0.8, 1.0)


@pytest.mark.parametrize(
    ("a", "b", "states"),
    [
        (BELOW, ABOVE, ("less", "not less")),
        (ABOVE, BELOW, ("not less", "less")),
        (BELOW, DOUBT, ("less", "not less")),
        (BELOW, BELOW, ("not less", "not less")),
        (DOUBT, ABOVE, ("not less", "not less")),
    ],
)
def test_who_is_less_diverse_than_held_out_texts(a, b, states) -> None:
    texts = np.random.default_rng(1).integers(0, 6, (40, 12))
    held = guard(12, texts)
    found = [Interval(sum(ends) / 2, *ends, n=64) for ends in (a, b)]
    said = held_out_diversity(found, held)
    assert said == Diversity("share of held-out diversity", sum(a) / 2, sum(b) / 2, *states)
    # Too few outputs, or no number: no word.
    for other in (None, replace(found[1], n=63)):
        assert held_out_diversity([found[0], other], held) is None
        assert held_out_diversity([other, found[1]], held) is None


# ---------------------------------------------------------------- verdicts


def between(low: float, high: float) -> Interval:
    return Interval((low + high) / 2, low, high, 0.96, R)


def lies(mean: tuple[float, float], *parts: tuple[float, float], surely=None) -> str:
    made = tuple(between(*one) for one in parts)
    band = made if surely is None else tuple(between(*one) for one in surely)
    flat = (0.0,) * len(made)
    return frontiers(lying(between(*mean), made, band, flat), 0.03)


INSIDE = (-0.0299, 0.0299)


@pytest.mark.parametrize(
    ("mean", "parts", "lie"),
    [
        (INSIDE, (INSIDE, INSIDE), "the same"),
        (INSIDE, ((-0.03, 0.01), INSIDE), "undecided"),
        (INSIDE, (INSIDE, (-0.01, 0.03)), "undecided"),
        # Better: below zero on average, and nowhere worse by the margin.
        ((-0.2, -0.01), ((-0.3, -0.1), (-0.2, 0.0299)), "better"),
        ((-0.2, -0.01), ((-0.3, -0.1), (-0.2, 0.03)), "undecided"),
        ((-0.2, -0.01), ((-0.3, 0.03), (-0.2, -0.1)), "undecided"),
        ((-0.2, 0.0), ((-0.3, -0.1), (-0.2, 0.01)), "undecided"),
        # Worse: the mirror of it.
        ((0.01, 0.2), ((0.1, 0.3), (-0.0299, 0.2)), "worse"),
        ((0.01, 0.2), ((0.1, 0.3), (-0.03, 0.2)), "undecided"),
        ((0.01, 0.2), ((-0.03, 0.3), (0.1, 0.2)), "undecided"),
        ((0.0, 0.2), ((0.1, 0.3), (-0.01, 0.2)), "undecided"),
        # Crossing comes before better.
        ((-0.2, -0.01), ((-0.3, -0.1), (0.001, 0.01)), "crossing"),
        ((-0.2, -0.01), ((-0.3, -0.1), (0.0, 0.01)), "better"),
        ((0.01, 0.2), ((0.1, 0.3), (-0.01, 0.0)), "worse"),
    ],
)
def test_how_frontiers_lie_on_each_side_of_each_limit(mean, parts, lie) -> None:
    assert lies(mean, *parts) == lie
    mirrored = [(-high, -low) for low, high in (mean, *parts)]
    other = {"better": "worse", "worse": "better"}.get(lie, lie)
    assert lies(*mirrored) == other


def test_crossing_is_told_by_intervals_that_hold_together() -> None:
    parts = ((-0.3, -0.1), (0.05, 0.1))
    assert lies((-0.2, -0.1), *parts) == "crossing"
    assert lies((-0.2, -0.1), *parts, surely=((-0.4, 0.01), (0.04, 0.2))) == "undecided"


def alike(one: Interval, points: int = 2) -> Equal:
    flat = (0.0,) * points
    return lying(one, (one,) * points, (one,) * points, flat)


SAME = alike(between(*INSIDE))


@pytest.mark.parametrize(
    ("gap", "sharper", "kind"),
    [
        ((-0.0299, 0.0299), (-0.5, -0.4), "the same"),
        ((-0.03, 0.01), (-0.5, -0.001), "only sharper"),
        ((-0.03, 0.01), (-0.5, 0.0), "cannot tell"),
        ((-0.01, 0.03), (0.001, 0.5), "only smoother"),
        ((-0.01, 0.03), (0.0, 0.5), "cannot tell"),
        ((-0.01, 0.03), (-0.1, 0.1), "cannot tell"),
    ],
)
def test_on_one_frontier_the_published_settings_decide(gap, sharper, kind) -> None:
    layer = Layer((1.0, 1.0), (1.0, 1.0), between(*gap), between(*sharper))
    fine = Diversity("copies", 0.0, 0.0, "not less", "not less")
    more = {
        "the same": ", and so is the perplexity",
        "cannot tell": "; which side is sharper is uncertain",
    }
    why = f"the frontiers are the same{more.get(kind, '')}"
    assert decide(SAME, [fine], layer, 0.03) == SideVerdict(kind, why)


@pytest.mark.parametrize(
    ("a", "b", "kind"),
    [
        (["not less"], ["not less"], "the same"),
        (["less", "not less"], ["not less", "not less"], "worse"),
        (["not less", "not less"], ["not less", "less"], "better"),
        (["less", "not less"], ["not less", "less"], "mixed"),
        (["undecided", "not less"], ["not less", "not less"], "cannot tell"),
        (["less", "undecided"], ["not less", "not less"], "worse"),
        (["less", "not less"], ["undecided", "not less"], "cannot tell"),
    ],
)
def test_one_measure_is_enough_and_all_must_clear(a, b, kind) -> None:
    measures = [Diversity("x", 0.0, 0.0, one, two) for one, two in zip(a, b, strict=True)]
    assert decide(SAME, measures, None, 0.03).kind == kind


def test_a_comparison_takes_the_published_layer_and_else_the_tuned_one() -> None:
    """Equal frontiers; published as they are equal, tuned at another sharpness."""
    points = [flat(h - 2.0, h) for h in (3.0, 3.5, 4.0)]
    sharp, smooth = flat(0.5, 3.0), flat(1.5, 4.0)
    one, two = Side(points, None, sharp), Side(points, None, smooth)
    found = compare(one, two, replicates=R)
    assert found.verdict.kind == "only sharper"
    assert found.published is None
    assert found.tuned is not None
    assert found.tuned.perplexity == pytest.approx((math.exp(0.5), math.exp(1.5)))
    assert found.tuned.entropy == (3.0, 4.0)
    assert (found.tuned.gap.value, found.tuned.sharper.value) == (-1.0, -1.0)
    assert compare(two, one, replicates=R).verdict.kind == "only smoother"
    both = Side(points, smooth, sharp), Side(points, smooth, smooth)
    assert compare(*both, replicates=R).verdict.kind == "the same"


@pytest.mark.parametrize("n", [2, 8, 33])
def test_few_outputs_of_one_setting_have_students_limits(n: int) -> None:
    values = np.append(1.0, np.linspace(0.0, 4.0, 1001))
    plain, found = interval(values, 0.9, n), of_one_setting(values, 0.9, n)
    wider = t.ppf(0.95, n - 1) / norm.ppf(0.95) * math.sqrt(n / (n - 1))
    assert found.ends == pytest.approx(tuple(1 + wider * (end - 1) for end in plain.ends))
    assert (found.value, found.level, found.n, found.how) == (1.0, 0.9, n, "bootstrap")
    assert not of_one_setting(values, 0.9, 1).bounded


@pytest.mark.parametrize("n", [8, 16])
def test_one_setting_misses_equality_as_seldom_as_it_says(n: int) -> None:
    """At 98% of 600 pairs 12 are missed, 23 at most (three errors); without Student's limits 50."""
    rng = np.random.default_rng(n)
    missed = np.zeros(2)
    for _ in range(600):
        pools = [Sample(8 * (4 + a), np.full(n, 8.0), 3 + b) for a, b in rng.normal(size=(2, 2, n))]
        found = _layer(*pools, Level(), 300, 0)
        missed += found.gap.excludes(0), found.sharper.excludes(0)
    expected = 600 * np.array([1 - LEVEL.same, 1 - LEVEL.different])
    assert (missed <= expected + 3 * np.sqrt(expected)).all(), missed


def _power(outputs: float, margin: float, gap: float, half: float, wrong: float) -> float:
    """The chance that an interval with this half at 96% and 100 outputs lies inside, with more.

    `wrong` is how often one of its ends may err.
    """
    error = half / norm.ppf(0.98) / math.sqrt(outputs / 100)
    reach = -norm.ppf(wrong) * error
    ends = norm.cdf([(margin - reach - gap) / error, (reach - margin - gap) / error])
    return float(ends[0] - ends[1])


def _replicates(equal: Equal) -> np.ndarray:
    """Of gaps that rise and fall together, by their intervals of 96%."""
    errors = norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    values = np.array([one.value for one in equal.smooth])
    halves = np.array([one.half for one in equal.smooth]) / norm.ppf(0.98)
    return np.concatenate([values[None], values + halves * errors[:, None]])


def _fits(found: int | None, power: Callable[[float], float]) -> bool:
    """Whether a number is the least multiple of 32 with four chances out of five."""
    assert found is not None
    return found % 32 == 0 and power(found) >= 0.8 > power(found - 32)


def wanted(equal: Equal, layer: Layer | None = None, level: Level | None = None) -> int | None:
    return enough(100, equal, _replicates(equal), layer, 0.03, level)


def test_enough_is_a_multiple_of_32_at_the_next_look() -> None:
    """Half widths 0.04 and no gap: both parts must be inside, at the level of the second look."""
    equal = alike(between(-0.04, 0.04))
    found = wanted(equal)
    assert _fits(found, lambda n: _power(n, 0.03, 0, 0.04, 0.75 * spent(2)))
    assert _fits(wanted(equal, level=Level(2)), lambda n: _power(n, 0.03, 0, 0.04, 0.75 * spent(3)))
    # What straight lines may be off by leaves less room; the point with the least room decides.
    bent = replace(equal, bend=(0.01, 0.0), misfit=(0.01, 0.0))
    assert _fits(wanted(bent), lambda n: _power(n, 0.02, 0, 0.04, 0.75 * spent(2)))
    # What parabolas may be off by is not told from noise: it shrinks with it.
    noisy = replace(equal, misfit=(0.01, 0.0))
    assert _fits(
        wanted(noisy),
        lambda n: _power(n, 0.03 - 0.01 / math.sqrt(n / 100), 0, 0.04, 0.75 * spent(2)),
    )
    # A mean that differs must do so by more than lines may be off by.
    error, told = 0.04 / norm.ppf(0.98), -norm.ppf(spent(2) / 2)
    apart = replace(equal, mean=between(0.04, 0.12), bend=(0.06, 0.04), misfit=(0.06, 0.04))
    assert _fits(wanted(apart), lambda n: norm.cdf(0.03 / (error / math.sqrt(n / 100)) - told))
    # Where the intervals are narrow enough already, a few more are asked for.
    assert wanted(alike(between(-0.001, 0.001), 1)) == 132
    # The published settings must be decided too: by the easier of two ways.
    layer = Layer((1.0, 1.0), (1.0, 1.0), between(-0.12, 0.12), between(0.06, 0.14))
    assert wanted(equal, layer) == found
    hard = Layer((1.0, 1.0), (1.0, 1.0), between(-0.12, 0.12), between(-0.03, 0.05))
    assert _fits(
        wanted(equal, hard),
        lambda n: (
            _power(n, 0.03, 0, 0.04, 0.75 * spent(2))
            * norm.cdf(0.01 / (error / math.sqrt(n / 100)) - told)
        ),
    )
    # Or by being close, where neither is sharper.
    close = Layer((1.0, 1.0), (1.0, 1.0), between(-0.02, 0.03), between(-0.05, 0.05))
    assert _fits(
        wanted(equal, close),
        lambda n: (
            _power(n, 0.03, 0, 0.04, 0.75 * spent(2)) * _power(n, 0.03, 0.005, 0.025, spent(2) / 2)
        ),
    )
    # Far outside the margin and not sharper: no number does.
    for far in (between(0.05, 0.07), between(-0.07, -0.05)):
        none = Layer((1.0, 1.0), (1.0, 1.0), far, between(-0.05, 0.05))
        assert wanted(equal, none) is None


def test_enough_minds_on_which_side_replicates_are() -> None:
    """A gap of 0.02 that errs upwards alone, by 0.02 in three of ten replicates."""
    up = np.where(np.arange(1001) % 10 < 3, 0.02, 0.0)[:, None]
    up[0] = 0.0
    equal = alike(between(0.0199, 0.0201), 1)
    found = _everywhere(equal, 0.02 + up, 0.03, Level(40))
    reach = -norm.ppf((1 - Level(40).everywhere) / 2) * up[1:].std()
    assert found((reach / 0.009) ** 2) == pytest.approx(0.7)  # within 0.03 stays what errs not
    assert _everywhere(equal, 0.02 - up, 0.03, Level(40))((reach / 0.009) ** 2) == 1.0


def test_enough_is_for_every_entropy_at_once() -> None:
    """Two gaps that know nothing of each other: the chance is the square of that of one."""
    equal = alike(between(-0.04, 0.04))
    rng = np.random.default_rng(3)
    error = 0.04 / norm.ppf(0.98)
    gaps = np.concatenate([np.zeros((1, 2)), error * rng.standard_normal((40_000, 2))])
    found = enough(100, equal, gaps, None, 0.03)
    assert found is not None
    one = _power(found, 0.03, 0, 0.04, 0.75 * spent(2))
    assert one**2 == pytest.approx(0.8, abs=0.03)  # and the number is a multiple of 32


def test_over_budgets_the_most_outputs_that_are_wanted() -> None:
    doubts = {4: SideVerdict("cannot tell", "", 64), 8: SideVerdict("cannot tell", "", 256)}
    assert overall(doubts).outputs == 256
    assert overall({**doubts, 2: SideVerdict("better", "")}).outputs == 256
    said = overall({8: SideVerdict("better", ""), 4: SideVerdict("worse", "")})
    assert said.why == "it depends on the budget: worse at M = 4; better at M = 8"


# ---------------------------------------------------------------- what a comparison says


def uncertain(seed: int, *entropies: float) -> list[Sample]:
    """Points on one line, so uncertain that nothing is decided; the first output is too short."""
    rng = np.random.default_rng(seed)
    there = np.arange(N) > 0
    return [
        Sample(8 * there * (h - 2 + rng.normal(0, 0.3, N)), 8.0 * there, np.full(N, h))
        for h in entropies
    ]


def test_a_comparison_that_cannot_tell_says_how_many_outputs_might() -> None:
    points = [uncertain(seed, 3.0, 3.5, 4.0) for seed in (1, 2)]
    a, b = (Side(some, some[k]) for some, k in zip(points, (1, 1), strict=True))
    level = Level(2, 3)
    found = compare(a, b, margin=0.05, level=level, replicates=R)
    assert (found.margin, found.level) == (0.05, level)
    assert found.left_out == pytest.approx((1 / N, 1 / N))
    assert (found.verdict.kind, found.verdict.why) == ("cannot tell", UNCERTAIN)
    assert found.equal is not None
    assert found.verdict.outputs is not None
    assert found.verdict.outputs > N
    first, later = (
        compare(a, b, margin=0.05, level=Level(look), replicates=4000).verdict.outputs or 0
        for look in (1, 4)
    )
    assert N < first < later - 100  # its intervals are wider


def test_two_single_points_have_no_verdict() -> None:
    found = compare(Side([flat(1.0, 3.0)]), Side([flat(2.0, 4.0)]), replicates=R)
    why = "both sides are single points: neither has a frontier"
    assert (found.verdict.kind, found.verdict.why) == ("cannot tell", why)


@pytest.mark.parametrize("margin", [0.0, -0.1, 1.0, 1.5])
def test_a_margin_is_a_share(margin: float) -> None:
    side = Side([flat(1.0, 3.0)])
    with pytest.raises(UserError, match="margin is a share"):
        compare(side, side, margin=margin, replicates=R)


def test_a_comparison_names_the_points_between_which_it_wants_another() -> None:
    """Lines are off by 0.245 between 3.3 and 4: more than a third of the margin, less than all."""
    bent = [flat(2 * (h - 3) ** 2, h) for h in (4.0, 3.0, 3.3)]
    straight = [flat(2 * (h - 3), h) for h in (3.0, 4.0, 3.5)]
    assert compare(Side(bent), Side(straight), margin=0.3, replicates=R).thin == ((2, 0),)
    assert compare(Side(bent), Side(straight), margin=0.9, replicates=R).thin == ()


def test_measures_are_counted_over_both_sides() -> None:
    plain = flat(1.0, 3.0)
    both = replace(plain, alike={"copies": np.zeros((N, N)), "meaning": np.zeros((N, N))})
    none = replace(plain, alike={})
    assert _measures(Side([none]), Side([none])) == 1
    assert _measures(Side([plain]), Side([plain])) == 1
    assert _measures(Side([plain]), Side([plain, both])) == 2


def test_diversity_on_the_limit_itself() -> None:
    """No excess at all is not less; and every replicate counts, the first one too."""
    assert _state(np.full((1001, 1), 0.001), np.zeros((1001, 1)), LEVEL, 1) == "not less"
    other = np.full((1001, 1), 0.25)
    ten_below = np.concatenate([[0.5], np.full(990, 0.9), np.full(10, 0.1)])[:, None]
    assert _state(ten_below, other, LEVEL, 1) == "less"
    assert _state(replicates(980, 0.1, 0.9), other, LEVEL, 1) == "not less"


def test_the_least_number_and_what_is_certain() -> None:
    assert [_least(lambda k, at=at: k >= at, 9) for at in (0, 1, 2, 9, 10)] == [1, 1, 2, 9, None]
    sure = Interval(0.5, 0.5, 0.5, 0.96, N)
    assert _outside(sure, 1.0, 1.0) == 1.0
    assert _outside(sure, 1.0, 1.0, 0.5) == 0.0


def test_intervals_that_hold_together_say_what_they_are() -> None:
    gaps = np.array([[0.0], [1.0], [-1.0], [2.0]])
    [found] = simultaneous(gaps, 0.5, 7)
    assert (found.level, found.n, found.how) == (0.5, 7, "studentised bootstrap band")
    [none] = simultaneous(np.array([[0.5], [np.nan]]), 0.5, 7)
    assert none == Interval(0.5, None, None, 0.5, 7, "studentised bootstrap band")


def test_looks_spend_four_percent_and_then_half_of_what_is_left() -> None:
    assert [spent(look) for look in (1, 2, 3, 4)] == pytest.approx([0.04, 0.005, 0.0025, 0.00125])
    with pytest.raises(UserError, match="from one"):
        spent(0)
    level = Level(2, 4)
    assert (level.alpha, level.same, level.different) == pytest.approx((0.00125, 0.99875, 0.999375))
    assert (Level().look, Level().budgets) == (1, 1)


def test_one_verdict_over_budgets() -> None:
    """The same at all of them; else mixed if two claim something, and doubt if one is in doubt."""
    better, worse = SideVerdict("better", "first"), SideVerdict("worse", "")
    assert overall({8: better, 4: SideVerdict("better", "second")}) == better
    doubt, more = SideVerdict("cannot tell", "few", 64), SideVerdict("cannot tell", "fewer", 96)
    assert overall({4: doubt, 8: more}) == SideVerdict("cannot tell", "few", 96)
    assert overall({4: doubt, 8: SideVerdict("cannot tell", "none")}).outputs is None
    depends = "it depends on the budget: better at M = 4; worse at M = 8; cannot tell at M = 16"
    assert overall({8: worse, 16: doubt, 4: better}) == SideVerdict("mixed", depends)
    said = "better at M = 4; cannot tell at M = 8; cannot tell at M = 16"
    assert overall({4: better, 16: more, 8: doubt}) == SideVerdict("cannot tell", said, 96)
    none = SideVerdict("cannot tell", "no number would do")
    assert overall({4: better, 16: more, 8: none}) == SideVerdict("cannot tell", said)


def test_verdicts_say_what_decided() -> None:
    crossing = between(-0.2, -0.1), between(0.1, 0.2)
    equal = Equal(
        3.0,
        4.0,
        between(-0.1, 0.1),
        (3.0, 4.0),
        crossing,
        crossing,
        (0.0, 0.0),
        crossing,
        (0.0, 0.0),
    )
    assert decide(equal, [], None, 0.03) == SideVerdict("mixed", "the frontiers cross")
    wide = alike(between(-0.1, 0.1))
    why = "the gap between the frontiers is too uncertain"
    assert decide(wide, [], None, 0.03) == SideVerdict("cannot tell", why)
    why = "the frontiers have no common range of entropies"
    assert decide(None, [], None, 0.03) == SideVerdict("cannot tell", why)
    low = alike(between(-0.2, -0.1))
    assert decide(low, [], None, 0.03) == SideVerdict("better", "the gap between the frontiers")
    why = "the lower perplexity is that of the less diverse side"
    less = Diversity("copies", 0.5, 0.0, "less", "not less")
    assert decide(low, [less], None, 0.03) == SideVerdict("mixed", why)
    doubtful = Diversity("copies", 0.5, 0.0, "undecided", "not less")
    why = "whether the better side is less diverse is uncertain"
    assert decide(low, [doubtful], None, 0.03) == SideVerdict("cannot tell", why)


def test_resamples_of_a_side_are_those_of_its_seed_and_number() -> None:
    found = Curve(Side([flat(1.0, 3.0, n=5)]), 4, 9).rows
    rng = np.random.default_rng(derive_seed(9, "compare-resamples", 5))
    np.testing.assert_array_equal(found[1:], rng.multinomial(5, np.full(5, 0.2), size=4))
    assert found[0].tolist() == [1.0] * 5


def test_a_bend_is_as_large_as_at_the_nearer_kink() -> None:
    """A kink at 3.5 alone: lines are off beside it, and nowhere else."""
    mine = curve((3.0, 0.0), (3.25, 0.0), (3.5, 0.0), (3.75, 1.0), (4.0, 2.0))
    found = mine.bend(np.array([3.125, 3.375, 3.625, 3.875]))
    assert found == pytest.approx([0.0, 0.125, 0.125, 0.0])
    same = curve((3.0, 1.0), (3.0, 5.0))  # two points at one entropy: the first one counts
    assert same.at(np.array([3.0]))[0].tolist() == [1.0]


# ---------------------------------------------------------------- in words

LOWER = alike(between(-0.2, -0.1))
GAP = "at equal entropy, 3.00 to 4.00 nats, A has 0.861 [0.819, 0.905] times the perplexity of B"
AS_PUBLISHED = Layer((1.0, 1.0), (1.0, 1.0), between(0.0, 0.2), between(-0.3, -0.1))
PUBLISHED = " As published it is 1.105 [1.000, 1.221] times, at -0.20 nats of entropy."
INSIDE_IT = ", inside the margin of 3% everywhere in that range"


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (SideVerdict("better", "gap"), f"A is better than B at equal sharpness: {GAP}."),
        (
            SideVerdict("worse", "one side is less diverse"),
            f"A is worse than B at equal sharpness: one side is less diverse: {GAP}.",
        ),
        (SideVerdict("only sharper", ""), f"A is only sharper than B: {GAP}{INSIDE_IT}."),
        (SideVerdict("only smoother", ""), f"A is only smoother than B: {GAP}{INSIDE_IT}."),
        (SideVerdict("the same", ""), f"A and B are the same: {GAP}{INSIDE_IT}."),
        (SideVerdict("mixed", "they cross"), f"A and B are mixed (they cross): {GAP}."),
        (SideVerdict("cannot tell", BENT), f"Cannot tell ({BENT}): {GAP}."),
        (SideVerdict("cannot tell", SHORTER), f"Cannot tell ({SHORTER}): {GAP}."),
        (SideVerdict("cannot tell", SMOKE), f"Cannot tell ({SMOKE}): {GAP}."),
    ],
)
def test_a_comparison_in_a_sentence(verdict: SideVerdict, words: str) -> None:
    found = Comparison(None, None, LOWER, (), verdict, LEVEL, 0.03)
    assert sentence(found) == words
    assert sentence(replace(found, published=AS_PUBLISHED)) == words + PUBLISHED
    assert found.left_out == (0.0, 0.0)
    assert found.thin == ()


def test_a_sentence_says_how_many_outputs_would_decide() -> None:
    doubt = SideVerdict("cannot tell", "too uncertain", 1280)
    found = Comparison(None, None, LOWER, (), doubt, LEVEL, 0.03)
    start = f"Cannot tell (too uncertain): {GAP}."
    enough_said = " About 1,280 outputs per temperature and side would decide."
    assert sentence(found) == start + enough_said
    hardly = replace(found, verdict=replace(doubt, outputs=None), published=AS_PUBLISHED)
    assert sentence(hardly) == f"{start}{PUBLISHED} More outputs would hardly decide."
    nothing = replace(found, equal=None)
    assert sentence(nothing) == "Cannot tell (too uncertain): no verdict."
    assert sentence(replace(nothing, published=AS_PUBLISHED)).endswith(f": no verdict.{PUBLISHED}")


def test_reasons_are_told_as_they_are() -> None:
    assert BENT == "straight lines between so few temperatures may be too far off"
    assert SHORTER.startswith("the sides leave out different shares of their outputs")
    assert SMOKE == "a smoke run is too small for a verdict"
    doubtful = Diversity("x", 0.0, 0.0, "undecided", "not less")
    assert decide(SAME, [doubtful], None, 0.03).why == (
        "whether one side is less diverse is uncertain"
    )
    each = [
        Diversity("x", 0.0, 0.0, "less", "not less"),
        Diversity("y", 0.0, 0.0, "not less", "less"),
    ]
    assert decide(SAME, each, None, 0.03).why == "each side is the less diverse by some measure"
    # Wide and bent: what is uncertain without any bend is not the bend's fault.
    wide = replace(alike(between(-0.1, 0.1)), bend=(0.01, 0.01))
    assert decide(wide, [], None, 0.03).why == UNCERTAIN
    bent = replace(SAME, bend=(0.05, 0.05), misfit=(0.05, 0.05))
    assert decide(bent, [], None, 0.03).why == BENT


def test_intervals_that_hold_together_are_scaled_by_their_own_errors() -> None:
    """Errors of 0.1 and 0.01: the largest of either, in units of its own, sets both widths."""
    first = np.array([-0.15, -0.05, 0.05, 0.15])
    gaps = np.concatenate([[[0.0, 0.0]], np.stack([first, first[[1, 0, 3, 2]] / 10], 1)])
    error = np.std(first)
    found = simultaneous(gaps, 0.25, N)
    # In units of their errors the larger of the two is 0.15 / error in every replicate.
    assert [one.half for one in found] == pytest.approx([0.15, 0.015])
    assert error < 1
