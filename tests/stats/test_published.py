"""Measured against published numbers: levels, power, and what few outputs may say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from strop.stats.interval import Interval
from strop.stats.published import Gap, gap, holm, verdicts
from strop.stats.resample import bootstrap, jackknife, mean

SIZE = 0.1


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_the_published_noise_is_ours_by_the_numbers_of_outputs() -> None:
    measured = Interval(100.0, 100 * math.exp(-0.2), 100 * math.exp(0.2), n=10_001)
    found = gap(measured, 120.0, 2_500, log=True)
    assert found is not None
    assert found.value == pytest.approx(-math.log(1.2))
    assert found.own == pytest.approx(0.2 / 1.96, rel=1e-3)
    assert found.theirs == pytest.approx(2 * found.own, rel=1e-3)
    printed = gap(measured, 120.0, 2_500, log=True, error=0.01, rounding=0.6)
    assert printed is not None
    assert printed.theirs == pytest.approx(math.hypot(0.01, 0.005 / math.sqrt(3)))


@pytest.mark.parametrize("broken", [Interval(5.0), Interval(5.0, 4.9, 5.1), Interval(5, 4, 6, n=1)])
def test_without_noise_nothing_can_be_told(broken: Interval) -> None:
    assert gap(broken, 5.0, 128) is None
    assert verdicts([None], SIZE) == ["cannot tell"]


def simulated(n: int, shift: float, rng: np.random.Generator) -> Gap:
    """Ours of n outputs against theirs of 128, both with a spread of .3 nats."""
    own = jackknife(mean(rng.normal(5 + shift, 0.3, n)), cut=False)
    found = gap(own, float(rng.normal(5, 0.3, 128).mean()), 128)
    assert found is not None
    return found


def test_perfect_repeats_differ_as_seldom_as_the_level_says() -> None:
    """400 certificates of 8 numbers: at most 5% of them may differ in any; three sigma are 3.3%."""
    rng = np.random.default_rng(1)
    wrong = inside = 0
    for _ in range(400):
        gaps = [simulated(128, 0.0, rng) for _ in range(8)]
        wrong += "differs" in verdicts(gaps, SIZE)
        inside += sum(one.within() for one in gaps)
    assert wrong / 400 < 0.083
    assert wrong > 0  # the level is used, not avoided
    assert inside / 3200 == pytest.approx(0.95, abs=0.02)


def test_the_detectable_difference_is_found_four_times_out_of_five() -> None:
    rng = np.random.default_rng(2)
    size = float(np.mean([simulated(128, 0.0, rng).detectable(0.05) for _ in range(50)]))
    found = [not simulated(128, size, rng).within() for _ in range(800)]
    assert np.mean(found) == pytest.approx(0.8, abs=0.045)  # three sigma of 800


def test_few_outputs_do_not_pass_and_enough_do() -> None:
    few = Gap(0.0, 0.3 / math.sqrt(8), 0.01, 8)
    assert verdicts([few], SIZE) == ["cannot tell"]
    needed = few.needed(SIZE, 0.05)
    assert needed is not None
    assert 60 < needed < 120
    enough = Gap(0.0, 0.3 / math.sqrt(needed + 5), 0.01, needed + 5)
    assert verdicts([enough], SIZE) == ["agrees"]
    assert Gap(0.0, 0.01, 0.05, 900).needed(SIZE, 0.05) is None
    assert verdicts([Gap(0.5, 0.01, 0.01, 900), few], SIZE) == ["differs", "cannot tell"]


def repeated(n: int, theirs: int, shift: float, rng: np.random.Generator) -> Gap:
    """Perplexities of both sides, outputs with a spread of .25 nats; theirs is a bare number."""
    own = jackknife(mean(rng.normal(4 + shift, 0.25, n)), cut=False).exp()
    found = gap(own, math.exp(rng.normal(4, 0.25, theirs).mean()), theirs, log=True)
    assert found is not None
    return found


def test_a_perfect_repeat_agrees_and_a_shift_of_15_percent_is_found() -> None:
    """Eight numbers of 512 outputs against 128 published; 300 certificates of each kind.

    The error of a gap is .25 sqrt(1/512 + 1/128) = .0247 nats; Holm's hardest bar is 2.73 of it, so
    a gap of log 1.15 = .140 is found with power .998 and one of .1 with .91, above four of five.
    """
    rng = np.random.default_rng(3)
    repeats = [verdicts([repeated(512, 128, 0.0, rng) for _ in range(8)], SIZE) for _ in range(300)]
    assert {one for told in repeats for one in told} <= {"agrees", "differs"}
    assert sum(set(told) == {"agrees"} for told in repeats) / 300 > 0.95 - 0.038  # three sigma
    shifts = [
        verdicts([repeated(512, 128, shift, rng) for shift in (math.log(1.15), *[0.0] * 7)], SIZE)
        for _ in range(300)
    ]
    assert sum(told[0] == "differs" for told in shifts) >= 295
    # With 24 outputs the same shift is found in a third; none of these certificates may pass it.
    few = [
        verdicts([repeated(24, 128, shift, rng) for shift in (math.log(1.15), *[0.0] * 7)], SIZE)
        for _ in range(100)
    ]
    assert {told[0] for told in few} == {"differs", "cannot tell"}


@pytest.mark.parametrize(("n", "theirs"), [(8, 128), (40, 40)])
def test_within_the_noise_of_both_holds_with_a_bootstrap_too(n: int, theirs: int) -> None:
    """400 perfect repeats: 95% lie within the noise of both, three sigma are 3.3%.

    The published number lies in our own interval alone less often: in 83% at equal numbers.
    """
    rng = np.random.default_rng(4)
    within = inside = 0
    for seed in range(400):
        own = bootstrap(mean(rng.normal(5, 0.3, n)), seed=seed, replicates=1000)
        assert own is not None
        printed = float(rng.normal(5, 0.3, theirs).mean())
        found = gap(own, printed, theirs)
        assert found is not None
        within += found.within()
        inside += own.ends[0] <= printed <= own.ends[1]
    assert within / 400 == pytest.approx(0.95, abs=0.033)
    assert inside < within
    if n == theirs:
        assert inside / 400 == pytest.approx(0.83, abs=0.05)
