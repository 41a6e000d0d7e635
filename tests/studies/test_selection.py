"""The two rules on tables whose answer is plain."""

from __future__ import annotations

import pytest

from strop.errors import UserError
from strop.studies.selection import STANDARD, Measured, Setting, select

SHARP, SHARPER = Setting(0.9, "float32"), Setting(0.85, "float32")


def table(perplexity: dict[Setting, list[float]], failing: set[tuple[int, Setting]] = frozenset()):  # type: ignore[assignment]
    return [
        Measured(steps, setting, value, (steps, setting) not in failing)
        for setting, row in perplexity.items()
        for steps, value in zip((4, 16, 64), row, strict=True)
    ]


FULL = {STANDARD: [400.0, 200.0, 100.0], SHARP: [200.0, 90.0, 50.0], SHARPER: [150.0, 60.0, 40.0]}


def test_the_frozen_rule_takes_one_setting_that_passes_at_most_budgets() -> None:
    assert {p.setting for p in select("frozen", table(FULL)).picks} == {SHARPER}
    one = select("frozen", table(FULL, {(4, SHARPER)}))
    assert [p.setting for p in one.picks] == [SHARPER] * 3
    assert [p.passes for p in one.picks] == [False, True, True]
    two = select("frozen", table(FULL, {(4, SHARPER), (16, SHARPER)}))
    assert {p.setting for p in two.picks} == {SHARP}


def test_half_of_the_budgets_is_not_most() -> None:
    rows = [m for m in table(FULL, {(4, SHARPER)}) if m.steps < 64]
    assert {p.setting for p in select("frozen", rows).picks} == {SHARP}


def test_the_frozen_rule_weighs_budgets_by_ratio() -> None:
    # The arithmetic mean would choose the other: 200 saved at one budget, a factor 4 at the next.
    rows = table({STANDARD: [1000.0, 10.0, 10.0], SHARP: [1200.0, 5.0, 5.0]})
    assert select("frozen", rows).picks[0].setting == SHARP


def test_per_budget_looks_at_each_budget_alone() -> None:
    chosen = select("per-budget", table(FULL, {(4, SHARPER), (16, SHARPER), (16, SHARP)}))
    assert [p.setting for p in chosen.picks] == [SHARP, STANDARD, SHARPER]
    assert all(p.passes for p in chosen.picks)


def test_a_pick_at_the_edge_says_so() -> None:
    wide = {**FULL, Setting(0.8, "float32"): [500.0, 500.0, 500.0]}
    assert select("frozen", table(FULL)).picks[0].at_edge == (
        "0.85 is the lowest temperature tried in float32",
    )
    assert select("frozen", table(wide)).picks[0].at_edge == ()


def test_the_search_budget_is_counted_and_the_hash_follows_the_choice() -> None:
    one, two = select("frozen", table(FULL)), select("per-budget", table(FULL))
    assert (one.candidates, one.cells) == (3, 9)
    assert one.sha256 == select("frozen", table(FULL)[::-1]).sha256 != two.sha256


def test_what_cannot_be_chosen_from() -> None:
    with pytest.raises(UserError, match="full table"):
        select("frozen", table(FULL)[1:])
    with pytest.raises(UserError, match="full table"):
        select("frozen", [])
    with pytest.raises(UserError, match="selection rule"):
        select("best", table(FULL))
    everything = {(m, s) for m in (4, 16, 64) for s in FULL}
    for rule in ("frozen", "per-budget"):
        with pytest.raises(UserError, match="guard"):
            select(rule, table(FULL, everything))
