"""Every rule of committing on tables by hand and against a second, plain form of it.

Scores come from a coarse grid, so that ties and scores on a limit are the ordinary case.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.samplers.machinery import committing
from strop.samplers.machinery.blocks import block_numbers, block_steps
from strop.samplers.machinery.committing import (
    Carried,
    Coins,
    EntropyBound,
    Factor,
    Quota,
    Schedule,
    Threshold,
    Turn,
    View,
    best,
)
from strop.samplers.machinery.drawing import NOT_OPEN, SCORES, Confidence, scattered

Row = list[float | None]
"""Scores; None where nothing is open."""
SIXTEENTHS = st.lists(
    st.lists(
        st.one_of(st.none(), st.integers(0, 16).map(lambda k: k / 16)), min_size=5, max_size=5
    ),
    min_size=1,
    max_size=3,
)


def shown(rows: Sequence[Row]) -> tuple[torch.Tensor, View]:
    """Scores as a table, and what a network call would have shown."""
    table = [[NOT_OPEN if one is None else one for one in row] for row in rows]
    value = torch.tensor(table, dtype=torch.float64)
    open_ = (value > NOT_OPEN).numpy()
    number = np.arange(len(rows))
    return value, View(number, 0, open_, open_, open_, False, np.zeros_like(number), None, 9)


def turned(rows: Sequence[Row], steps: int = 4, round_: int = 0, started: Any = None) -> Turn:
    masks = [sum(one is not None for one in row) for row in rows]
    begun = np.array(masks if started is None else started)
    return Turn(np.arange(len(rows)), steps, begun, round_)


def chosen(rule: Any, rows: Sequence[Row], **turn: Any) -> list[list[int]]:
    value, view = shown(rows)
    now = turned(rows, **turn)
    table = rule.begin(now).choose(value, view, now, None)
    return [row.nonzero()[:, 0].tolist() for row in table]


def ranked(row: Row) -> list[int]:
    """Open positions, the highest score first, the leftmost of equals."""
    there = [i for i, one in enumerate(row) if one is not None]
    return sorted(there, key=lambda i: (-row[i], i))  # type: ignore[operator]


# ---------------------------------------------------------------- thresholds


@pytest.mark.parametrize(
    ("row", "places"),
    [
        ([0.5, 0.75, 0.25], [0, 1]),  # one on the limit counts
        ([0.25, 0.25, 0.125], [0]),  # none reaches it: the leftmost best
        ([None, 0.25, 0.25], [1]),
        ([None, None, None], []),
        ([1.0, None, 0.5], [0, 2]),
    ],
)
def test_threshold(row, places) -> None:
    assert chosen(Threshold(0.5), [row]) == [places]


@settings(max_examples=40)
@given(rows=SIXTEENTHS, level=st.integers(0, 16).map(lambda k: k / 16))
def test_threshold_in_words(rows, level) -> None:
    expected = []
    for row in rows:
        passed = {i for i in ranked(row) if row[i] >= level} | set(ranked(row)[:1])
        expected.append(sorted(passed))
    assert chosen(Threshold(level), rows) == expected


@settings(max_examples=40)
@given(rows=SIXTEENTHS, factor=st.sampled_from([0.25, 0.5, 1.0, 1.5]))
def test_factor_in_words(rows, factor) -> None:
    """Rank n passes while c_n >= 1 - factor / (n + 1); the last comes along with the one before."""
    expected = []
    for row in rows:
        order = ranked(row)
        count = next(
            (k for k in range(1, len(order)) if row[order[k]] < 1 - factor / (k + 2)),
            len(order),
        )
        if count == len(order) - 1:
            count += 1
        expected.append(sorted(order[: max(count, 1)]))
    assert chosen(Factor(factor), rows) == expected


def test_factor_by_hand() -> None:
    """With factor 1 the second needs 2/3, the third 3/4, the fourth 4/5."""
    assert chosen(Factor(1.0), [[0.1, 0.7, 0.9, 0.5]]) == [[1, 2]]
    assert chosen(Factor(1.0), [[0.1, 0.6, 0.9, 0.5]]) == [[2]]
    assert chosen(Factor(1.0), [[0.75, 0.75, 0.9, 0.5]]) == [[0, 1, 2, 3]]  # the last comes along
    assert chosen(Factor(1.0), [[0.75, 0.75, 0.9, 0.5, 0.4]]) == [[0, 1, 2]]  # 3/4 is enough
    assert chosen(Factor(1.0), [[None, 0.1, None]]) == [[1]]


@settings(max_examples=40)
@given(rows=SIXTEENTHS, bound=st.integers(0, 32).map(lambda k: k / 16))
def test_entropy_bound_in_words(rows, bound) -> None:
    """Scores are minus entropies: the surest, while those before it sum to at most the bound."""
    minus = [[None if one is None else -one for one in row] for row in rows]
    expected = []
    for row in minus:
        order, taken, total = ranked(row), [], 0.0
        for i in order:
            if taken and total > bound:
                break
            taken.append(i)
            total -= row[i]  # type: ignore[operator]
        expected.append(sorted(taken))
    assert chosen(EntropyBound(bound), minus) == expected


def test_entropy_bound_by_hand() -> None:
    row: Row = [-0.5, -0.25, -1.0, -0.25]
    for bound, places in ((0.0, [1]), (0.25, [1, 3]), (0.49, [1, 3]), (0.5, [0, 1, 3])):
        assert chosen(EntropyBound(bound), [row]) == [places], bound
    assert chosen(EntropyBound(1.0), [row]) == [[0, 1, 2, 3]]


# ---------------------------------------------------------------- numbers


@settings(max_examples=40)
@given(masks=st.integers(0, 40), steps=st.integers(1, 12))
def test_quotas_share_the_masks_out_the_earlier_rounds_first(masks, steps) -> None:
    left, shares = masks, []
    for round_ in range(steps):
        turn = Turn(np.arange(1), steps, np.array([masks]), round_)
        [share] = Quota().quota(turn, np.array([left])).tolist()
        shares.append(share)
        left -= share
    assert left == 0
    assert shares == sorted(shares, reverse=True)
    assert max(shares) - min(shares) <= 1


def test_a_quota_takes_the_best_the_leftmost_of_equals_and_no_more_than_are_left() -> None:
    row: Row = [0.5, None, 0.75, 0.5]
    assert chosen(Quota(), [row], steps=1, started=[3]) == [[0, 2, 3]]
    assert chosen(Quota(), [row], steps=2, started=[3]) == [[0, 2]]
    assert chosen(Quota(), [row], steps=2, started=[3], round_=1) == [[2]]
    assert chosen(Quota(), [row, row], steps=2, started=[9, 2]) == [[0, 2, 3], [2]]


@settings(max_examples=40)
@given(rows=SIXTEENTHS, data=st.data())
def test_the_best_are_the_highest_whatever_decides_ties(rows, data) -> None:
    value, view = shown(rows)
    counts = [data.draw(st.integers(0, int(n))) for n in view.open.sum(1)]
    for rank in ("leftmost", "topk", "sort"):
        table = best(value, torch.tensor(counts), rank)  # type: ignore[arg-type]
        for row, many, mine in zip(rows, counts, table, strict=True):
            places = mine.nonzero()[:, 0].tolist()
            assert sorted(row[i] for i in places) == sorted(row[i] for i in ranked(row)[:many])
            if rank == "leftmost":
                assert places == sorted(ranked(row)[:many])


def test_the_schedule_is_dreams() -> None:
    """Times 1, 3/4, 1/2, 1/4, 0: a quarter, a third, a half of what is left, then all."""
    rule = Schedule(eps=0.0)
    for round_, (left, share) in enumerate([(9, 2), (7, 2), (5, 2), (3, 3)]):
        turn = Turn(np.arange(1), 4, np.array([9]), round_)
        assert [float(t) for t in rule.times(turn)] == [1 - round_ / 4, 1 - (round_ + 1) / 4]
        found = rule.quota(turn, np.array([left]))
        assert found is not None
        assert found.tolist() == [share], round_
    assert chosen(rule, [[0.5, 0.75, 0.5, 0.25]], steps=2) == [[0, 1]]
    assert chosen(rule, [[0.5, None, 0.5, 0.25]], steps=2, round_=1) == [[0, 2, 3]]
    assert chosen(rule, [[0.5, 0.5]], steps=4) == [[]]
    early, late = rule, Schedule(eps=0.0, late=True)
    for round_ in range(6):
        turn = Turn(np.arange(1), 4, np.array([9]), round_)
        assert (early.ends_after_call(turn), late.ends_after_call(turn)) == (False, round_ == 4)


def test_the_schedules_times_end_at_eps_and_the_last_round_takes_all() -> None:
    turn = Turn(np.arange(1), 4, np.array([9]), 3)
    left = np.array([3])  # the share of a round that were not the last would be 2
    assert Schedule(eps=0.1).quota(turn, left).tolist() == [3]  # type: ignore[union-attr]
    assert chosen(Coins(eps=0.1), [[0.9, None, 0.0]], steps=4, round_=3) == [[0, 2]]
    assert chosen(Coins(eps=0.1), [[0.9, None, 0.0]], steps=4, round_=2) == [[2]]
    assert float(Schedule(eps=0.1).times(turn)[1]) == pytest.approx(0.1)
    assert float(Schedule(eps=0.1).times(turn)[0]) == pytest.approx(0.1 + 0.9 / 4)


def test_a_number_that_all_sequences_share_is_of_their_mean() -> None:
    turn = Turn(np.arange(2), 2, np.array([6, 2]))
    left = np.array([6, 2])
    assert Schedule(eps=0.0).quota(turn, left).tolist() == [3, 1]  # type: ignore[union-attr]
    assert Schedule(eps=0.0, shared=True).quota(turn, left).tolist() == [2, 2]  # type: ignore[union-attr]


def test_coins_fall_below_the_chance() -> None:
    row: Row = [0.5, 0.499, None, 0.0, 0.9]
    assert chosen(Coins(eps=0.0), [row], steps=2) == [[1, 3]]
    assert chosen(Coins(eps=0.0), [row], steps=2, round_=1) == [[0, 1, 3, 4]]
    assert Coins(eps=0.0).quota(turned([row]), np.array([4])) is None


# ---------------------------------------------------------------- the carried threshold


def carried(row: Row, level: float, steps: int) -> list[list[int]]:
    """All rounds of a block, in which the scores stay as they are."""
    rule, left, rounds = Carried(level).begin(turned([row], steps)), list(row), []
    for round_ in range(20):
        if all(one is None for one in left):
            return [*rounds, [rule.extended(turned([row]))]]
        value, view = shown([left])
        turn = turned([row], steps, round_)
        places = rule.choose(value, view, turn, None)[0].nonzero()[:, 0].tolist()
        rounds.append(places)
        for i in places:
            left[i] = None
    raise AssertionError("it never ends")


def test_the_rejected_are_carried_over_and_a_rejection_at_the_end_adds_a_round() -> None:
    """Four masks in two rounds: two candidates, then two and those that were rejected."""
    assert carried([0.9, 0.8, 0.7, 0.6], 0.5, 2) == [[0, 1], [2, 3], [2]]
    # On the limit it passes; below it the best alone does, and the other is carried.
    assert carried([0.9, 0.5, 0.7, 0.6], 0.5, 2) == [[0, 2], [1, 3], [2]]
    assert carried([0.4, 0.3, 0.2, 0.1], 0.5, 2) == [[0], [1], [2], [3], [4]]
    assert carried([0.9, 0.3, 0.8, 0.1], 0.5, 2) == [[0, 2], [1], [3], [3]]
    # Three masks in two rounds are two candidates a round.
    assert carried([0.9, 0.8, 0.7], 0.5, 2) == [[0, 1], [2], [2]]


@settings(max_examples=40)
@given(rows=SIXTEENTHS, level=st.integers(0, 16).map(lambda k: k / 16), steps=st.integers(1, 4))
def test_the_carried_threshold_in_words(rows, level, steps) -> None:
    for row in rows:
        left, base, carry, limit = ranked(row), -(-len(ranked(row)) // steps), 0, steps
        expected: list[list[int]] = []
        while left:
            candidates = left[: base + carry]
            passed = [i for k, i in enumerate(candidates) if k == 0 or row[i] >= level]
            carry = len(candidates) - len(passed)
            if carry and len(expected) >= limit - 1:
                limit, base = limit + 1, 0
            expected.append(sorted(passed))
            left = [i for i in left if i not in passed]
        assert carried(row, level, steps) == [*expected, [limit]]


# ---------------------------------------------------------------- scores and blocks


def test_scores_of_a_law() -> None:
    probs = torch.tensor([[0.5, 0.25, 0.125, 0.125], [0.25, 0.25, 0.25, 0.25]]).double()
    tokens = torch.tensor([1, 3])
    assert SCORES["confidence"](probs, tokens).tolist() == [0.25, 0.25]
    assert SCORES["top"](probs, tokens).tolist() == [0.5, 0.25]
    assert SCORES["margin"](probs, tokens).tolist() == [0.25, 0.0]
    expected = [-1.75 * math.log(2), -math.log(4)]
    assert SCORES["entropy"](probs, tokens).tolist() == pytest.approx(expected, abs=1e-8)
    blind = {kind: Confidence(kind).blind for kind in ("random", "left", "confidence", "entropy")}
    assert blind == {"random": True, "left": True, "confidence": False, "entropy": False}
    where = np.array([[True, False], [False, True]])
    assert scattered(torch.tensor([1.0, 2.0]), where, -1.0).tolist() == [[1, -1], [-1, 2]]
    for kind in (torch.float64, torch.int64):
        assert scattered(torch.tensor([1, 2], dtype=kind), where, -1).dtype == kind


def test_blocks_count_open_positions_and_share_the_steps_out() -> None:
    open_ = np.array([[False, True, True, True, False, True], [True] * 6])
    assert block_numbers(open_, 2).tolist() == [[-1, 0, 0, 1, -1, 1], [0, 0, 1, 1, 2, 2]]
    assert block_steps(7, 3) == [3, 2, 2]
    assert block_steps(6, 3) == [2, 2, 2]
    assert block_steps(1, 3) == [1, 1, 1]


# ---------------------------------------------------------------- what a rule hands on


@pytest.mark.parametrize(
    ("rule", "rank"),
    [
        (Quota("topk"), "topk"),
        (Factor(1.0, "sort"), "sort"),
        (EntropyBound(0.1), "leftmost"),
        (Schedule(eps=0.0, rank="topk"), "topk"),
        (Carried(0.5, "sort"), "sort"),
    ],
)
def test_who_wins_ties_is_said_by_the_rule(rule: Any, rank: str, monkeypatch) -> None:
    ranks: list[str] = []

    def noted(value: torch.Tensor, count: Any, rank: Any) -> torch.Tensor:
        ranks.append(rank)
        return best(value, count, rank)

    monkeypatch.setattr(committing, "best", noted)
    chosen(rule, [[0.5, 0.5, None, 0.25]], steps=2)
    assert ranks == [rank]


def test_a_spread_draws_by_the_scores() -> None:
    """Softmax of the scores over the spread, as many as the schedule says."""
    calls: list[Any] = []

    class Draws:
        def pick(self, *given: Any) -> str:
            calls.append(given)
            return "picked"

    rows: list[Row] = [[0.5, 0.25, None, 0.75], [0.5, 0.5, 0.5, 0.5]]
    value, view = shown(rows)
    found = Schedule(eps=0.0, spread=0.5).choose(value, view, turned(rows, 2), Draws())  # type: ignore[arg-type]
    assert found == "picked"
    [(seen, weights, count)] = calls
    assert seen is view
    expected = [[math.exp(2 * one) if one is not None else 0.0 for one in row] for row in rows]
    shares = [[one / sum(row) for one in row] for row in expected]
    assert weights.tolist() == [pytest.approx(row) for row in shares]
    assert count.tolist() == [1, 2]


def test_the_first_round_of_a_carried_threshold_needs_no_beginning() -> None:
    rows: list[Row] = [[0.9, 0.3, 0.8, 0.1], [0.4, 0.3, 0.2, 0.1]]
    assert chosen(Carried(0.5), rows, steps=2) == [[0, 2], [0]]
    assert chosen(Carried(0.5), rows, steps=4) == [[0], [0]]
