"""The rules on tables whose answer is plain, and on the paper's own grids."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from strop.errors import UserError
from strop.measure.guard import Guard
from strop.spec import OperatingPoint, SamplerSpec
from strop.stats.interval import Interval
from strop.store.folder import SELECTION
from strop.tuning.gain import (
    RULES,
    Candidate,
    Choice,
    choose,
    hashed,
    select,
    write_selection,
)
from strop.tuning.race import Limit
from strop.verbs import paper


def point(temperature: float, precision: str = "float64", **more: object) -> OperatingPoint:
    spec = SamplerSpec(temperature=temperature, precision=precision, **more)  # type: ignore[arg-type]
    return OperatingPoint.of(spec)


STANDARD, SHARP, SHARPER = point(1.0), point(0.9, "float32"), point(0.85, "float32")


def table(
    perplexity: dict[OperatingPoint, list[float]],
    failing: set[tuple[int, OperatingPoint]] = frozenset(),  # type: ignore[assignment]
) -> list[Candidate]:
    # Entropy falls with perplexity here, as it does when a sampler is sharpened.
    return [
        Candidate(steps, one, value, value**0.1, (steps, one) not in failing)
        for one, row in perplexity.items()
        for steps, value in zip((4, 16, 64), row, strict=True)
    ]


FULL = {STANDARD: [400.0, 200.0, 100.0], SHARP: [200.0, 90.0, 50.0], SHARPER: [150.0, 60.0, 40.0]}


@pytest.mark.parametrize("rule", ["frozen", "sharpest"])
def test_one_setting_for_all_budgets_passes_at_most_of_them(rule: str) -> None:
    assert {p.point for p in select(table(FULL), rule).choices} == {SHARPER}
    one = select(table(FULL, {(4, SHARPER)}), rule)
    assert [p.point for p in one.choices] == [SHARPER] * 3
    assert [p.passes for p in one.choices] == [False, True, True]
    two = select(table(FULL, {(4, SHARPER), (16, SHARPER)}), rule)
    assert {p.point for p in two.choices} == {SHARP}


def test_half_of_the_budgets_is_not_most() -> None:
    rows = [m for m in table(FULL, {(4, SHARPER)}) if m.steps < 64]
    assert {p.point for p in select(rows, "frozen").choices} == {SHARP}


def test_the_frozen_rule_weighs_budgets_by_ratio_and_sharpest_by_entropy() -> None:
    # The arithmetic mean would choose the other: 200 saved at one budget, a factor 4 at the next.
    rows = table({STANDARD: [1000.0, 10.0, 10.0], SHARP: [1200.0, 5.0, 5.0]})
    assert select(rows, "frozen").choices[0].point == SHARP
    flat = [Candidate(4, STANDARD, 50.0, 4.0, True), Candidate(4, SHARP, 60.0, 3.9, True)]
    assert select(flat, "frozen").choices[0].point == STANDARD
    assert select(flat, "sharpest").choices[0].point == SHARP


@pytest.mark.parametrize("rule", RULES)
def test_a_row_counts_by_its_perplexity_its_entropy_and_its_side_of_the_guard(rule: str) -> None:
    """Without entropy it is the sharpest of all; without a verdict it passes."""
    said = [
        (STANDARD, 50.0, 0.5, "above"),
        (SHARP, 60.0, None, None),
        (SHARPER, 40.0, 0.1, "undecided"),
        (point(0.7), 30.0, 0.05, "below"),
    ]
    guard = Guard(8, 5.0, "mine")
    frame: list[Any] = [
        SimpleNamespace(
            steps=4,
            point=one,
            perplexity=lambda value=value: Interval(value),
            entropy=None if entropy is None else Interval(entropy),
            verdict=verdict,
            guard=guard,
        )
        for one, value, entropy, verdict in said
    ]
    expected = [
        Candidate(4, one, value, entropy or 0.0, verdict in ("above", None))
        for one, value, entropy, verdict in said
    ]
    assert choose(frame, rule) == select(expected, rule, (Limit("entropy", ">=", 5.0),))
    assert choose(frame, rule).choices[0].point == (SHARP if rule == "sharpest" else STANDARD)


def test_per_budget_looks_at_each_budget_alone() -> None:
    chosen = select(table(FULL, {(4, SHARPER), (16, SHARPER), (16, SHARP)}), "per-budget")
    assert [p.point for p in chosen.choices] == [SHARP, STANDARD, SHARPER]
    assert all(p.passes for p in chosen.choices)


def test_a_pick_at_the_edge_says_so() -> None:
    wide = {**FULL, point(0.8, "float32"): [500.0, 500.0, 500.0]}
    assert select(table(FULL), "frozen").choices[0].edges == (
        "0.85 is the lowest temperature tried in float32",
    )
    assert select(table(wide), "frozen").choices[0].edges == ()
    etas = {point(1.0, name="remdm-cap", eta=eta): [100.0 / eta] * 3 for eta in (0.01, 0.02)}
    assert select(table(etas), "frozen").choices[0].edges == (
        "0.02 is the highest eta tried in float64",
    )


def test_the_search_budget_is_counted_and_the_hash_follows_the_choice() -> None:
    one, two = select(table(FULL), "frozen"), select(table(FULL), "per-budget")
    assert (one.candidates, one.cells) == (3, 9)
    again = select(table(FULL)[::-1], "frozen")
    first, same, other = (hashed(found.document())["sha256"] for found in (one, again, two))
    assert first == same != other


def test_what_cannot_be_chosen_from() -> None:
    with pytest.raises(UserError, match="full table"):
        select(table(FULL)[1:], "frozen")
    with pytest.raises(UserError, match="full table"):
        select([], "frozen")
    with pytest.raises(UserError, match="selection rule"):
        select(table(FULL), "best")
    everything = {(m, s) for m in (4, 16, 64) for s in FULL}
    for rule in RULES:
        with pytest.raises(UserError, match="guard"):
            select(table(FULL, everything), rule)


@pytest.mark.parametrize(
    ("grid", "passing"),
    [("grid-small-late", 8), ("grid-small-early", 9), ("grid-tiny-late", 8)],
)
def test_on_the_papers_own_grids_both_rules_choose_another_setting_than_the_paper(
    grid: str, passing: int
) -> None:
    rows = [
        Candidate(
            row["steps"],
            point(row["temperature"], row["precision"]),
            row["perplexity"],
            row["entropy"],
            not row["below_guard"],
        )
        for row in paper.table(grid).records()
    ]
    for rule in ("frozen", "sharpest"):
        chosen = select(rows, rule)
        assert {str(pick.point) for pick in chosen.choices} == {"(0.85, float64)"}
        assert sum(pick.passes for pick in chosen.choices) == passing
        assert len(chosen.choices) == 11


def test_a_selection_as_it_is_written() -> None:
    limit = Limit("entropy", ">=", 3.0)
    found = select(table(FULL, {(4, SHARPER)}), "frozen", (limit,))
    first = found.choices[0]
    assert [(one.budget, one.steps) for one in found.choices] == [
        ("M = 4", 4),
        ("M = 16", 16),
        ("M = 64", 64),
    ]
    assert (first.holds, first.limits) == (True, (limit,))
    assert first.sampler == SHARPER.at(4)
    edge = "0.85 is the lowest temperature tried in float32"
    pick = {"point": str(SHARPER), "sampler": SHARPER.fields(), "at_edge": [edge]}
    assert found.document() == {
        "rule": "frozen",
        "picks": [{"steps": m, **pick, "passes": m > 4} for m in (4, 16, 64)],
        "candidates": 3,
        "cells": 9,
    }
    plain = Choice("M = 4", 4, STANDARD)
    assert (plain.holds, plain.passes, plain.edges, plain.limits) == (True, True, (), ())


def test_keeping_everything_is_no_edge() -> None:
    """A top_p of 1 is the highest that there can be, whatever was tried."""

    def tried(*values: float) -> dict[OperatingPoint, list[float]]:
        points = [point(1.0, name="ancestral-remdm", top_p=one) for one in values]
        return dict(zip(points, ([100.0] * 3, [300.0] * 3), strict=True))

    assert select(table(tried(1.0, 0.9)), "frozen").choices[0].edges == ()
    assert select(table(tried(0.9, 1.0)), "frozen").choices[0].edges == (
        "0.9 is the lowest top_p tried in float64",
    )
    assert select(table(tried(0.9, 0.8)), "frozen").choices[0].edges == (
        "0.9 is the highest top_p tried in float64",
    )


def test_choices_are_hashed_and_earlier_ones_stay_on_record(tmp_path: Path) -> None:
    names = ("frozen", "sharpest")
    one, two = ({m: hashed({"rule": name, "at": m}) for m in "ab"} for name in names)
    text = '{"at":"a","rule":"frozen"}'
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert one["a"] == {"sha256": digest, "rule": "frozen", "at": "a"}
    path = tmp_path / SELECTION

    def earlier() -> list:
        return json.loads(path.read_text())["earlier"]

    digest = write_selection(tmp_path, one)
    both = one["a"]["sha256"] + one["b"]["sha256"]
    assert digest == hashlib.sha256(both.encode()).hexdigest()
    assert json.loads(path.read_text()) == {"sha256": digest, "selections": one, "earlier": []}
    assert write_selection(tmp_path, one) == digest
    assert earlier() == []
    assert write_selection(tmp_path, two) != digest
    assert earlier() == [one]
    assert write_selection(tmp_path, one) == digest
    assert earlier() == [one, two]
    path.write_text("{}")
    with pytest.raises(UserError, match="damaged"):
        write_selection(tmp_path, one)
