"""Plans: every output once per partition, as few pairs twice as can be, nothing in order."""

from __future__ import annotations

import itertools
import tracemalloc
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pools import source

from strop.errors import UserError
from strop.groupeval.inputs import fitted
from strop.groupeval.plan import PLANTED, Plan, Source, Texts, make_plan, partitions, reused_pairs
from strop.groupeval.profile import Profile

PROFILE = Profile.load("webtext-v1")
SIZES = st.integers(1, 20).map(lambda groups: 8 * groups)


def least_reuse(outputs: int, size: int) -> int:
    """The fewest pairs of outputs that two partitions can have in common."""
    groups = outputs // size
    q, r = divmod(size, groups)
    return groups * (r * (q + 1) * q // 2 + (groups - r) * q * (q - 1) // 2)


def pairs(partition: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(p) for row in partition.tolist() for p in itertools.combinations(row, 2)}


@pytest.mark.parametrize(("outputs", "reuse"), [(128, 0), (64, 0), (40, 15), (16, 24), (8, 28)])
def test_the_minimum_is_reached(outputs: int, reuse: int) -> None:
    first, second = partitions(outputs, 8, 2, 3, "minimum")
    assert least_reuse(outputs, 8) == reuse
    assert len(pairs(first) & pairs(second)) == reuse == reused_pairs(first, second)


@given(SIZES, st.integers(2, 9), st.integers(0, 2**63 - 1))
@settings(max_examples=40)
def test_partitions_are_partitions_and_optimal(outputs: int, size: int, seed: int) -> None:
    outputs = outputs // 8 * size
    first, second = partitions(outputs, size, 2, seed, "minimum")
    for one in (first, second):
        assert one.shape == (outputs // size, size)
        assert sorted(one.ravel().tolist()) == list(range(outputs))
    assert reused_pairs(first, second) == len(pairs(first) & pairs(second))
    assert reused_pairs(first, second) == least_reuse(outputs, size)


def test_no_second_partition_of_sixteen_in_fours_is_better() -> None:
    """The bound against a search: 2,000 random ones never pass it, and few reach it."""
    rng = np.random.default_rng(0)
    first = np.arange(12).reshape(3, 4)
    found = [reused_pairs(first, rng.permutation(12).reshape(3, 4)) for _ in range(2_000)]
    assert min(found) == least_reuse(12, 4)


def test_the_papers_candidates_are_there_by_name() -> None:
    first, second = partitions(40, 8, 2, 0, "best-of-2000")
    assert sorted(second.ravel().tolist()) == list(range(40))
    assert least_reuse(40, 8) <= reused_pairs(first, second) < 25  # a random one has about 36


def test_the_memory_of_a_partition_grows_with_the_pool() -> None:
    """32,000 outputs: a table of group by group would hold 16 million numbers, 128 MB."""
    tracemalloc.start()
    first, second = partitions(32_000, 8, 2, 0, "minimum")
    assert reused_pairs(first, second) == 0
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


def made(cells: dict[str, int], **options: int) -> tuple[Plan, Texts]:
    return make_plan([source(name, n) for name, n in cells.items()], PROFILE, **options)


def test_cells_of_one_size_share_their_partitions() -> None:
    plan, _ = made({"a": 40, "b": 40, "c": 16})
    sets = {
        cell: {(g.partition, g.group, frozenset(g.indices)) for g in plan.groups if g.cell == cell}
        for cell in plan.cells
    }
    assert sets["a"] == sets["b"] != sets["c"]
    assert plan.reuse == {"40": 15, "16": 24}


def test_orders_are_random_and_independent() -> None:
    plan, _ = made({"a": 128, "b": 128})
    orders = {
        cell: {(g.partition, g.group): g.indices for g in plan.groups if g.cell == cell}
        for cell in "ab"
    }
    same = sum(orders["a"][key] == orders["b"][key] for key in orders["a"])
    assert same == 0  # of 32, each with probability 1/40320
    rises = [g.indices == tuple(sorted(g.indices)) for g in plan.groups]
    assert not any(rises)


def test_generators_and_partitions_are_interleaved() -> None:
    plan, _ = made({"a": 128, "b": 128})
    order = [(group.cell, group.partition) for group in plan.groups]
    runs = 1 + sum(x != y for x, y in itertools.pairwise(order))
    # 64 in four kinds of 16 have 49 runs on average, standard deviation 3; sorted ones have 4.
    assert runs > 35


def test_ids_are_opaque_and_differ_within_a_sheet() -> None:
    plan, _ = made({"a": 64})
    for sheet in plan.sheets:
        assert len(set(sheet.labels)) == 8
        assert all(len(label) == 4 for label in sheet.labels)
    assert len({label for sheet in plan.sheets for label in sheet.labels}) > 100


@given(st.lists(SIZES, min_size=1, max_size=3), st.integers(0, 2**40))
@settings(max_examples=15)
def test_every_output_is_judged_once_per_partition(sizes: list[int], seed: int) -> None:
    cells = {f"g{i}": n for i, n in enumerate(sizes)}
    plan, texts = made(cells, seed=seed, controls=1)
    seen = Counter((g.cell, g.partition, i) for g in plan.groups for i in g.indices)
    assert seen == {(c, p, i): 1 for c, n in cells.items() for p in (0, 1) for i in range(n)}
    assert plan.cells == cells
    assert len(plan.controls) == len(cells)
    assert Plan.from_documents(plan.document(), plan.blinding) == plan
    assert texts.hash == plan.texts_sha256


def test_the_same_inputs_and_seed_make_the_same_plan_and_others_another() -> None:
    assert made({"a": 16})[0] == made({"a": 16})[0]
    assert made({"a": 16})[0].hash != made({"a": 16}, seed=1)[0].hash
    assert made({"a": 16})[0].hash == made({"b": 16})[0].hash  # the hash is blind


def test_names_are_in_the_blinding_map_alone() -> None:
    plan, texts = made({"secret": 16}, controls=1)
    assert "secret" not in str(plan.document())
    assert b"secret" not in texts.parquet()


def test_controls_plant_what_they_say() -> None:
    plan, texts = made({"a": 16}, controls=2)
    assert len(plan.controls) == 2
    for group in plan.controls:
        (code,) = plan.blinding
        by_kind = dict(zip(group.planted, group.indices, strict=True))
        own = texts.of(code, "control")
        assert own[by_kind["empty"]] == ""
        assert own[by_kind["copied"]] == own[by_kind["duplicate"]] in texts.of(code)
        ordered, shuffled = own[by_kind["ordered"]], own[by_kind["shuffled"]]
        assert ordered in texts.of(code)
        assert shuffled != ordered
        assert sorted(shuffled.split()) == sorted(ordered.split())


def test_a_conditional_plan_pairs_two_generators_by_prompt() -> None:
    profile = Profile.load("task-v1")
    prompts = tuple(f"What is {i} + 1?" for i in range(30))
    sources = [Source(name, tuple(map(str, range(30))), prompts, name) for name in "ab"]
    assert fitted(sources, profile) == (sources, [])
    plan, texts = make_plan(sources, profile)
    assert len(plan.sheets) == 30
    assert len(plan.groups) == 60
    first = Counter(sheet.pools[0] for sheet in plan.sheets)
    assert min(first.values()) > 5  # which generator comes first is random
    for sheet in plan.sheets:
        assert set(sheet.pools) == set(plan.blinding)
        assert (
            len(
                {texts.at(c, "plan", i)[1] for c, i in zip(sheet.pools, sheet.indices, strict=True)}
            )
            == 1
        )


def test_mixed_sizes_are_refused_unless_accepted() -> None:
    sources = [source("a", 16), source("b", 24)]
    with pytest.raises(UserError, match="different numbers of outputs") as caught:
        fitted(sources, PROFILE)
    assert "`first=16`" in str(caught.value.fix)
    assert fitted(sources, PROFILE, mixed_sizes=True) == (sources, [])


def test_an_unknown_way_to_partition_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no partition method called 'best'"):
        make_plan([source("a", 8)], PROFILE, method="best")


def test_answers_to_one_prompt_are_one_group_with_its_number_everywhere() -> None:
    profile = Profile.load("answers-v1")
    rows = {"a": "pqpq", "b": "qrq"}
    sources = [
        Source(name, tuple(f"{name}{i}" for i in range(len(which))), tuple(which), name)
        for name, which in rows.items()
    ]
    plan, texts = make_plan(sources, profile)
    found = {(g.cell, g.group): tuple(sorted(g.indices)) for g in plan.groups}
    order = [prompt for name in plan.cells for prompt in rows[name]]
    number = {prompt: k for k, prompt in enumerate(dict.fromkeys(order))}
    assert found == {
        ("a", number["p"]): (0, 2),
        ("a", number["q"]): (1, 3),
        ("b", number["q"]): (0, 2),
        ("b", number["r"]): (1,),
    }
    assert (plan.reuse, {g.partition for g in plan.groups}) == ({}, {0})
    for sheet in plan.sheets:
        assert plan.by_id[sheet.id] is sheet
        [group] = plan.groups_of(sheet)
        assert (group.sheet, group.kind, group.planted) == (sheet.id, "plan", ())
        prompts = {texts.at(sheet.pools[0], "plan", i)[1] for i in sheet.indices}
        assert [number[str(one)] for one in prompts] == [sheet.group]


def test_groups_of_a_control_say_what_was_planted() -> None:
    plan, _ = made({"a": 16}, controls=1)
    [sheet] = [one for one in plan.sheets if one.kind == "control"]
    [group] = plan.controls
    assert (group.cell, group.kind, group.sheet) == ("a", "control", sheet.id)
    assert (group.planted, group.indices) == (sheet.planted, sheet.indices)
    assert len(sheet.planted) == 8


def test_frozen_texts_are_read_back_and_a_change_is_told(tmp_path: Path) -> None:
    _, texts = made({"a": 8}, controls=1)
    path = tmp_path / "texts.parquet"
    path.write_bytes(texts.parquet())
    assert Texts.read(path, texts.hash) == texts
    assert texts.of("pool-000", "nothing") == []
    for content, expected in (
        (texts.parquet(), "0" * 64),
        (texts.parquet()[:-20], texts.hash),
        (b"", texts.hash),
    ):
        path.write_bytes(content)
        with pytest.raises(UserError, match="missing or were changed") as caught:
            Texts.read(path, expected)
        assert caught.value.where == str(path)
    with pytest.raises(UserError, match="missing or were changed"):
        Texts.read(tmp_path / "none", texts.hash)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"kind": "other"}, "has no sense"),
        ({"labels": ["b2cd"]}, "has no sense"),
        ({"pools": ["pool-009"] * 8}, "unknown pool 'pool-009'"),
        ({"indices": [8, *range(7)]}, "not there"),
        ({"indices": [-1, *range(7)]}, "not there"),
    ],
)
def test_a_sheet_that_cannot_be_is_refused(changes: dict[str, list[str]], told: str) -> None:
    plan, _ = made({"a": 8})
    document = plan.document()
    first, *rest = document["sheets"]
    with pytest.raises(ValueError, match=told):
        Plan.from_documents({**document, "sheets": [{**first, **changes}, *rest]}, plan.blinding)
    with pytest.raises(ValueError, match="name other pools"):
        Plan.from_documents(document, {"pool-001": "a"})
    assert Plan.from_documents(document, plan.blinding) == plan


def test_controls_need_room_and_an_unconditional_profile() -> None:
    few = replace(PROFILE, group_size=len(PLANTED) + 1)
    with pytest.raises(UserError, match="too small for controls") as caught:
        make_plan([source("a", 8)], few, controls=1)
    assert caught.value.expected == f"at least {len(PLANTED) + 2} texts per group"
    prompts = tuple(map(str, range(4)))
    pair = [Source(name, prompts, prompts, name) for name in "ab"]
    with pytest.raises(UserError, match="has no control groups"):
        make_plan(pair, Profile.load("task-v1"), controls=1)
