"""The race where the best is known: who wins, what it costs, what stops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from strop.stats.resample import Statistic, mean
from strop.tuning.race import Drawn, Limit, Race, Rules

Wanted = Sequence[tuple[float, int]]
SPREAD, SHARED = 0.3, 0.2
"""Of one output: in all, and what all candidates share, as common random numbers do."""


def bank(
    seed: int,
    level: Callable[[float], float],
    entropy: Callable[[float], float] | None = None,
) -> Callable[[Wanted], list[Drawn]]:
    """Candidates are temperatures; outputs of all of them share a part of their noise."""

    def measure(wanted: Wanted) -> list[Drawn]:
        found = []
        for x, n in wanted:
            common = np.random.default_rng([seed, 0]).normal(size=(2, 512))[:, :n]
            rng = np.random.default_rng([seed, round(1000 * x)])
            own = rng.normal(size=(2, 512))[:, :n]
            noise = SHARED * common + math.sqrt(SPREAD**2 - SHARED**2) * own
            drawn = mean(level(x) + noise[0])
            logs = Statistic(drawn.columns, lambda total: np.exp(total[..., 0] / total[..., 1]))
            limits = () if entropy is None else (mean(entropy(x) + noise[1] / 3),)
            found.append(Drawn(logs, limits))
        return found

    return measure


GRID = [round(0.8 + 0.05 * i, 2) for i in range(7)]


def test_the_best_is_found_with_few_outputs() -> None:
    """Log-levels differ by 0.1 and more, with a spread of 0.22 between outputs of two candidates.

    At 32 paired outputs a difference of 0.1 is 0.1 / (0.316 / sqrt(32)) = 1.8 standard errors, at
    128 it is 3.6: the power is high, and a wrong choice costs at most one neighbour. 40 races; a
    bound of 36 is below the 1% quantile of a binomial with 40 and 0.97.
    """
    rules, hits, spent = Rules(log=True), 0, []
    for seed in range(40):
        race = Race(bank(seed, lambda x: 20 * (x - 0.9) ** 2 + x), rules, 512)
        race.run(GRID)
        assert race.leader is not None
        hits += race.leader.candidate in (0.85, 0.9)
        spent.append(race.spent)
        assert race.leader.n >= rules.sure
    assert hits >= 36
    assert np.median(spent) < 7 * 128 / 2


def test_a_limit_stops_whoever_breaks_it_and_only_sure_ones_lead() -> None:
    """Lower is better without end; entropy 4.2 is reached at 0.9 and clearly at 0.95."""
    limits = (Limit("entropy", ">=", 4.2),)
    for seed in range(10):
        race = Race(
            bank(seed, lambda x: 3 * x, lambda x: 4.2 + 2 * (x - 0.9)), Rules(limits=limits), 1024
        )
        race.run(GRID)
        assert race.leader is not None
        assert race.leader.candidate in (0.9, 0.95)
        states = {arm.candidate: arm.state for arm in race.arms.values()}
        assert states[0.8] == "over the limit"
        assert race.arms[0.8].why == "entropy>=4.2"
        assert race.arms[0.8].n <= 16


def test_nobody_leads_where_nobody_holds_the_limit() -> None:
    limits = (Limit("entropy", ">=", 9.0),)
    race = Race(bank(0, lambda x: x, lambda _: 5.0), Rules(limits=limits), 512)
    race.run(GRID)
    assert race.leader is None
    assert race.spent == 7 * Rules.first
    assert {arm.state for arm in race.arms.values()} == {"over the limit"}


def test_more_can_be_better() -> None:
    race = Race(bank(1, lambda x: 3 * x), Rules(best="max"), 512)
    race.run(GRID)
    assert race.leader is not None
    assert race.leader.candidate == 1.1


@pytest.mark.parametrize("budget", [8, 40, 56, 100, 300])
def test_the_budget_is_never_exceeded(budget: int) -> None:
    race = Race(bank(2, lambda x: x), Rules(), budget)
    race.run(GRID)
    assert 0 < race.spent <= budget


def test_a_rival_with_all_its_outputs_and_no_money_for_the_leader_ends_the_race() -> None:
    """The rival's limit stays in doubt, the leader has fewer outputs, and nothing can be paid."""
    limits = (Limit("entropy", ">=", 4.2),)
    for budget in range(16, 300, 7):
        measure = bank(6, lambda x: 3 * x, lambda x: 4.2 + 2 * (x - 0.9))
        race = Race(measure, Rules(limits=limits, most=32), budget)
        race.run([0.9, 0.95, 1.0])
        assert race.spent <= budget


def test_what_was_decided_follows_from_the_outputs_alone() -> None:
    races = [Race(bank(3, lambda x: x), Rules(), 256) for _ in range(2)]
    for race in races:
        race.run(GRID[:4])
        race.run(GRID[4:])
    assert races[0].path == races[1].path
    assert races[0].path[-1][0] == races[0].spent


def test_candidates_that_join_late_do_not_unseat_a_leader_by_luck() -> None:
    """One with 8 outputs cannot lead before it has as many as the leader."""
    race = Race(bank(4, lambda x: x), Rules(), 4096)
    race.run([0.8, 0.85])
    led = race.leader
    assert led is not None
    before = led.n
    race.run([0.9, 1.1])
    assert race.leader is not None
    assert race.leader.n >= before
    assert race.leader.candidate in (0.8, 0.85)
