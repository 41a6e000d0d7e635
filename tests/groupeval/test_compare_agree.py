from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_judgments import group, random_verdicts, write

from strop.errors import UserError
from strop.groupeval.bootstrap import compare, score
from strop.groupeval.judgments import Judgments, load_judgments
from strop.groupeval.scores import PlannedGroups
from strop.groupeval.trust import (
    adjusted_rand,
    agree,
    alpha,
    common,
    mode_agreement,
    rank_correlation,
    repeat_noise,
    spearman,
)
from strop.groupeval.verdict import Grade, GroupVerdict
from strop.spec import JudgeSpec
from strop.stats.interval import value_of


def judgments(verdicts: list[GroupVerdict], source: str = "x", **known: object) -> Judgments:
    planned = {j.cell: PlannedGroups(24, 12, 2) for j in verdicts}
    return Judgments(source, verdicts, [], planned, False, True, **known)  # type: ignore[arg-type]


def test_difference_and_its_interval() -> None:
    """48 outputs of mean quality 2.1 and 6.4: the interval is far from zero and near the truth."""
    poor = judgments(random_verdicts(1, cell="poor", best=0.25, outputs=48), "a")
    good = judgments(random_verdicts(2, cell="good", best=0.75, outputs=48), "b")
    (row,) = compare(poor, good)["pairs"]
    gap, (low, high) = row["geq_difference"].value, row["geq_difference"].ends
    assert gap == pytest.approx(row["geq_b"] - row["geq_a"])
    assert low < gap < high
    assert 0 < low < 0.85 * 5 < high
    assert row["geq_interval_excludes_zero"]
    assert row["ged_difference"] == row["ged_b"] - row["ged_a"]
    assert not any("ged" in key and "interval" in key for key in row)  # GED has none
    (back,) = compare(good, poor)["pairs"]
    assert back["geq_difference"].value == -gap


def test_equal_cells_do_not_differ() -> None:
    """Negative control: two pools of one law, ten times; at most two intervals exclude zero.

    With 95% intervals three or more of ten happen with probability 0.012.
    """
    wrong = 0
    for seed in range(10):
        a = judgments(random_verdicts(100 + seed, outputs=48), "a")
        b = judgments(random_verdicts(200 + seed, outputs=48), "b")
        wrong += compare(a, b)["pairs"][0]["geq_interval_excludes_zero"]
    assert wrong <= 2


def sparse(seed: int, valid: float, outputs: int = 40) -> list[GroupVerdict]:
    """Every output alike in both partitions: above zero with this chance, and zero otherwise."""
    rng = random.Random(seed)
    marks = "".join("a" if rng.random() < valid else "x" for _ in range(outputs))
    return [
        group(marks[first : first + 8], partition=partition, number=first // 8, first=first)
        for partition in (0, 1)
        for first in range(0, outputs, 8)
    ]


def test_one_valid_text_against_none_is_no_difference() -> None:
    nothing = [group("x" * 8, partition=p, number=g, first=8 * g) for p in (0, 1) for g in range(5)]
    one = [
        group("a" + "x" * 7, partition=p) if j.group == 0 else j
        for p in (0, 1)
        for j in nothing
        if j.partition == p
    ]
    (row,) = compare(judgments(nothing, "a"), judgments(one, "b"))["pairs"]
    assert not row["geq_difference"].excludes(0)
    assert not row["geq_interval_excludes_zero"]
    assert (row["n_outputs_above_0_a"], row["n_outputs_above_0_b"]) == (0, 1)
    assert row["geq_interval_mind"] == "only 0 outputs above 0: too narrow"


def test_null_pairs_at_the_floor_are_not_told_apart() -> None:
    """100 null pairs of 40 texts, 5% of them valid, with and without the rule of the floor.

    At most 10: a rate of 5% is above that with probability .01. Percentiles of the bootstrap told
    26 of 100 apart without the rule.
    """
    bare = told = 0
    for seed in range(100):
        a, b = sparse(2 * seed, 0.05), sparse(2 * seed + 1, 0.05)
        (row,) = compare(judgments(a, "a"), judgments(b, "b"))["pairs"]
        bare += row["geq_difference"].excludes(0)
        told += row["geq_interval_excludes_zero"]
    assert bare <= 10
    assert told <= bare


def test_a_single_group_has_no_interval() -> None:
    """Nothing tells how much of its values is the judge's mood."""
    one = random_verdicts(1, outputs=8, size=8, partitions=1)
    cell = score(judgments(one), replicates=10)["cells"]["cell"]
    assert (cell["geq"].low, cell["geq"].high, cell["geq_variance"]) == (None, None, None)
    (row,) = compare(judgments(one, "a"), judgments(random_verdicts(2, size=8), "b"))["pairs"]
    assert not row["geq_difference"].bounded
    assert not row["geq_interval_excludes_zero"]
    two = score(judgments(random_verdicts(1, outputs=16, size=8)), replicates=10)["cells"]["cell"]
    assert two["geq"].bounded
    assert set(two["geq_variance"]) == {"output", "group", "rest"}


def test_refusals() -> None:
    judge = JudgeSpec(kind="test", model="m")
    warmer = judge.model_copy(update={"settings": {"temperature": 1}})
    one = judgments(random_verdicts(1), "a", profile="p" * 64, judge=judge)
    other = dataclasses.replace(one, source="b")
    assert compare(one, other)["unchecked"] == []
    with pytest.raises(UserError, match="profiles differ"):
        compare(one, dataclasses.replace(other, profile="q" * 64))
    with pytest.raises(UserError, match="judges differ"):
        compare(one, dataclasses.replace(other, judge=warmer))
    with pytest.raises(UserError, match="profiles differ"):
        compare(one, dataclasses.replace(other, modes=False))
    with pytest.raises(UserError, match="group sizes differ"):
        compare(one, judgments(random_verdicts(1, size=8), "b"))
    with pytest.raises(UserError, match="the same"):
        compare(one, one)
    with pytest.raises(UserError, match="no accepted judgment"):
        compare(one, dataclasses.replace(other, verdicts=[]))
    two = [*random_verdicts(1, cell="c"), *random_verdicts(1, cell="d")]
    with pytest.raises(UserError, match="no cell in common"):
        compare(one, judgments(two, "b"))
    file = judgments(random_verdicts(3), "f")
    assert compare(one, file)["unchecked"] == ["profile", "judge"]


def test_names_of_judgments(tmp_path: Path) -> None:
    verdicts = [*random_verdicts(1, cell="a:b"), *random_verdicts(2, cell="c")]
    path = write(tmp_path / "with:colon@x.jsonl", verdicts)
    assert set(load_judgments(str(path)).planned) == {"a:b", "c"}
    assert set(load_judgments(f"{path}:a:b").planned) == {"a:b"}
    with pytest.raises(UserError, match="no cell called"):
        load_judgments(f"{path}:d")
    with pytest.raises(UserError, match="no such file"):
        load_judgments(str(tmp_path / "absent.jsonl:d"))


def test_bounds_hold_whatever_is_missing() -> None:
    """Leave groups out; the bounds hold the whole cell's scores, and are tight with none out."""
    whole = random_verdicts(4)
    truth = score(judgments(whole), replicates=10)["cells"]["cell"]
    assert truth["geq_bounds"] == pytest.approx([truth["geq"].value] * 2)
    assert truth["ged_bounds"] == pytest.approx([truth["ged"]] * 2)
    for seed in range(20):
        kept = random.Random(seed).sample(whole, 1 + seed % 11)
        told = score(judgments(kept), replicates=10)["cells"]["cell"]
        for name in ("geq", "ged"):
            low, high = told[f"{name}_bounds"]
            assert 0 <= low <= value_of(truth[name]) <= high <= 10
        assert (told["n_groups"], told["n_groups_asked"]) == (len(kept), 12)


def test_a_cell_without_verdicts_is_open_not_zero() -> None:
    told = score(dataclasses.replace(judgments(random_verdicts(1)), verdicts=[]), replicates=10)
    cell = told["cells"]["cell"]
    assert cell["geq"] is None
    assert cell["ged"] is None
    assert cell["geq_bounds"] == cell["ged_bounds"] == [0, 10]


def test_alpha_and_rand_against_known_values() -> None:
    # Krippendorff (2011), nominal data without missing values: 10 units, two judges, 0.095.
    a = [0, 1, 0, 0, 0, 0, 0, 0, 1, 0]
    b = [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    assert alpha(list(zip(a, b, strict=True)), "nominal") == pytest.approx(0.095, abs=5e-4)
    assert alpha([[2, 2], [2, 2]], "ordinal") is None
    assert adjusted_rand([("aabb", "xxyy")]) == 1
    # No pair together under both, 2 of 6 under each: (0 - 2/3) / (2 - 2/3).
    assert adjusted_rand([("1122", "1212")]) == pytest.approx(-0.5)
    assert adjusted_rand([("abcd", "wxyz")]) is None  # nothing together: nothing to agree on
    assert adjusted_rand([]) is None


def _by_pairs(groups: Sequence[tuple[str, str]]) -> float | None:
    """The same index from the definition, pair by pair."""
    t = e = m = 0.0
    for a, b in groups:
        pairs = [(i, j) for i in range(len(a)) for j in range(i)]
        together = [[x[i] == x[j] for i, j in pairs] for x in (a, b)]
        if pairs:
            t += sum(p and q for p, q in zip(*together, strict=True))
            e += sum(together[0]) * sum(together[1]) / len(pairs)
            m += (sum(together[0]) + sum(together[1])) / 2
    return None if abs(m - e) < 1e-9 else (t - e) / (m - e)


LABELS = st.integers(0, 6).flatmap(
    lambda n: st.tuples(*[st.text("abc", min_size=n, max_size=n)] * 2)
)


@given(st.lists(LABELS, max_size=5))
def test_adjusted_rand_counts_pairs(groups: list[tuple[str, str]]) -> None:
    assert adjusted_rand(groups) == pytest.approx(_by_pairs(groups))
    swapped = [(b, a) for a, b in groups]
    assert adjusted_rand(swapped) == pytest.approx(adjusted_rand(groups))
    share = mode_agreement(groups)["pairs_agreed"]
    assert share is None or 0 <= share <= 1


def test_agreement_of_a_judge_with_itself_renamed_and_with_chance() -> None:
    one = random_verdicts(7, outputs=240, size=8)
    renamed = [_renamed(verdict, "xyzuv") for verdict in one]
    told = agree([judgments(one, "a"), judgments(renamed, "b")])
    assert set(told["alpha"].values()) == {1.0}
    assert told["modes"][0]["adjusted_rand"] == 1
    # Grades of other outputs in their place: nothing in common but chance. 480 graded outputs
    # know an alpha of 0 to about 0.05, 1,200 pairs an index of 0 to about 0.03.
    dealt = _dealt(one, random.Random(1))
    told = agree([judgments(one, "a"), judgments(dealt, "b")])
    assert abs(told["alpha"]["quality"]) < 0.15
    assert abs(told["modes"][0]["adjusted_rand"]) < 0.1
    assert told["rank_correlations"][0]["geq"] is None  # one cell has no rank


@pytest.mark.parametrize("first", [True, False])
def test_what_either_judgment_calls_invalid_is_in_no_pair(first: bool) -> None:
    good = [Grade(i, True, (1, 1, 1, 1), mode) for i, mode in enumerate("aabb")]
    bad = [*good[:3], Grade(3, False, (0, 0, 0, 0), None)]
    pair = [[GroupVerdict("c", 0, 0, tuple(one), "high")] for one in (good, bad)]
    modes = repeat_noise(*(pair if first else pair[::-1]), modes=True)["modes"]
    assert (modes["n_pairs"], modes["n_pairs_together_a"], modes["adjusted_rand"]) == (3, 1, 1)


def _renamed(verdict: GroupVerdict, names: str) -> GroupVerdict:
    new = {old: names[i] for i, old in enumerate("abcde")}
    outputs = [
        dataclasses.replace(one, mode=new[one.mode] if one.mode else None)
        for one in reversed(verdict.outputs)
    ]
    return dataclasses.replace(verdict, outputs=tuple(outputs))


def _dealt(verdicts: list[GroupVerdict], rng: random.Random) -> list[GroupVerdict]:
    """The same groups with all grades dealt out anew."""
    grades = [one for verdict in verdicts for one in verdict.outputs]
    rng.shuffle(grades)
    deck = iter(grades)
    return [
        dataclasses.replace(
            verdict,
            outputs=tuple(dataclasses.replace(next(deck), index=o.index) for o in verdict.outputs),
        )
        for verdict in verdicts
    ]


def test_ranks_are_taken_from_the_groups_that_all_have_judged() -> None:
    """A judge that has half of the groups is compared on that half, not with the whole."""
    differ = 0
    for seed in range(20):
        cells = [random_verdicts(10 * seed + c, cell=f"c{c}") for c in range(5)]
        whole = [one for cell in cells for one in cell]
        other = _dealt(whole, random.Random(seed))
        some = random.Random(seed).sample(range(len(whole)), len(whole) // 2)
        half = [other[i] for i in sorted(some)]
        (row,) = agree([judgments(whole, "a"), judgments(half, "b")])["rank_correlations"]
        same = judgments([whole[i] for i in sorted(some)], "a")
        assert row == {"a": "a", "b": "b", **rank_correlation(same, judgments(half, "b"))}
        differ += row["geq"] != rank_correlation(judgments(whole), judgments(half))["geq"]
    assert differ > 10  # it matters


def test_ratings_of_single_outputs_are_held_against_the_first_group_of_each() -> None:
    """Two generators in two partitions; the person rated three outputs of each, the last first."""
    verdicts = [one for cell in "xy" for one in random_verdicts(ord(cell), cell=cell)]
    first = {
        (one.cell, grade.index): grade
        for one in sorted(verdicts, key=lambda one: -one.partition)
        for grade in one.outputs
    }
    rated = [
        GroupVerdict(cell, 0, i, (Grade(i, True, (value,) * 4, None),), "high")
        for cell, i, value in (("y", 5, 1), ("y", 2, 0), ("x", 1, 2), ("x", 0, 1), ("x", 7, 0))
    ]
    asked = [judgments(verdicts, "judge"), replace(judgments(rated, "person"), modes=False)]
    for sides in (asked, asked[::-1]):
        ours = common(sides)
        assert [list(one.planned) for one in ours] == 2 * [
            ["x", "y"] if sides is asked else ["y", "x"]
        ]
        found = {one.source: one for one in ours}
        keys = {(v.cell, v.partition, v.group) for v in found["judge"].verdicts}
        assert keys == {(v.cell, 0, v.group) for v in rated}
        for verdict in found["judge"].verdicts:
            [grade] = verdict.outputs
            assert grade.scores == first[verdict.cell, verdict.group].scores
            assert grade.mode is None
        told = agree(sides)
        assert (told["n_outputs"], told["modes"]) == (5, None)
        totals = [[sum(one.outputs[0].scores) for one in found[name].verdicts] for name in found]
        assert told["alpha"]["quality"] == pytest.approx(alpha(np.array(totals).T, "interval"))
    # Groups of one from a plan keep their own numbers: nothing is made of them.
    whole = [replace(one, from_plan=True) for one in asked]
    with pytest.raises(UserError):
        agree(whole)


def test_agreement_needs_the_same_groups() -> None:
    one = judgments(random_verdicts(1), "a")
    with pytest.raises(UserError, match="same groups"):
        agree([one, judgments(random_verdicts(2), "b")])
    with pytest.raises(UserError, match="no group"):
        agree([one, judgments([group("abcd", cell="other")], "b")])


def test_ranks() -> None:
    assert spearman([1, 2, 3], [10, 20, 15]) == pytest.approx(0.5)
    assert spearman([1, 2], [1, 2]) is None
    assert spearman([1, 1, 1], [1, 2, 3]) is None
