"""Frontiers as parabolas: the fit, what is left of it, and how often "the same" is false."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from strop.comparing.frontier import (
    Equal,
    Grid,
    Level,
    equal_sharpness,
    grid,
    parabola,
    smooth_gaps,
    smoothed,
)
from strop.comparing.side import Curve, Sample, Side, interval, simultaneous
from strop.comparing.verdict import frontiers

LEVEL, MARGIN = Level(), 0.03
N, R = 64, 300
ENTROPIES = np.array([2.91, 2.99, 3.06, 3.12, 3.17, 3.22, 3.25])
"""As far apart as those of the usual temperatures."""


def made(
    levels: np.ndarray, entropies: np.ndarray = ENTROPIES, noise: float = 0.0, seed: int = 0
) -> Curve:
    """A frontier whose log-perplexities have this standard error, and whose entropies have none."""
    rng = np.random.default_rng(seed)
    points = [
        Sample(8 * (level + noise * np.sqrt(N) * rng.standard_normal(N)), np.full(N, 8.0), at)
        for level, at in zip(levels, np.repeat(entropies[:, None], N, axis=1), strict=True)
    ]
    return Curve(Side(points), R, 0)


def test_a_parabola_is_that_of_least_squares_in_every_row() -> None:
    rng = np.random.default_rng(1)
    x, y, places = (rng.standard_normal((5, k)) for k in (7, 7, 4))
    found = parabola(x, y)(places)
    for row in range(5):
        expected = np.polyval(np.polyfit(x[row], y[row], 2), places[row])
        assert found[row] == pytest.approx(expected)
    # At one place there is nothing to fit but the mean.
    level = parabola(np.full((5, 7), 2.0), y)(places)
    assert level == pytest.approx(np.repeat(y.mean(axis=1, keepdims=True), 4, axis=1))
    assert parabola(np.full((1, 5), 2.0), np.arange(5.0)[None])(
        np.array([[1.0, 9.0]])
    ).tolist() == [[2.0, 2.0]]


def test_points_on_a_parabola_leave_nothing() -> None:
    places = np.linspace(2.95, 3.2, 5)
    found = smoothed(made(2 * (ENTROPIES - 3) ** 2), places, LEVEL)
    assert found is not None
    fitted, misfit = found
    assert fitted.shape == (R + 1, 5)
    assert fitted[0] == pytest.approx(2 * (places - 3) ** 2)
    assert misfit == pytest.approx(np.zeros(5), abs=1e-9)


def test_where_there_is_no_parabola() -> None:
    """Too few points to see that they lie off, and points that surely do."""
    places = np.array([3.0])
    assert smoothed(made(ENTROPIES[:4] ** 2, ENTROPIES[:4]), places, LEVEL) is None
    assert smoothed(made(ENTROPIES[:5] ** 2, ENTROPIES[:5]), places, LEVEL) is not None
    assert smoothed(made(40 * (ENTROPIES - 3) ** 3), places, LEVEL) is None
    # A single point is what it is.
    single = smoothed(made(np.array([1.5]), np.array([3.0])), places, LEVEL)
    assert single is not None
    assert (single[0] == 1.5).all()
    assert single[1].tolist() == [0.0]


def test_what_points_are_off_beyond_noise_is_misfit() -> None:
    bumped = 1.5 * ENTROPIES + np.array([0, 0, 0.02, 0, 0, 0, 0])
    curve = made(bumped, noise=0.01, seed=1)
    found = smoothed(curve, ENTROPIES, LEVEL)
    assert found is not None
    fitted = parabola(curve.entropy, curve.level)(curve.entropy)
    left = curve.level - fitted
    expected = np.sqrt(np.maximum(left[0] ** 2 - left[1:].var(axis=0), 0))
    assert found[1] == pytest.approx(expected)
    assert found[1].max() > 0.005
    assert (found[1] == 0).any()
    halfway = smoothed(curve, (ENTROPIES[2:3] + ENTROPIES[3:4]) / 2, LEVEL)
    assert halfway is not None
    assert halfway[1] == pytest.approx(expected[2:4].mean(keepdims=True))


def test_what_both_sides_are_off_adds_up_unless_they_are_the_same_outputs() -> None:
    bumps = (np.array([0, 0, 0.02, 0, 0, 0, 0]), np.array([0, 0, 0, 0, 0.02, 0, 0]))
    a, b = (made(1.5 * ENTROPIES + one, noise=0.01, seed=k) for k, one in enumerate(bumps, 1))
    where = grid(a, b, None)
    assert where is not None
    each = [smoothed(side, where.points, LEVEL) for side in (a, b)]
    assert each[0] is not None
    assert each[1] is not None
    gaps, misfit = smooth_gaps(a, b, where, LEVEL)
    assert misfit.max() > 0.005
    assert misfit == pytest.approx(each[0][1] + each[1][1])
    assert gaps == pytest.approx(each[0][0] - each[1][0])
    assert not smooth_gaps(a, a, where, LEVEL)[1].any()


def test_without_a_parabola_on_either_side_the_gap_is_read_off_lines() -> None:
    bent, smooth = made(40 * (ENTROPIES - 3) ** 3), made(ENTROPIES - 2)
    for a, b in ((bent, smooth), (smooth, bent)):
        where = grid(a, b, None)
        assert where is not None
        found = equal_sharpness(a, b, where, LEVEL)
        assert found.lines
        assert found.smooth == found.points
        assert found.misfit == found.bend
        assert max(found.bend) > 0
    where = grid(smooth, made(ENTROPIES - 2.5), None)
    assert where is not None
    assert not equal_sharpness(made(ENTROPIES**2), made(ENTROPIES), where, LEVEL).lines


# ---------------------------------------------------------------- how often it is false, and told


def sides(
    gap: Callable[[np.ndarray], np.ndarray], noise: float, seed: int
) -> tuple[Curve, Curve, Grid]:
    """Two frontiers with this gap, by place in the range of entropies (0 to 1)."""
    along = (ENTROPIES - ENTROPIES[0]) / np.ptp(ENTROPIES)
    level = 1.5 * ENTROPIES + 1.2 * (ENTROPIES - 3) ** 2
    a = made(level + gap(along), noise=noise, seed=2 * seed)
    b = made(level, noise=noise, seed=2 * seed + 1)
    where = grid(a, b, None)
    assert where is not None
    return a, b, where


def pair(gap: Callable[[np.ndarray], np.ndarray], noise: float, seed: int) -> Equal:
    return equal_sharpness(*sides(gap, noise, seed), LEVEL)


def same(equal: Equal) -> bool:
    return frontiers(equal, MARGIN) == "the same"


def test_a_gap_of_the_margin_at_one_end_is_called_the_same_as_seldom_as_it_may() -> None:
    """An end errs in 3%: of 500 between 5 and 27 (three standard errors, and few resamples).

    Twice as often would be 30, half as often 7. The rule itself is stricter: what parabolas may be
    off by is added.
    """
    last, inside = 23.5 / 24, 0
    for seed in range(500):
        a, b, where = sides(lambda u: MARGIN * u / last, 0.004, seed)
        gaps, _ = smooth_gaps(a, b, where, LEVEL)
        inside += all(interval(gaps[:, k], LEVEL.everywhere, N).below(MARGIN) for k in (-1, -4))
    assert 5 <= inside <= 27, inside


@pytest.mark.parametrize(
    "gap",
    [
        lambda u: MARGIN + 0 * u,
        lambda u: MARGIN * (2 * u - 1),
        lambda u: MARGIN * np.cos(2 * np.pi * u),  # better in the middle, worse at both ends
        lambda u: MARGIN * np.cos(3 * np.pi * u),
        lambda u: MARGIN * np.cos(4 * np.pi * u),
    ],
)
def test_frontiers_that_differ_by_the_margin_are_not_called_the_same(gap) -> None:
    """At 3% more than two of thirty come once in a hundred."""
    assert sum(same(pair(gap, 0.006, seed)) for seed in range(30)) <= 2


def test_parabolas_tell_that_frontiers_are_the_same_where_lines_cannot_yet() -> None:
    """Points known to 0.75%: parabolas in about 31 of 60, lines in about 9."""
    found = [pair(lambda u: 0 * u, 0.0075, seed) for seed in range(60)]
    by_lines = sum(
        all(
            one.within(off - MARGIN, MARGIN - off)
            for one, off in zip(equal.points, equal.bend, strict=True)
        )
        for equal in found
    )
    by_parabolas = sum(map(same, found))
    assert by_parabolas >= 24, (by_parabolas, by_lines)
    assert by_parabolas >= by_lines + 12, (by_parabolas, by_lines)


def test_a_frontier_that_is_a_parabola_is_seldom_taken_for_none() -> None:
    """Points surely off by chance: 2%, of 100 at most 7."""
    curves = [made(2 * (ENTROPIES - 3) ** 2, noise=0.01, seed=seed) for seed in range(100)]
    assert sum(smoothed(one, ENTROPIES, LEVEL) is None for one in curves) <= 7
    assert simultaneous(np.zeros((3, 2)), 0.9, 4)[0].ends == (0.0, 0.0)
