"""Axes as they are typed: read, refused, skipped where a sampler lacks them."""

from __future__ import annotations

import pytest

from strop.errors import UserError
from strop.records import SAMPLERS
from strop.spec import SamplerSpec
from strop.tuning.space import Axis, Space, fitting, parse


def test_every_form_of_an_axis_is_read_and_written_the_same() -> None:
    for text in (
        "temperature=0.6:1.1",
        "eta=0.005:0.1:log",
        "temperature=0.8:1.1:0.05",
        "name=ancestral,remdm-cap",
        "top_p=1,0.9",
        "block_length=8:64",
    ):
        assert str(Axis.parse(text)) == text
        assert Axis.parse(str(Axis.parse(text))) == Axis.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "temperature",
        "=1",
        "temperature=",
        "temperature=1,,2",
        "temperature=a:b",
        "temperature=1:0.5",
        "temperature=1:1",
        "temperature=0:nan",
        "temperature=0:inf",
        "temperature=0:1:2",
        "temperature=0:1:-0.1",
        "temperature=0:1:linear",
        "temperature=0:1:0.1:log",
        "eta=0:1:log",
        "precision=0:1",
        "steps=1.5:4",
        "temperature=-1:1",
        "top_p=0.5:1.5",
        "precision=float16",
        "name=nobody",
        "nme=ancestral",
        "name=0:1",
        "eta=0.1:0.2",
        "grid=1,2",
    ],
)
def test_an_axis_that_cannot_be_is_refused_in_words(text: str) -> None:
    with pytest.raises(UserError) as told:
        Space.of([text], "ancestral", {"steps": 4} if not text.startswith("steps") else {})
    assert told.value.where == "`space`"


def test_an_axis_that_is_given_twice_or_fixed_is_refused() -> None:
    with pytest.raises(UserError, match="twice"):
        parse(["top_p=0.8:1", "top_p=1,0.9"])
    with pytest.raises(UserError, match="both an axis and fixed"):
        Space.of(["steps=4:8"], "ancestral", {"steps": 4})


def test_an_axis_that_a_sampler_lacks_is_skipped_for_it_and_told() -> None:
    axes = ["name=ancestral,remdm-cap", "eta=0.01,0.02", "temperature=1,0.9"]
    space = Space.of(axes, "ancestral", {"steps": 4})
    assert space.skipped == ("eta is skipped for ancestral, which has no such setting",)
    found = space.settings(32) or []
    assert len(found) == 2 + 4
    assert {spec.name: len(spec.settings) for spec in found} == {"ancestral": 0, "remdm-cap": 1}
    assert space.values(found[-1]) == {"eta": 0.02, "temperature": 0.9}


def test_what_can_be_counted_is_enumerated_and_the_rest_is_not() -> None:
    fixed = {"steps": 4}
    steps = Space.of(["temperature=0.8:1.1:0.05"], "ancestral", fixed)
    found = steps.settings(32) or []
    assert [spec.temperature for spec in found] == [0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1]
    assert steps.settings(6) is None
    assert Space.of(["temperature=0.8:1.1"], "ancestral", fixed).settings(10**6) is None
    whole = Space.of(["block_length=8:12"], "blockwise", fixed).settings(32) or []
    assert [spec.settings["block_length"] for spec in whole] == [8, 9, 10, 11, 12]
    assert type(whole[0].settings["block_length"]) is int
    ratios = Space.of(["block_length=8:12:log"], "blockwise", fixed).settings(32)
    assert ratios == whole


def test_combinations_that_a_sampler_refuses_are_left_out() -> None:
    """The loop of ReMDM ends before it begins where t_off is not below t_on."""
    space = Space.of(["t_on=0.3,0.6", "t_off=0.2,0.5"], "remdm-loop", {"steps": 4})
    assert len(space.settings(32) or []) == 3


@pytest.mark.parametrize(
    ("axis", "value", "told"),
    [
        ("temperature=0.6:1.1", 0.6, "lowest"),
        ("temperature=0.6:1.1", 0.605, "lowest"),
        ("temperature=0.6:1.1", 1.1, "highest"),
        ("temperature=0.6:1.1", 0.8, None),
        ("temperature=1,0.9,0.8", 0.8, "lowest"),
        ("temperature=1,0.9,0.8", 0.9, None),
        ("temperature=0.8:1.1:0.05", 0.85, None),
        ("top_p=0.8:1", 1.0, None),
        ("top_p=0.8:1", 0.8, "lowest"),
        ("temperature=1", 1, None),
    ],
)
def test_the_edge_of_an_axis_is_told(axis: str, value: float, told: str | None) -> None:
    space = Space.of([axis], "ancestral", {"steps": 4})
    name = axis.partition("=")[0]
    edges = space.edges(SamplerSpec(steps=4, **{name: value}))
    assert (told in edges[0]) if told else not edges


def test_proposed_numbers_are_short_and_inside() -> None:
    axis = Axis.parse("temperature=0.6:1.1")
    assert axis.value(0.87654321) == 0.877
    assert axis.value(0.59999) == 0.6
    assert axis.value(1.2) == 1.1


def test_an_axis_of_too_many_values_is_refused_before_they_are_counted_out() -> None:
    with pytest.raises(UserError, match="too much") as caught:
        Axis.parse("temperature=0.6:1.1:1e-12")
    assert caught.value.got == "500,000,000,000"
    with pytest.raises(UserError, match="too much"):
        Axis.parse("temperature=0:10001:1")
    assert len(Axis.parse("temperature=0:10000:1").listed or ()) == 10_001


def test_whole_numbers_without_a_step_are_listed_while_they_are_few() -> None:
    few, many = (
        Space.of([f"steps=1:{most}"], "ancestral").axes[0].listed for most in (9, 1_000_000)
    )
    assert few == tuple(range(1, 10))
    assert many is None


# ---------------------------------------------------------------- by hand

FIXED = {"steps": 4}


@pytest.mark.parametrize(
    ("axis", "sampler", "field", "told"),
    [
        ("eta=0:1:log", "remdm-cap", "expected", "ends above zero where ratios are equal"),
        ("eta=1:0", "remdm-cap", "expected", "two numbers, the lower one first"),
        ("eta=0:1:2", "remdm-cap", "expected", "a step above zero that fits between the ends"),
        ("precision=0:1", "ancestral", "what", "'precision' is one of some words, not a number."),
        ("finish=0:1", "ancestral", "what", "'finish' is one of some words, not a number."),
        ("cache=0:1", "fast-dllm", "what", "'cache' is one of some words, not a number."),
        ("cache=0:1", "fast-dllm", "expected", "cache=WORD,WORD"),
        ("block_length=1:4.5", "llada", "what", "'block_length' takes whole numbers."),
        ("block_length=1:4:0.5", "llada", "what", "'block_length' takes whole numbers."),
        ("name=0:1", "ancestral", "what", "Samplers have names."),
        ("t_on=0.02,0.6", "remdm-loop", "got", "t_on=0.02"),
        ("t_on=0.02,0.6", "remdm-loop", "expected", "t_off below t_on"),
        ("temperature=0:20001:1", "ancestral", "got", "20,001"),
    ],
)
def test_what_is_wrong_with_an_axis(axis: str, sampler: str, field: str, told: str) -> None:
    with pytest.raises(UserError) as caught:
        Space.of([axis], sampler, FIXED)
    assert getattr(caught.value, field) == told


def test_an_axis_that_other_samplers_have_names_them() -> None:
    """Those of the family that have it, and no others."""
    with pytest.raises(UserError) as caught:
        Space.of(["eta=0.1,0.2"], "ancestral", FIXED)
    assert caught.value.fix == ("`space=name=remdm-cap,remdm-rescale,remdm-loop`, which have it")
    assert "steps, temperature, top_p" in str(caught.value.expected)
    with pytest.raises(UserError) as caught:
        Axis.parse("temperature=0:20001:1")
    assert caught.value.fix == (
        "a larger step, or no step: name=low:high tries any number between the ends"
    )


def test_an_end_that_needs_another_axis_is_left_to_the_search() -> None:
    space = Space.of(["t_on=0.02,0.6", "t_off=0.01,0.2"], "remdm-loop", FIXED)
    found = [(one.settings["t_on"], one.settings["t_off"]) for one in space.settings(32) or []]
    assert found == [(0.02, 0.01), (0.6, 0.01), (0.6, 0.2)]


def test_a_fixed_setting_of_other_samplers_is_skipped_and_told() -> None:
    space = Space.of(["name=ancestral,remdm-cap"], "x", {"steps": 4, "eta": 0.1})
    assert space.skipped == ("eta is skipped for ancestral, which has no such setting",)
    assert space.spec("ancestral", {}) == SamplerSpec(steps=4)
    assert space.spec("remdm-cap", {}) == SamplerSpec(name="remdm-cap", steps=4, eta=0.1)
    assert space.document() == {
        "samplers": ["ancestral", "remdm-cap"],
        "axes": [],
        "fixed": {"steps": 4, "eta": 0.1},
    }
    with pytest.raises(UserError):  # nobody has it
        Space.of([], "ancestral", {"steps": 4, "eta": 0.1})


def test_what_a_sampler_takes_follows_from_its_facts() -> None:
    causal = Space.of(["temperature=0.5,1"], "autoregressive", FIXED)
    assert causal.spec("autoregressive", {"temperature": 0.5}) == SamplerSpec(
        name="autoregressive", temperature=0.5
    )
    plain = Space.of(["temperature=0.5,1"], "ancestral-uncached", FIXED)
    found = plain.spec("ancestral-uncached", {})
    assert (found.implementation, found.steps) == ("dense", 4)
    assert Space.of([], "ancestral", FIXED).spec("ancestral", {}).implementation == "fast"
    assert plain.document()["axes"] == ["temperature=0.5,1"]


def test_every_axis_at_its_edge_is_told_but_for_ends_of_the_setting_itself() -> None:
    space = Space.of(["temperature=0.6:1.1", "eta=0:0.5"], "remdm-cap", FIXED)
    spec = SamplerSpec(name="remdm-cap", steps=4, temperature=1.1, eta=0.5)
    assert space.edges(spec) == (
        "temperature 1.1 is at the highest that was allowed (1.1)",
        "eta 0.5 is at the highest that was allowed (0.5)",
    )
    last = SamplerSpec(name="remdm-cap", steps=4, temperature=0.6, eta=0.0)
    assert space.edges(last) == ("temperature 0.6 is at the lowest that was allowed (0.6)",)


@pytest.mark.parametrize(
    ("axis", "value", "told"),
    [
        ("temperature=0:100", 2, "temperature 2 is at the lowest that was allowed (0)"),
        ("temperature=0:100", 2.01, None),
        ("temperature=0:100", 98, "temperature 98 is at the highest that was allowed (100)"),
        ("temperature=0:100", 97.99, None),
        ("eta=0.0001:1:log", 0.0001, "eta 0.0001 is at the lowest that was allowed (0.0001)"),
        ("eta=0.0001:1:log", 0.001, None),
        ("eta=0.0001:1:log", 0.9, "eta 0.9 is at the highest that was allowed (1)"),
        ("precision=float32,float64", "float32", None),
        ("precision=float32,1,2", 1, None),
        ("precision=1,2", "float32", None),
        ("temperature=1,2", True, None),
    ],
)
def test_the_edge_of_an_axis_by_hand(axis: str, value: object, told: str | None) -> None:
    assert Axis.parse(axis).edge(value) == told


def test_values_of_a_range_by_hand() -> None:
    assert Axis("temperature", low=0.6, high=1.1).value(0.87654321) == 0.877
    fine = Axis.parse("temperature=0.1:0.9:0.1")
    assert fine.listed == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    assert Axis.parse("temperature=0:1:0.3").listed == (0, 0.3, 0.6, 0.9)
    assert Axis.parse("temperature=0.6:1.1").listed is None
    assert Axis.parse("temperature=1,2,1").listed == (1, 2)
    thirds = Space.of(["steps=2:9:3"], "ancestral").axes[0]
    assert thirds.listed == (2, 5, 8)
    assert thirds.value(4.6) == 5
    assert Space.of(["block_length=3:7"], "llada", FIXED).axes[0].listed == (3, 4, 5, 6, 7)


def test_combinations_are_counted_before_they_are_made() -> None:
    """At most sixteen times as many as are wanted, as some may not go together."""
    space = Space.of(["temperature=0.5:0.66:0.01"], "ancestral", FIXED)
    assert len(space.axes[0].listed or ()) == 17
    assert list(space._combinations(1)) == []
    assert len(list(space._combinations(2))) == 17
    assert space.settings(17) is not None
    assert space.settings(16) is None


@pytest.mark.parametrize(
    ("family", "name", "where", "fix"),
    [
        ("mdlm", "autoregressive", "`space`", "ancestral"),
        ("ar", "ancestral", "SamplerSpec.name", "autoregressive"),
        ("mdlm", "nobody", "`sampler`", None),
    ],
)
def test_a_sampler_that_does_not_fit_a_family_is_refused(
    family: str, name: str, where: str, fix: str | None
) -> None:
    with pytest.raises(UserError) as caught:
        fitting(family, name, where="`space`")
    assert caught.value.where == where
    assert fix is None or caught.value.fix == f"use `sampler={fix}`"
    with pytest.raises(UserError) as caught:
        fitting("mdlm", "autoregressive")
    assert caught.value.where == "`sampler`"
    assert fitting("mdlm", "ancestral") == SAMPLERS["ancestral"]
    assert fitting("ar", "autoregressive") == SAMPLERS["autoregressive"]
