from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_judgments import group, random_verdicts

from ged_formula import ged_of_counts
from strop.groupeval.scores import (
    by_cell,
    diagnose,
    factors,
    ged,
    group_ged,
    mode_counts,
    quality,
    saturation,
)
from strop.groupeval.verdict import Grade, GroupVerdict

PATTERNS = {
    "AAAAAAAA": 0,
    "AAAAAAAB": 1.811881,
    "AAAABBBB": 10 / 3,
    "ABCDEFGH": 10,
    "ABCDxxxx": 10 / 3,
    "xxxxxxxx": 0,
    "Axxxxxxx": 0,
    "AAxxxxxx": 0,
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_known_patterns(pattern: str) -> None:
    assert group_ged(group(pattern)) == pytest.approx(PATTERNS[pattern], abs=5e-7)


def partitions(total: int, largest: int | None = None) -> list[list[int]]:
    """All ways to write a number as a sum of mode counts."""
    if total == 0:
        return [[]]
    top = min(total, largest or total)
    return [[k, *rest] for k in range(top, 0, -1) for rest in partitions(total - k, k)]


def pattern_of(counts: list[int], size: int) -> str:
    letters = "".join(chr(65 + k) * count for k, count in enumerate(counts))
    return letters + "x" * (size - len(letters))


@pytest.mark.parametrize("size", range(2, 9))
def test_every_group_up_to_eight(size: int) -> None:
    """Count form and definition agree; merging modes or invalidating never raises GED."""
    for valid in range(size + 1):
        for counts in partitions(valid):
            score = ged_of_counts(counts, size)
            assert score == pytest.approx(group_ged(group(pattern_of(counts, size))), abs=1e-12)
            assert 0 <= score <= 10
            assert (score == 10) == (len(counts) == size)
            for i in range(len(counts)):
                fewer = [c - (k == i) for k, c in enumerate(counts)]
                assert ged_of_counts([c for c in fewer if c], size) <= score + 1e-12
                for j in range(i):
                    rest = [c for k, c in enumerate(counts) if k not in (i, j)]
                    merged = ged_of_counts([*rest, counts[i] + counts[j]], size)
                    assert merged < score + 1e-12
                    # Merging is a strict loss as long as both modes hold something.
                    assert merged < score


@given(st.lists(st.sampled_from("ABCDEx"), min_size=2, max_size=16), st.randoms())
def test_order_and_names_do_not_matter(letters: list[str], random: object) -> None:
    score = group_ged(group("".join(letters)))
    renamed = [letter if letter == "x" else f"mode {ord(letter) * 7 % 11}" for letter in letters]
    outputs = [
        Grade(
            i, mode != "x", (1, 1, 1, 1) if mode != "x" else (0,) * 4, None if mode == "x" else mode
        )
        for i, mode in enumerate(renamed)
    ]
    random.shuffle(outputs)  # type: ignore[attr-defined]
    assert group_ged(GroupVerdict("c", 0, 0, tuple(outputs), "low")) == pytest.approx(
        score, abs=1e-12
    )
    assert score == pytest.approx(
        ged_of_counts(mode_counts(group("".join(letters)).outputs), len(letters)), abs=1e-12
    )


@given(st.lists(st.integers(0, 2), min_size=4, max_size=4))
def test_quality_is_the_rubric_total_on_ten(scores: list[int]) -> None:
    assert quality(Grade(0, True, tuple(scores), "a")) == pytest.approx(1.25 * sum(scores))


def test_geq_counts_each_output_once() -> None:
    cell = by_cell(random_verdicts(1))["cell"]
    assert cell.geq() == pytest.approx(cell.q.mean())
    assert cell.geq() == pytest.approx(
        1.25 * sum(diagnose(cell, modes=True)["dimension_means"])
    )  # complete: the same contexts behind both
    # One group of the second partition is missing: its outputs count once, not half.
    part = by_cell(random_verdicts(1)[:-1])["cell"]
    by_hand = [row[mask].mean() for row, mask in zip(part.q, part.judged, strict=True)]
    assert part.geq() == pytest.approx(sum(by_hand) / len(by_hand))
    assert part.geq() != pytest.approx(part.q[part.judged].mean(), abs=1e-9)


def test_diagnostics_by_hand() -> None:
    verdicts = [
        group("AAAABBxx", first=0, number=0),
        group("ABCDEFGH", first=8, number=1, confidence="low"),
        group("ABCDExxx", first=16, number=2),
        group("Axxxxxxx", first=24, number=3),
        group("xxxxxxxx", first=32, number=4),
    ]
    told = diagnose(by_cell(verdicts)["cell"], modes=True)
    assert told["valid_share"] == 20 / 40
    one = -(4 / 6) * math.log(4 / 6) - (2 / 6) * math.log(2 / 6)
    assert told["mode_entropy"] == pytest.approx((one + math.log(8) + math.log(5) + 0) / 4)
    # ordered pairs of valid outputs of one group: 30, 56, 20, none, none; apart: 16, 56, 20
    assert told["different_pairs"] == pytest.approx(92 / 106)
    spread = -(4 / 6) * math.log(4 / 6) - (2 / 6) * math.log(2 / 6)
    assert told["effective_modes"] == pytest.approx((math.exp(spread) + 8 + 5 + 1 + 0) / 5)
    assert told["dominant_share"] == pytest.approx((4 / 6 + 1 / 8 + 1 / 5 + 1) / 4)
    assert told["singleton_rate"] == 2 / 5
    assert told["ceiling_rate"] == 1 / 5
    assert told["invalid_rate"] == 20 / 40
    assert told["severe_degeneration_rate"] == 20 / 40
    assert told["hybrid_rate"] == 0
    assert told["non_high_confidence_rate"] == 1 / 5
    assert told["dimension_means"] == [1, 0.5, 0.5, 1]
    assert told["quality_p10"] == 0
    assert told["bottom_quartile_quality"] == 0


def test_diagnostics_of_few_outputs_and_of_a_profile_without_modes() -> None:
    cell = by_cell([group("ABxx"), group("AAAA", number=1, first=4)])["cell"]
    told, without = (diagnose(cell, modes=modes) for modes in (True, False))
    assert told["severe_degeneration_rate"] == told["invalid_rate"] == 2 / 8
    assert told["singleton_rate"] == 1 / 2  # two that differ are enough
    assert told["ceiling_rate"] == 0
    of_modes = ("mode_entropy", "different_pairs", "effective_modes", "dominant_share")
    of_modes += ("hybrid_rate", "singleton_rate", "ceiling_rate")
    assert without == {**told, **dict.fromkeys(of_modes)}
    assert None not in [told[name] for name in of_modes]


def test_no_valid_output_at_all() -> None:
    cell = by_cell([group("xxxx"), group("xxxx", number=1, first=4)])["cell"]
    told = diagnose(cell, modes=True)
    assert (cell.geq(), ged(cell)) == (0, 0)
    assert told["invalid_rate"] == 1
    assert (told["valid_share"], told["mode_entropy"], told["different_pairs"]) == (0, None, None)
    assert told["effective_modes"] == 0
    assert told["dominant_share"] is None
    assert told["hybrid_rate"] is None
    assert (told["singleton_rate"], told["ceiling_rate"]) == (0, 0)


def test_which_factor_of_diversity_moved() -> None:
    """GED is the same of half as many valid outputs and of half as many modes; factors are not."""
    fewer, alike = ([group(pattern)] for pattern in ("ABCDxxxx", "AAAABBBB"))
    assert ged(by_cell(fewer)["cell"]) == pytest.approx(ged(by_cell(alike)["cell"]))
    assert factors(fewer) == pytest.approx(
        {"valid_share": 0.5, "mode_entropy": math.log(4), "different_pairs": 1.0}
    )
    assert factors(alike) == pytest.approx(
        {"valid_share": 1.0, "mode_entropy": math.log(2), "different_pairs": 32 / 56}
    )
    assert factors(alike, modes=False) == {**dict.fromkeys(factors(alike)), "valid_share": 1.0}
    # of one law, the share of pairs apart is the same in groups of any size; entropy grows
    pairs = [factors([group(p, number=k) for k, p in enumerate(some)]) for some in (
        ("AA", "AB", "BA", "BB"), [f"{a}{b}{c}" for a in "AB" for b in "AB" for c in "AB"]
    )]  # fmt: skip
    assert pairs[0]["different_pairs"] == pairs[1]["different_pairs"] == 0.5
    assert pairs[0]["mode_entropy"] < pairs[1]["mode_entropy"]


def test_bottom_quartile_is_the_mean_of_the_lowest_quarter() -> None:
    grades = [Grade(i, True, (s, s, s, s), "a") for i, s in enumerate((0, 1, 1, 1, 2, 2, 2, 2))]
    told = diagnose(by_cell([GroupVerdict("c", 0, 0, tuple(grades), "high")])["c"], modes=True)
    assert told["bottom_quartile_quality"] == pytest.approx(2.5)  # outputs 0 and 5
    assert told["quality_p10"] == pytest.approx(3.5)  # 0.7 of the way from 0 to 5


def test_saturation_by_counting() -> None:
    """All ways to draw 3 of 4 modes: 24 of 64 differ."""
    assert saturation(3, 4) == pytest.approx((24 / 64, 1 - 3 / 4))
    assert saturation(8, 7) == (0.0, 0.0)
    for modes in (8, 30, 100, 1000):
        chance, bound = saturation(8, modes)
        assert chance >= bound
