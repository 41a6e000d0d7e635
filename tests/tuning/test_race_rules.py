"""The rules of a race on numbers made by hand: both directions, both ends of every interval.

Values that are all the same and exact have an interval of one point, so that every decision and
every output that is given can be worked out on paper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student

from strop.measure.guard import guard
from strop.stats.interval import Interval
from strop.stats.resample import Statistic, jackknife, mean
from strop.tuning.race import Arm, Drawn, Limit, Race, Rules, guard_limits

Floats = Sequence[float] | np.ndarray


def same(value: float, n: int) -> Statistic:
    """Counts that a setting fixes: known for sure at any number of outputs."""
    return mean(np.full(n, value), exact=True)


def logs(values: Floats) -> Statistic:
    """exp of a mean, as a perplexity is."""
    return Statistic(mean(np.asarray(values)).columns, lambda t: np.exp(t[..., 0] / t[..., 1]))


def raced(arms: Mapping[str, Drawn], rules: Rules, budget: int = 0) -> Race[str]:
    """A race of candidates that have their outputs; with no budget only their states are told."""

    def measure(wanted: Sequence[tuple[str, int]]) -> list[Drawn]:
        raise AssertionError(f"nothing can be paid: {wanted}")

    race = Race(measure, rules, budget)
    race.arms = {name: Arm(name, drawn) for name, drawn in arms.items()}
    race.run()
    return race


def states(arms: Mapping[str, Drawn], rules: Rules) -> dict[str, str]:
    return {name: arm.state for name, arm in raced(arms, rules).arms.items()}


# ---------------------------------------------------------------- intervals


def jackknifed(values: np.ndarray, level: float = 0.95) -> tuple[float, float, float]:
    """Of a mean the jackknife is s / sqrt(n), with s over n - 1."""
    n = len(values)
    half = student.ppf((1 + level) / 2, n - 1) * values.std(ddof=1) / math.sqrt(n)
    return values.mean(), values.mean() - half, values.mean() + half


def ends(found: Interval) -> tuple[float, float, float]:
    return found.value, *found.ends


@pytest.mark.parametrize("n", [2, 3, 8, 40])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_the_interval_of_a_mean_is_students(n: int, level: float) -> None:
    values = np.random.default_rng(n).normal(3, 2, n)
    assert ends(jackknife(mean(values), level)) == pytest.approx(jackknifed(values, level))


def test_a_difference_is_paired_on_the_first_outputs_of_both() -> None:
    rng = np.random.default_rng(1)
    common = rng.normal(0, 5, 12)
    one, other = common + 1 + rng.normal(0, 0.1, 12), common[:7] + rng.normal(0, 0.1, 7)
    found = jackknife(mean(one), 0.95, mean(other))
    assert ends(found) == pytest.approx(jackknifed(one[:7] - other))
    back = jackknife(mean(other), 0.95, mean(one))
    assert ends(back) == pytest.approx((-found.value, -found.high, -found.low))
    # Of exponentials of means the logarithms are compared: their means again.
    ratio = jackknife(logs(one), 0.95, logs(other), log=True)
    assert ends(ratio) == pytest.approx(jackknifed(one[:7] - other))


def test_one_output_decides_nothing_and_few_equal_ones_neither() -> None:
    nothing = (-math.inf, math.inf)
    for n in (1, 2, 31):
        assert ends(jackknife(mean(np.full(n, 2.5)), 0.95)) == (2.5, *nothing)
    assert ends(jackknife(mean(np.full(32, 2.5)), 0.95)) == (2.5, 2.5, 2.5)
    assert ends(jackknife(same(2.5, 2), 0.95)) == (2.5, 2.5, 2.5)
    assert ends(jackknife(same(2.5, 1), 0.95)) == (2.5, *nothing)
    # A difference is exact only if both of its sides are.
    assert ends(jackknife(same(2.5, 2), 0.95, same(1.0, 2))) == (1.5, 1.5, 1.5)
    assert ends(jackknife(same(2.5, 2), 0.95, mean(np.ones(2)))) == (1.5, *nothing)
    assert ends(jackknife(mean(np.ones(2)), 0.95, same(2.5, 2))) == (-1.5, *nothing)


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("side", "low", "high", "inside"),
    [
        (">=", 4.0, 5.0, True),
        (">=", 3.9, 5.0, None),
        (">=", 3.0, 4.0, None),
        (">=", 3.0, 3.9, False),
        ("<=", 3.0, 4.0, True),
        ("<=", 3.0, 4.1, None),
        ("<=", 4.0, 5.0, None),
        ("<=", 4.1, 5.0, False),
    ],
)
def test_a_limit_is_held_or_broken_by_a_whole_interval(side, low, high, inside) -> None:
    limit = Limit("entropy", side, 4.0)
    assert limit.side_of(Interval((low + high) / 2, low, high)) is inside


def test_how_far_a_value_is_outside() -> None:
    assert Limit("x", ">=", 4.0).excess(3.0) == 1.0
    assert Limit("x", ">=", 4.0).excess(4.5) == -0.5
    assert Limit("x", "<=", 4.0).excess(4.5) == 0.5
    assert Limit("x", "<=", 4.0).excess(3.0) == -1.0


def test_one_broken_limit_is_enough_and_it_is_named() -> None:
    limits = (Limit("entropy", ">=", 4.0), Limit("calls", "<=", 8.0))
    good, slow, dull = (
        Drawn(same(1.0, 4), (same(entropy, 4), same(calls, 4)))
        for entropy, calls in ((4.0, 8.0), (4.0, 8.5), (3.5, 9.0))
    )
    race = raced({"good": good, "slow": slow, "dull": dull}, Rules(limits=limits, sure=4))
    told = {name: (arm.state, arm.why) for name, arm in race.arms.items()}
    assert told == {
        "good": ("leads", ""),
        "slow": ("over the limit", "calls<=8"),
        "dull": ("over the limit", "entropy>=4, calls<=8"),
    }


@pytest.mark.parametrize("level", [0.95, 0.99])
def test_a_limit_that_the_most_outputs_would_not_decide_stops_a_candidate(level: float) -> None:
    """With half width h at n outputs: h sqrt(n / most) then, and one standard error of luck."""
    rng, n, most = np.random.default_rng(3), 16, 64
    values = rng.normal(0, 1, n)
    values -= values.mean()
    half = jackknife(mean(values), level).high
    error = half / student.ppf((1 + level) / 2, n - 1)
    edge = half * math.sqrt(n / most) - error  # below the limit by so much it may still be shown
    assert edge > 0
    for side, sign in ((">=", 1), ("<=", -1)):
        limits = (Limit("entropy", side, 0.0),)
        for more, state in ((1e-6, "in doubt"), (-1e-6, "too near the limit")):
            drawn = Drawn(same(1.0, n), (mean(values + sign * (edge + more)),))
            found = raced({"x": drawn}, Rules(limits=limits, most=most, level=level))
            assert found.arms["x"].state == state, (side, more)


def test_what_a_guard_asks_of_a_candidate() -> None:
    texts = np.random.default_rng(0).integers(0, 6, (40, 12))
    held = guard(12, texts)
    entropy = Limit("entropy", ">=", held.threshold or 0.0, "interval")
    assert guard_limits(held, 64) == (entropy, Limit("diversity", ">=", 0.92, least=64))
    assert guard_limits(held) == guard_limits(held, 64)
    assert guard_limits(held, 63) == (entropy,)
    by_mean = replace(held, rule="mean")
    assert guard_limits(by_mean, 64) == (replace(entropy, by="mean"),)
    assert guard_limits(replace(held, texts=()), 64) == (entropy,)
    assert guard_limits(None) == guard_limits(guard(12), 64) == ()


# ---------------------------------------------------------------- who leads, who is worse


@pytest.mark.parametrize(("best", "first"), [("min", "low"), ("max", "high")])
def test_the_best_of_those_with_the_most_outputs_leads(best, first) -> None:
    arms = {
        "low": Drawn(same(1.0, 8)),
        "high": Drawn(same(2.0, 8)),
        "lower": Drawn(same(0.5, 4)),
        "higher": Drawn(same(2.5, 4)),
        "nothing": Drawn(Statistic(np.zeros((8, 2)), lambda t: np.full(t.shape[:-1], np.nan))),
    }
    leader = raced(arms, Rules(best=best)).leader
    assert leader is not None
    assert leader.candidate == first


@pytest.mark.parametrize("best", ["min", "max"])
@pytest.mark.parametrize("value", [8.0, -8.0])
def test_who_cannot_beat_the_leader_by_more_than_the_tolerance_is_worse(best, value) -> None:
    """A quarter of 8 is 2; the others have fewer outputs, so that they may be better than it."""
    sign = 1 if best == "min" else -1
    arms = {"leader": Drawn(same(value, 8))}
    for gain in (-1.0, 0.0, 1.75, 2.0, 2.25):
        arms[f"{gain}"] = Drawn(same(value - sign * gain, 4))
    found = states(arms, Rules(best=best, tolerance=0.25, sure=8))
    assert found == {
        "leader": "leads",
        "-1.0": "worse",
        "0.0": "worse",
        "1.75": "worse",
        "2.0": "in doubt",
        "2.25": "in doubt",
    }


@pytest.mark.parametrize("best", ["min", "max"])
def test_by_logarithms_the_tolerance_is_a_share_whatever_the_value(best) -> None:
    sign = 1 if best == "min" else -1

    def exact(log: float, n: int) -> Drawn:
        columns = np.stack([np.full(n, log), np.ones(n)], 1)
        return Drawn(Statistic(columns, lambda t: np.exp(t[..., 0] / t[..., 1]), exact=True))

    arms = {"leader": exact(3.0, 8)}
    arms |= {f"{gain}": exact(3.0 - sign * gain, 4) for gain in (0.1, 0.24, 0.26)}
    found = states(arms, Rules(best=best, tolerance=0.25, sure=8, log=True))
    assert found == {"leader": "leads", "0.1": "worse", "0.24": "worse", "0.26": "in doubt"}


@pytest.mark.parametrize("best", ["min", "max"])
def test_the_end_of_the_interval_that_favours_a_candidate_decides(best) -> None:
    """The same mean difference: surely worse if it is certain, in doubt if it is not."""
    sign = 1 if best == "min" else -1
    spread = np.tile([1.0, -1.0], 8)
    half = jackknife(mean(spread), 0.95).high
    arms = {"leader": Drawn(mean(np.zeros(16) + 10.0))}
    for name, gap in (("far", half + 0.01), ("near", half - 0.01)):
        arms[name] = Drawn(mean(10.0 + sign * gap + spread))
    found = states(arms, Rules(best=best, tolerance=0.0, sure=16, most=16))
    assert found == {"leader": "leads", "far": "worse", "near": "in doubt"}


VALUES = st.integers(0, 2**32 - 1)


@settings(max_examples=25)
@given(seed=VALUES, log=st.booleans(), limited=st.booleans())
def test_more_is_better_mirrors_less_is_better(seed: int, log: bool, limited: bool) -> None:
    """Negated values (inverse ones, by logarithms) and limits give the same race, step by step."""
    rng = np.random.default_rng(seed)
    levels, entropies = rng.normal(2.0, 0.3, 5), rng.normal(4.0, 0.2, 5)
    noise = rng.normal(0, 0.3, (2, 5, 32)) + rng.normal(0, 0.3, (2, 1, 32))

    def race(sign: int) -> Race[int]:
        def measure(wanted: Sequence[tuple[int, int]]) -> list[Drawn]:
            found = []
            for arm, n in wanted:
                values = sign * (levels[arm] + noise[0, arm, :n])
                limit = mean(sign * (entropies[arm] + noise[1, arm, :n]))
                found.append(Drawn(logs(values) if log else mean(values), (limit,) * limited))
            return found

        limits: Any = (Limit("e", ">=" if sign > 0 else "<=", sign * 4.0),) if limited else ()
        rules = Rules(best="min" if sign > 0 else "max", limits=limits, first=4, most=32, log=log)
        found = Race(measure, rules, 120)
        found.run(range(5))
        return found

    there, back = race(1), race(-1)
    assert there.path == back.path
    assert [(a.n, a.state) for a in there.arms.values()] == [
        (a.n, a.state) for a in back.arms.values()
    ]


# ---------------------------------------------------------------- who is given outputs


def told(
    values: Mapping[str, float], rules: Rules, budget: int
) -> tuple[list[list[tuple[str, int]]], Race[str]]:
    """Every round's orders, of candidates whose value is certain."""
    asked: list[list[tuple[str, int]]] = []

    def measure(wanted: Sequence[tuple[str, int]]) -> list[Drawn]:
        asked.append(list(wanted))
        return [Drawn(same(values[name], n)) for name, n in wanted]

    race = Race(measure, rules, budget)
    race.run(values)
    return asked, race


RULES = Rules(first=4, most=16, sure=8, tolerance=0.0)


def test_a_clear_race_ends_when_the_leader_has_enough() -> None:
    asked, race = told({"a": 1.0, "b": 2.0}, RULES, 100)
    assert asked == [[("a", 4), ("b", 4)], [("a", 8)]]
    assert race.path == [(8, "a"), (12, "a")]
    assert race.spent == 12


def test_equal_candidates_get_twice_as_many_until_the_most() -> None:
    asked, race = told({"a": 1.0, "b": 1.0}, RULES, 100)
    assert asked == [[(name, n) for name in "ab"] for n in (4, 8, 16)]
    assert {arm.state for arm in race.arms.values()} == {"leads", "in doubt"}
    # The last step is to the most, not beyond it.
    asked, _ = told({"a": 1.0, "b": 1.0}, Rules(first=4, most=10, sure=8, tolerance=0.0), 100)
    assert [n for ((_, n), _) in asked] == [4, 8, 10]


@pytest.mark.parametrize(("best", "order"), [("min", "abc"), ("max", "acb")])
def test_the_most_promising_is_paid_first(best, order) -> None:
    """By the best that each may be: the end of the interval, not the value."""
    made = {"c": (3.0, 1), "a": (2.0, 9), "b": (1.0, 1)}
    wave = np.array([0, 1, 0, -1])
    arms = {name: Drawn(mean(value + width * wave)) for name, (value, width) in made.items()}
    wanted = raced(arms, Rules(best=best, first=4, most=16))._wanted()
    assert wanted == [(name, 8) for name in order]


def test_a_promise_beyond_what_there_can_be_counts() -> None:
    """Both intervals reach below 10, where values cannot: the one that reaches further leads."""
    wave = np.array([0, 1, 0, -1])
    arms = {
        name: Drawn(mean(10 + value + width * wave, span=(10.0, math.inf)))
        for name, value, width in (("c", 1.0, 4), ("a", 2.0, 9))
    }
    wanted = raced(arms, Rules(first=4, most=16))._wanted()
    assert wanted == [("a", 8), ("c", 8)]


@pytest.mark.parametrize(
    ("budget", "rounds"),
    [
        (3, []),
        (4, [[("a", 4)]]),  # the leader gets no more: nothing is left
        (7, [[("a", 4)]]),
        (8, [[("a", 4), ("b", 4)]]),
        (11, [[("a", 4), ("b", 4)]]),
        (12, [[("a", 4), ("b", 4)], [("a", 8)]]),
    ],
)
def test_what_a_budget_pays(budget: int, rounds: list[list[tuple[str, int]]]) -> None:
    asked, race = told({"a": 1.0, "b": 2.0}, RULES, budget)
    assert asked == rounds
    assert race.spent <= budget


def test_what_the_leader_still_needs_is_kept_for_it() -> None:
    """The leader has 4 of its 8: of 15 outputs, 8 are spent, 4 kept, and 3 pay for nobody new."""
    values = {"a": 1.0, "b": 2.0, "new": 0.5}

    def measure(wanted: Sequence[tuple[str, int]]) -> list[Drawn]:
        return [Drawn(same(values[name], n)) for name, n in wanted]

    for budget, joins in ((15, False), (16, True)):
        race = Race(measure, RULES, budget)
        race.run(["a", "b"], budget=8)
        assert (race.spent, len(race.arms)) == (8, 2)
        race.run(["new"])
        assert ("new" in race.arms) is joins, budget
    # What a call may spend is no more than the race has.
    race = Race(measure, RULES, 8)
    race.run(["a", "b"], budget=100)
    assert race.spent == 8


def test_what_states_say() -> None:
    """Only a doubt has a reason: which limit is broken, or that one is in doubt."""
    limits = (Limit("entropy", ">=", 3.0),)
    arms = {
        "leader": Drawn(same(1.0, 4), (same(3.0, 4),)),
        "worse": Drawn(same(2.0, 4), (same(3.0, 4),)),
        "rival": Drawn(same(0.5, 2), (same(3.0, 2),)),
        # A few equal values tell nothing of where the limit is: more of them might.
        "unknown": Drawn(same(0.5, 4), (mean(np.full(4, 2.0)),)),
    }
    race = raced(arms, Rules(limits=limits, first=2, sure=4))
    assert {name: (arm.state, arm.why) for name, arm in race.arms.items()} == {
        "leader": ("leads", ""),
        "worse": ("worse", ""),
        "rival": ("in doubt", ""),
        "unknown": ("in doubt", "a limit is in doubt"),
    }


def test_limits_are_broken_at_the_level_of_the_rules() -> None:
    """At 50% the interval excludes the limit, at 95% it does not."""
    values = np.array([2.0, 2.5, 3.0, 2.9])
    assert not jackknife(mean(values), 0.95).below(3.0)
    assert jackknife(mean(values), 0.5).below(3.0)
    drawn = {"x": Drawn(same(1.0, 4), (mean(values),))}
    race = raced(drawn, Rules(limits=(Limit("entropy", ">=", 3.0),), level=0.5))
    assert (race.arms["x"].state, race.arms["x"].why) == ("over the limit", "entropy>=3")


def test_a_limit_may_be_held_by_the_mean_alone() -> None:
    least = Limit("entropy", ">=", 5.0, "mean")
    most = Limit("copies", "<=", 5.0, "mean")
    for value, inside in ((5.01, (True, False)), (5.0, (True, True)), (4.99, (False, True))):
        wide = Interval(value, value - 1, value + 1)
        assert (least.side_of(wide), most.side_of(wide)) == inside


def test_the_usual_rules() -> None:
    assert Rules() == Rules("min", (), 8, 64, 32, 0.02, 0.95, False)
    assert (Rules().sign, Rules(best="max").sign) == (1, -1)
