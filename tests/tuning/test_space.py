"""Axes as they are typed: read, refused, skipped where a sampler lacks them."""

from __future__ import annotations

import pytest

from strop.errors import UserError
from strop.spec import SamplerSpec
from strop.tuning.space import Axis, Space, parse


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
    assert space.told == ("eta is skipped for ancestral, which has no such setting",)
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
