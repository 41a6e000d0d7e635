"""The rules of a verdict, on intervals that are given and on pools made for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from strop.comparing.compare import compare, enough, ratio
from strop.comparing.diversity import Diversity, copies
from strop.comparing.frontier import Equal, Level, spent
from strop.comparing.side import Sample, Side
from strop.comparing.verdict import DIFFERENT, KINDS, Layer, SideVerdict, decide, mirrored, overall
from strop.errors import UserError
from strop.stats.resample import Interval

MARGIN = 0.03
N, R = 64, 400


def _interval(low: float, high: float) -> Interval:
    return Interval((low + high) / 2, low, high, 0.96, R)


def _equal(*parts: tuple[float, float]) -> Equal:
    """With the mean's interval as wide as a part's over the root of two."""
    mid = np.mean([(low + high) / 2 for low, high in parts])
    half = np.mean([(high - low) / 2 for low, high in parts]) / np.sqrt(2)
    found = tuple(_interval(*one) for one in parts)
    flat = (0.0,) * len(found)
    mean = _interval(mid - half, mid + half)
    return Equal(3.0, 4.0, mean, flat, found, found, flat, found, flat)


def _layer(gap: tuple[float, float], sharper: tuple[float, float]) -> Layer:
    return Layer((10.0, 10.0), (3.0, 3.0), _interval(*gap), _interval(*sharper))


FINE = Diversity("copies", 0.0, 0.0, "not less", "not less")
LESS_A = replace(FINE, a=0.5, state_a="less")
LESS_B = replace(FINE, b=0.5, state_b="less")
DOUBT = replace(FINE, state_a="undecided", state_b="undecided")
SAME = _equal((-0.01, 0.02), (-0.02, 0.01))
BETTER = _equal((-0.1, -0.05), (-0.12, -0.06))
WORSE = _equal((0.05, 0.1), (0.06, 0.12))
CROSSING = _equal((-0.1, -0.05), (0.06, 0.12))
DOUBTFUL = _equal((-0.05, 0.04), (-0.04, 0.05))
PUBLISHED = _layer((-0.3, -0.2), (-0.4, -0.3))


@pytest.mark.parametrize(
    ("equal", "diversity", "layer", "kind"),
    [
        (BETTER, FINE, PUBLISHED, "better"),
        (WORSE, FINE, PUBLISHED, "worse"),
        (CROSSING, FINE, PUBLISHED, "mixed"),
        (DOUBTFUL, FINE, PUBLISHED, "cannot tell"),
        (None, FINE, PUBLISHED, "cannot tell"),
        # Lower perplexity that is paid with diversity is never better, and its mirror never worse.
        (BETTER, LESS_A, PUBLISHED, "mixed"),
        (WORSE, LESS_B, PUBLISHED, "mixed"),
        (BETTER, LESS_B, PUBLISHED, "better"),
        (BETTER, DOUBT, PUBLISHED, "cannot tell"),
        (SAME, LESS_A, PUBLISHED, "worse"),
        (SAME, DOUBT, PUBLISHED, "cannot tell"),
        # On one frontier the published settings decide.
        (SAME, FINE, PUBLISHED, "only sharper"),
        (SAME, FINE, _layer((0.2, 0.3), (0.3, 0.4)), "only smoother"),
        (SAME, FINE, _layer((-0.02, 0.02), (-0.02, 0.01)), "the same"),
        (SAME, FINE, _layer((-0.02, 0.05), (-0.02, 0.01)), "cannot tell"),
        (SAME, FINE, None, "the same"),
        # Surely below zero, and surely inside the margin: too small to matter.
        (_equal((-0.02, -0.01), (-0.02, -0.01)), FINE, None, "the same"),
        # Better on average, but somewhere perhaps worse by more than the margin.
        (_equal((-0.3, -0.2), (-0.06, 0.04)), FINE, None, "cannot tell"),
        (_equal((-0.3, -0.2), (-0.06, 0.02)), FINE, None, "better"),
    ],
)
def test_the_table_of_verdicts(equal, diversity, layer, kind):
    assert decide(equal, [diversity], layer, MARGIN).kind == kind


def test_mirrored_twice_is_the_same_verdict():
    for kind in KINDS:
        one = SideVerdict(kind, "")
        assert mirrored(mirrored(one)) == one
        assert (mirrored(one).kind in DIFFERENT) == (kind in DIFFERENT)


# ---------------------------------------------------------------- pools made by hand


def _sample(rng: np.random.Generator, level: float, entropy: float, n: int = N) -> Sample:
    sharp = entropy + 0.1 * rng.standard_normal(n)
    tokens = rng.integers(90, 128, n).astype(float)
    nll = tokens * (level + 1.2 * (sharp - entropy) + 0.1 * rng.standard_normal(n))
    return Sample(nll, tokens, sharp, {"copies": np.zeros((n, n))})


def _with_copies(side: Side, seed: int) -> Side:
    """Every pair a copy with probability 0.02."""
    rng = np.random.default_rng(seed)
    made = []
    for one in side.frontier:
        drawn = rng.random((one.n, one.n)) < 0.01
        made.append(replace(one, alike={"copies": (drawn | drawn.T).astype(float)}))
    return replace(side, frontier=made)


def _side(seed: int, *, shift: float = 0.0, entropy: float = 4.0, n: int = N, points: int = 7):
    """A frontier of slope 1.5 at entropies around one, moved by `shift` in log-perplexity."""
    rng = np.random.default_rng(seed)
    where = entropy + 0.1 * (np.arange(points) - points // 2)
    made = [_sample(rng, 1.5 * h + shift - 3.0, h, n) for h in where]
    return Side(made, published=made[points // 2], tuned=made[0])


@pytest.mark.parametrize("other", [N, 48])
def test_swapping_the_sides_mirrors_every_number_exactly(other):
    for seed in range(12):
        a = _with_copies(_side(seed, shift=-0.01 * seed), seed)
        b = _with_copies(_side(100 + seed, n=other), 100 + seed)
        there, back = compare(a, b, replicates=R), compare(b, a, replicates=R)
        assert mirrored(there.verdict) == back.verdict
        assert there.equal is not None
        assert back.equal is not None
        for name in ("points", "band", "smooth"):
            pairs = zip(getattr(there.equal, name), getattr(back.equal, name), strict=True)
            for one, two in pairs:
                assert (one.value, one.low, one.high) == (-two.value, -two.high, -two.low)
        assert there.equal.bend == back.equal.bend
        assert there.equal.misfit == back.equal.misfit
        assert there.published is not None
        assert back.published is not None
        assert there.published.gap.low == -back.published.gap.high
        assert [one.mirrored() for one in there.diversity] == list(back.diversity)


def test_a_pool_against_itself_is_the_same():
    side = _side(3)
    found = compare(side, side, replicates=R)
    assert found.verdict.kind == "the same"
    assert found.equal is not None
    assert (found.equal.mean.low, found.equal.mean.high) == (0, 0)


def test_a_planted_gap_is_measured():
    # Standard error of the mean gap at these sizes: about 0.02 / sqrt(7) nats; five of them.
    found = compare(_side(1, shift=-0.2), _side(2), replicates=R)
    assert found.verdict.kind == "better"
    assert found.equal is not None
    assert found.equal.mean.value == pytest.approx(-0.2, abs=0.04)


def test_no_common_range_no_verdict():
    found = compare(_side(1, entropy=3.0), _side(2, entropy=5.0), replicates=R)
    assert found.equal is None
    assert (found.verdict.kind, found.verdict.outputs) == ("cannot tell", None)
    assert "common range" in found.verdict.why
    guarded = compare(_side(1), _side(2), floor=9.0, replicates=R)
    assert guarded.equal is None


def test_the_guard_cuts_the_range():
    free, cut = (compare(_side(1), _side(2), floor=one, replicates=R).equal for one in (None, 4.1))
    assert free is not None
    assert cut is not None
    assert free.low < 4.0
    assert cut.low == 4.1
    assert cut.high == free.high


def test_a_side_that_cannot_be_tuned_is_compared_at_its_own_entropy():
    point = _side(1, shift=-0.3, points=1)
    found = compare(point, _side(2), replicates=R)
    assert found.verdict.kind == "better"
    assert found.equal is not None
    assert len(found.equal.points) == len(found.equal.band) == 1
    assert found.equal.low < 4.0 < found.equal.high
    assert compare(point, _side(3, points=1), replicates=R).equal is None
    assert compare(point, _side(4, entropy=5.0), replicates=R).equal is None


def test_less_diverse_pools_are_seen_at_equal_sharpness():
    a, b = _side(1, shift=-0.2), _side(2)
    half = (np.arange(N)[:, None] % 2 == np.arange(N)[None, :] % 2).astype(float)
    collapsed = Side([replace(one, alike={"copies": half}) for one in a.frontier], a.published)
    found = compare(collapsed, b, replicates=R)
    assert found.verdict.kind == "mixed"
    [one] = found.diversity
    assert (one.state_a, one.state_b) == ("less", "not less")
    # Of 64 outputs 31 others are like an output: pairs of an output and itself are left out.
    assert one.a == pytest.approx(31 / 63)


def test_what_a_judge_says_of_diversity_counts():
    a, b = _side(1, shift=-0.2), _side(2)
    assert compare(a, b, judged=[LESS_A], replicates=R).verdict.kind == "mixed"
    assert compare(a, b, judged=[DOUBT], replicates=R).verdict.kind == "cannot tell"


def test_copies():
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 50, (4, 40))
    ids[1, :30] = ids[0, :30]  # 27 of 37 4-grams
    ids[2, :10] = ids[0, :10]  # 7 of 37
    expected = np.zeros((4, 4))
    expected[0, 1] = expected[1, 0] = 1
    np.testing.assert_array_equal(copies(ids), expected)
    # A shorter output that lies inside another is a copy of it.
    short = ids.copy()
    short[3, :12] = ids[0, 8:20]
    short[3, 12:] = -1
    assert copies(short)[0, 3] == copies(short)[3, 0] == 1
    # Outputs without a 4-gram are copies of their equals, and change nothing for the others.
    words = rng.integers(0, 12, (5, 40))
    words[3:] = -1
    words[3:, 0] = 7
    found = copies(words)
    np.testing.assert_array_equal(found[:3, :3], copies(words[:3]))
    assert found[3, 4] == found[4, 3] == 1
    assert not found[:3, 3:].any()


def test_a_ratio_of_next_to_nothing_is_not_told_as_zero():
    found = Interval(np.log(6.8e-6), np.log(5e-6), np.log(9.3e-6), 0.96, R)
    assert ratio(found) == "6.8e-06 [5e-06, 9.3e-06]"
    assert ratio(Interval(np.log(0.59), np.log(0.37), np.log(0.94), 0.96, R)) == (
        "0.590 [0.370, 0.940]"
    )


# ---------------------------------------------------------------- levels, budgets, looks


def test_all_looks_together_spend_alpha():
    assert sum(spent(look) for look in range(1, 60)) == pytest.approx(0.05)
    assert [spent(look) for look in (1, 2, 3)] == pytest.approx([0.04, 0.005, 0.0025])
    assert Level(1, 4).alpha == pytest.approx(0.01)
    assert Level().same == pytest.approx(0.96)
    assert Level().everywhere == pytest.approx(0.94)
    assert Level(2, 2).everywhere == pytest.approx(1 - 1.5 * 0.0025)
    assert Level().different == pytest.approx(0.98)
    with pytest.raises(UserError):
        spent(0)


def test_one_verdict_over_budgets():
    better, same = SideVerdict("better", ""), SideVerdict("the same", "")
    doubt = SideVerdict("cannot tell", "", 512)
    assert overall({4: better, 16: better}).kind == "better"
    assert overall({4: better, 16: same}).kind == "mixed"
    assert overall({4: better, 16: mirrored(better)}).kind == "mixed"
    found = overall({4: better, 16: doubt, 64: replace(doubt, outputs=1024)})
    assert (found.kind, found.outputs) == ("cannot tell", 1024)
    assert overall({4: doubt, 16: replace(doubt, outputs=None)}).outputs is None


def test_the_number_of_outputs_follows_from_the_intervals():
    # Parts at 0.01 with a half of 0.04 at 96%; more outputs are the second look, 0.5% in all.
    error, reach = 0.04 / norm.ppf(0.98), norm.ppf(1 - 0.75 * 0.005)
    errors = norm.ppf((np.arange(20_000) + 0.5) / 20_000)[:, None]
    together = np.concatenate([[[0.0]], errors]).repeat(2, axis=1)
    equal = _equal((-0.03, 0.05), (-0.03, 0.05))
    found = enough(64, equal, 0.01 + error * together, None, MARGIN)
    assert found is not None
    for outputs, enough_for in ((found, True), (found - 32, False)):
        now = error / np.sqrt(outputs / 64)
        inside = norm.cdf(0.02 / now - reach) - norm.cdf(reach - 0.04 / now)
        assert (inside >= 0.8) == enough_for
    # A gap that is large and uncertain is decided by being told from zero.
    wide = -0.1 + 5 * error * together
    found = enough(64, _equal((-0.3, 0.1), (-0.3, 0.1)), wide, None, MARGIN)
    told = norm.ppf(0.9975) + 0.8416
    outside = 64 * (told * 0.2 / np.sqrt(2) / norm.ppf(0.98) / 0.1) ** 2
    assert found is not None
    assert outside <= found < outside + 32
    # A gap of exactly the margin is neither.
    assert enough(64, _equal((-50, 50.0), (-50, 50.0)), 50 * together, None, 1e-9) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: Sample(np.ones(3), np.ones(2), np.ones(3)),
        lambda: Sample(np.ones(2), np.zeros(2), np.ones(2)),
        lambda: Side([]),
        lambda: Side([_sample(np.random.default_rng(0), 1, 1, n) for n in (4, 5)]),
        lambda: compare(_side(0), _side(1), margin=0.0),
    ],
)
def test_what_cannot_be_compared_is_refused(make):
    with pytest.raises(UserError):
        make()
