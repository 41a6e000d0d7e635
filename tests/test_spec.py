"""Specs: equal content has an equal id, any change another, and nothing wrong gets in."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from strop.errors import UserError
from strop.spec import (
    MOST_STEPS,
    SAMPLERS,
    CellSpec,
    CheckpointSpec,
    Cooling,
    DenseBatch,
    GeneratorSpec,
    OperatingPoint,
    PromptSpec,
    SamplerSpec,
    Spec,
    label,
    plain_baseline,
    swept,
)

FAST = [name for name, facts in SAMPLERS.items() if facts.fast]
SLOW = [name for name, facts in SAMPLERS.items() if not facts.fast]


@st.composite
def grids(draw: st.DrawFn) -> tuple[float, ...]:
    parts = draw(st.lists(st.integers(0, 1000), min_size=1, max_size=6).filter(any))
    return tuple(part / sum(parts) for part in parts)


@st.composite
def samplers(draw: st.DrawFn) -> SamplerSpec:
    name = draw(st.sampled_from(sorted(SAMPLERS)))
    if SAMPLERS[name].causal:  # neither grid nor finish, and steps are the cell's length
        return SamplerSpec(name=name, temperature=draw(st.floats(0, 1e6)))
    fields: dict[str, Any] = {
        "name": name,
        "temperature": swept(name, draw(st.floats(0, 1e6))),
        "precision": draw(st.sampled_from(["float32", "float64"])),
        "top_p": draw(st.floats(0, 1, exclude_min=True)),
    }
    facts = SAMPLERS[fields["name"]]
    forms = ["dense"] if facts.dense is not None else []
    fields["finish"] = draw(st.sampled_from([None, *facts.finishes]))
    if fields["name"] in FAST and fields["precision"] in facts.fast_precisions:
        forms.append("fast")
    fields["implementation"] = draw(st.sampled_from(forms))
    if facts.grid and draw(st.booleans()):
        fields["grid"] = draw(grids())
    else:
        fields["steps"] = draw(st.integers(1, MOST_STEPS))
    return SamplerSpec(**fields)


@st.composite
def checkpoints(draw: st.DrawFn) -> CheckpointSpec:
    numbers = st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9)
    return CheckpointSpec(
        family=draw(st.text(max_size=8)),
        sha256=draw(st.text("0123456789abcdef", min_size=64, max_size=64)),
        weights=draw(st.sampled_from(["released", "ema", "raw", "exact"])),
        shape=draw(st.dictionaries(st.text(max_size=5), numbers, max_size=4)),
        network_dtype=draw(st.sampled_from(["float32", "bfloat16"])),
    )


@st.composite
def cells(draw: st.DrawFn) -> CellSpec:
    sampler, length, checkpoint = draw(samplers()), draw(st.integers(1, 4096)), draw(checkpoints())
    if SAMPLERS[sampler.name].causal:
        sampler = sampler.model_copy(update={"steps": length})
    elif SAMPLERS[sampler.name].family != "mdlm":
        checkpoint = checkpoint.model_copy(update={"family": SAMPLERS[sampler.name].family})
    facts = SAMPLERS[sampler.name]
    forms = ["prefix", "gaps"] if facts.gaps and not facts.causal else ["prefix"]
    asked = st.builds(
        PromptSpec,
        sha256=st.text(max_size=8),
        count=st.integers(1, 99),
        form=st.sampled_from(forms),
    )
    refuses = SAMPLERS[sampler.name].with_prompts is not None
    prompts = draw(st.none() if refuses else st.none() | asked)
    generator = GeneratorSpec(
        checkpoint=checkpoint, sampler=sampler, length=length, prompts=prompts
    )
    whole = st.integers(1, 10**6)
    batch = st.none() | st.builds(DenseBatch, size=whole, ragged_total=st.none() | whole)
    seed, stream = draw(st.integers(0, 2**63 - 1)), draw(st.integers(1, 3))
    return CellSpec(generator=generator, seed=seed, batch=draw(batch), stream=stream)


SPECS = samplers() | checkpoints() | cells()


@given(SPECS)
def test_json_round_trip_keeps_value_and_id(spec: Spec) -> None:
    through_text = type(spec)(**json.loads(spec.canonical()))
    through_pydantic = type(spec).model_validate_json(spec.model_dump_json())
    assert through_text == through_pydantic == spec
    assert through_text.id == through_pydantic.id == spec.id
    assert hash(through_text) == hash(spec)


@given(samplers(), st.data())
def test_equal_content_has_an_equal_id_however_it_is_spelled(
    spec: SamplerSpec, data: st.DataObject
) -> None:
    fields = spec.model_dump()
    order = data.draw(st.permutations(list(fields)))
    assert SamplerSpec(**{name: fields[name] for name in order}).id == spec.id
    if spec.grid != "uniform":
        for spelling in (list, np.array, iter):
            again = SamplerSpec(**{**fields, "grid": spelling(spec.grid), "steps": None})
            assert again.id == spec.id


@given(cells(), cells())
def test_ids_are_equal_only_for_equal_specs(one: CellSpec, other: CellSpec) -> None:
    assert (one.id == other.id) == (one.canonical() == other.canonical())


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every leaf of a nested document."""
    if isinstance(value, dict):
        return [p for key, part in value.items() for p in paths(part, (*here, key))]
    return [here]


def changed(value: Any) -> Any:
    """Another valid value of the same field, where its name does not demand a certain one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return math.nextafter(value, 0.5)
    return value


OTHER = {
    "name": {"ancestral": "ancestral-uncached"},
    "precision": {"float32": "float64", "float64": "float32"},
    "implementation": {"fast": "dense"},
    "finish": {"greedy": "draw", "draw": "none", "none": "greedy"},
}


@given(cells())
def test_a_change_of_any_field_changes_the_id(cell: CellSpec) -> None:
    document = json.loads(cell.canonical())
    tried = 0
    for path in paths(document):
        copy = json.loads(cell.canonical())
        place = copy
        for key in path[:-1]:
            place = place[key]
        old = place[path[-1]]
        if path[-1] in OTHER and "sampler" in path:
            new = OTHER[path[-1]].get(old, old)
        elif list(path) == ["batch"]:
            new = {"size": 3}
        elif path[-1] == "ragged_total" and path[0] == "batch":
            new = 1 if old is None else None
        elif path[-1] == "grid" and "sampler" in path:
            new = [*old[:-1], old[-1] / 2, old[-1] / 2] if old != "uniform" else [0.5, 0.5]
            place["steps"] = len(new)
        else:
            new = old + "x" if isinstance(old, str) else changed(old)
        place[path[-1]] = new
        if new == old and type(new) is type(old):
            continue
        try:
            other = CellSpec(**copy)
        except UserError:
            continue  # the change is not allowed on its own, e.g. steps beside a grid
        tried += 1
        assert other.id != cell.id, path
        assert other != cell, path
    assert tried >= 5


def test_a_change_of_one_field_of_the_default_changes_the_id() -> None:
    default = SamplerSpec()
    changes: dict[str, Any] = {
        "name": "ancestral-uncached",
        "steps": 65,
        "temperature": math.nextafter(1.0, 0.0),
        "precision": "float32",
        "top_p": 0.9,
        "grid": [0.5, 0.5],
        "finish": "draw",
        "implementation": "dense",
        "noise": "device",
        "version": "1",
    }
    assert changes.keys() == SamplerSpec.model_fields.keys() - {"settings"}
    ids = {default.id}
    for field, value in changes.items():
        more = {"implementation": "dense"} if field in ("name", "noise") else {}
        ids.add(SamplerSpec(**{field: value, **more}).id)
    assert len(ids) == len(changes) + 1


def test_ids_do_not_drift() -> None:
    """Folders of earlier versions are found by these: a change here needs a new format."""
    assert SamplerSpec().canonical() == (
        '{"finish":"greedy","grid":"uniform","implementation":"fast","name":"ancestral",'
        '"precision":"float64","steps":64,"temperature":1.0,"top_p":1.0}'
    )

    old = {"name": "ancestral-duo", "implementation": "dense", "precision": "float32"}
    assert SamplerSpec(**old).id == "0090f4750bbb3a54"
    assert "settings" not in json.loads(SamplerSpec(**old).canonical())


def cell_of(sampler: dict[str, Any], **more: Any) -> CellSpec:
    checkpoint = CheckpointSpec(family="mdlm", sha256="0" * 64, shape={})
    generator = GeneratorSpec(checkpoint=checkpoint, sampler=SamplerSpec(**sampler), length=8)
    return CellSpec(generator=generator, seed=0, **more)


@pytest.mark.parametrize(
    ("sampler", "more", "id_"),
    [
        ({}, {}, "76bc2d6324dec219"),
        ({"precision": "float32"}, {}, "578c96e96391a327"),
        ({"name": "remdm-cap", "precision": "float32"}, {}, "d811d57964a007c4"),
        (
            {"precision": "float32", "implementation": "dense"},
            {"batch": DenseBatch(size=4)},
            "3f14593ca595e566",
        ),
    ],
)
def test_ids_of_the_first_stream_are_as_old_as_they_were(
    sampler: dict[str, Any], more: dict[str, Any], id_: str
) -> None:
    """Written down before streams had versions."""
    cell = cell_of(sampler, **more)
    assert cell.id == id_
    assert "stream" not in cell.canonical()
    other = cell.model_copy(update={"stream": 2})
    assert other.id != id_
    assert CellSpec.model_validate_json(other.canonical()) == other


def test_settings_of_one_sampler_are_filled_in_and_part_of_its_id() -> None:
    default = SamplerSpec(name="remdm-loop")
    declared = SAMPLERS["remdm-loop"].settings
    assert default.settings == {name: setting.default for name, setting in declared.items()}
    same = [{"eta": 0.02}, {"settings": {"eta": 0.02}}, {"settings": default.settings}]
    same += [{"settings": {"t_on": np.float64(0.55)}, "t_off": np.float64(0.05)}]
    assert {SamplerSpec(name="remdm-loop", **one).id for one in same} == {default.id}
    changes = [{"eta": 0.03}, {"t_on": 0.6}, {"t_off": 0.06}, {"alpha_on": 0.8}]
    ids = {SamplerSpec(name="remdm-loop", **one).id for one in changes}
    assert len(ids | {default.id}) == 5
    assert SamplerSpec(name="remdm-cap", eta=0).id == SamplerSpec(name="remdm-cap", eta=-0.0).id
    assert json.loads(default.canonical())["settings"] == default.settings


def test_public_names_are_read_among_the_settings_too() -> None:
    public = {"use_cache": True, "dual_cache": True, "diffusion_steps": 8, "temperature": 0.5}
    spec = SamplerSpec(name="fast-dllm", settings={**public, "factor": 2.0})
    assert spec == SamplerSpec(
        name="fast-dllm", cache="dual", steps=8, temperature=0.5, factor=2.0, commit="factor"
    )
    assert (spec.steps, spec.temperature) == (8, 0.5)
    assert (spec.settings["cache"], spec.settings["commit"]) == ("dual", "factor")
    # A command line has words.
    typed = SamplerSpec(name="fast-dllm", settings={"use_cache": "true", "dual_cache": "false"})
    assert typed == SamplerSpec(name="fast-dllm", cache="prefix")
    assert SamplerSpec(name="llada", settings={"logits_eos_inf": True}).settings["end"] == "never"
    # Said beside `settings`, it holds; and the canonical form reads back as itself.
    again = spec.model_copy(update={"dual_cache": False, "use_cache": True})
    assert again.settings["cache"] == "prefix"
    assert SamplerSpec(**spec.model_dump()) == spec
    assert SamplerSpec(name="blockwise", settings={"threshold": 0.8}).settings["commit"] == (
        "threshold"
    )


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"settings": {"use_cache": "perhaps"}}, "neither on nor off"),
        ({"settings": {"steps": 8}, "steps": 16}, "`steps` is given twice"),
        ({"settings": {"diffusion_steps": 8}, "steps": 16}, "`steps` is given twice"),
        ({"settings": {"tresholds": 0.5}}, "threshold"),
        ({"settings": {"precision": "float32"}}, "setting of 'fast-dllm'"),
        ({"settings": 3}, "not a mapping"),
    ],
)
def test_public_names_that_make_no_sense_are_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as found:
        SamplerSpec(name="fast-dllm", **fields)
    assert told in str(found.value)


def test_steps_of_a_causal_sampler_are_its_length() -> None:
    checkpoint = CheckpointSpec(family="ar", sha256="0" * 64, shape={})
    open_ended = SamplerSpec(name="autoregressive")
    assert open_ended.steps == 0
    with pytest.raises(UserError, match="one step per token"):
        GeneratorSpec(checkpoint=checkpoint, sampler=open_ended, length=8)
    fixed = SamplerSpec(name="autoregressive", steps=8)
    assert GeneratorSpec(checkpoint=checkpoint, sampler=fixed, length=8).sampler.steps == 8


def test_only_revising_samplers_have_a_baseline() -> None:
    assert plain_baseline(SamplerSpec()) is None
    for name, facts in SAMPLERS.items():
        if facts.baseline is not None:
            grid = {"grid": (0.5, 0.5)} if facts.grid else {}
            form = "fast" if facts.fast else "dense"
            spec = SamplerSpec(name=name, implementation=form, top_p=0.9, temperature=0.8, **grid)
            plain = plain_baseline(spec)
            assert plain is not None
            assert (plain.top_p, plain.temperature, plain.grid) == (0.9, 0.8, spec.grid)
            assert plain_baseline(plain) is None


def test_kinds_with_equal_content_have_different_ids() -> None:
    class Other(SamplerSpec):
        pass

    assert Other().canonical() == SamplerSpec().canonical()
    assert Other().id != SamplerSpec().id


def test_minus_zero_is_zero() -> None:
    assert SamplerSpec(temperature=-0.0).id == SamplerSpec(temperature=0.0).id
    assert SamplerSpec(grid=[1.0, -0.0]).id == SamplerSpec(grid=[1.0, 0.0]).id


def test_numbers_of_any_type_are_one_number() -> None:
    assert SamplerSpec(temperature=1, top_p=1).id == SamplerSpec(temperature=1.0, top_p=1.0).id
    assert SamplerSpec(steps=np.int64(8)).id == SamplerSpec(steps=8).id
    assert SamplerSpec(temperature=np.float64(0.9)).id == SamplerSpec(temperature=0.9).id
    assert SamplerSpec(grid=[1, 0]).id == SamplerSpec(grid=(1.0, 0.0)).id


def test_what_is_left_out_is_filled_in() -> None:
    assert SamplerSpec(finish=None).id == SamplerSpec(finish="greedy").id
    assert SamplerSpec(grid=[0.5, 0.5]).id == SamplerSpec(grid=[0.5, 0.5], steps=2).id
    assert SamplerSpec(grid=[0.5, 0.5]).finish == "draw"
    assert SamplerSpec(name="analytic", implementation="dense").finish == "draw"


def test_specs_are_frozen_and_copies_are_checked() -> None:
    spec = SamplerSpec()
    with pytest.raises(Exception, match="frozen"):
        spec.steps = 3  # pyright: ignore[reportAttributeAccessIssue]
    assert spec.model_copy(update={"steps": 3}) == SamplerSpec(steps=3)
    with pytest.raises(UserError, match="steps"):
        spec.model_copy(update={"steps": 0})
    assert len({spec, SamplerSpec(), SamplerSpec(steps=3)}) == 2


BAD: list[tuple[dict[str, Any], str]] = [
    ({"steps": 0}, "from 1 to"),
    ({"steps": -4}, "from 1 to"),
    ({"steps": MOST_STEPS + 1}, "from 1 to"),
    ({"steps": 2.5}, "from 1 to"),
    ({"steps": "many"}, "from 1 to"),
    ({"steps": True}, "from 1 to"),
    ({"steps": None}, "from 1 to"),
    ({"temperature": -0.1}, "0 (greedy) or a positive number"),
    ({"temperature": math.nan}, "0 (greedy) or a positive number"),
    ({"temperature": math.inf}, "0 (greedy) or a positive number"),
    ({"temperature": "hot"}, "0 (greedy) or a positive number"),
    ({"top_p": 0}, "above 0 and up to 1"),
    ({"top_p": 1.5}, "above 0 and up to 1"),
    ({"top_p": math.nan}, "above 0 and up to 1"),
    ({"name": "ancestal"}, ", ".join(sorted(SAMPLERS))),
    ({"name": None}, ", ".join(sorted(SAMPLERS))),
    ({"name": ["ancestral"]}, ", ".join(sorted(SAMPLERS))),
    ({"precision": "float16"}, "float32, float64"),
    ({"precision": None}, "float32, float64"),
    ({"implementation": "quick"}, "dense, fast"),
    ({"finish": "never"}, "draw, greedy, none"),
    ({"step": 3}, ", ".join(sorted(SamplerSpec.model_fields))),
    ({"grid": [0.5, 0.4]}, "sum to 1"),
    ({"grid": [0.5, 0.5], "steps": 3}, "one mass per step"),
    ({"grid": [1.5, -0.5]}, "none of them negative"),
    ({"grid": [math.nan, 1.0]}, "none of them negative"),
    ({"grid": [math.inf, -math.inf]}, "none of them negative"),
    ({"grid": [1e308] * 10}, "sum to 1"),
    ({"grid": []}, "one or more"),
    ({"grid": ["a", 1.0]}, "not a number"),
    ({"grid": [[0.5, 0.5]]}, "not a number"),
    ({"grid": [10**400]}, "not a number"),
    ({"grid": np.eye(2)}, "not a number"),
    ({"grid": "log"}, "'uniform', or masses"),
    ({"grid": None}, "'uniform', or masses"),
    ({"grid": 1.0}, "'uniform', or masses"),
    ({"grid": np.array(1.0)}, "'uniform', or masses"),
    ({"grid": b"ab"}, "'uniform', or masses"),
    ({"grid": {0.25, 0.75}}, "'uniform', or masses"),
    ({"eta": 0.1}, ", ".join(sorted(SamplerSpec.model_fields))),
    ({"settings": {"eta": 0.1}}, "no settings of its own"),
    ({"settings": None}, "not a mapping"),
    ({"name": "remdm-cap", "settings": [0.1], "eta": 0.1}, "not a mapping"),
    ({"name": "remdm-cap", "etta": 0.1}, "There is no field"),
    ({"name": "remdm-cap", "settings": {"etta": 0.1}}, "did you mean 'eta'"),
    ({"name": "remdm-cap", "eta": 1.1}, "from 0 to 1"),
    ({"name": "remdm-cap", "eta": True}, "from 0 to 1"),
    ({"name": "remdm-cap", "eta": "much"}, "from 0 to 1"),
    ({"name": "remdm-cap", "eta": math.nan}, "from 0 to 1"),
    ({"name": "remdm-loop", "alpha_on": 1.0}, "above 0 and below 1"),
    ({"name": "remdm-loop", "t_on": 0.04}, "t_off below t_on"),
    ({"name": "remdm-loop", "eta": 0.2}, "at most (1 - alpha_on) / alpha_on"),
    ({"name": "autoregressive", "grid": [1.0]}, "neither a reveal grid nor a finish"),
    ({"name": "autoregressive", "finish": "greedy"}, "neither a reveal grid nor a finish"),
    ({"name": "autoregressive", "steps": -1}, "from 1 to"),
]


@pytest.mark.parametrize(("fields", "told"), BAD, ids=lambda value: repr(value)[:40])
def test_bad_values_are_refused_in_words(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as caught:
        SamplerSpec(**fields)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 600
    assert "pydantic" not in str(caught.value)


@pytest.mark.parametrize("name", SLOW)
def test_fast_is_refused_with_the_remedy_where_there_is_no_fast_form(name: str) -> None:
    with pytest.raises(UserError, match=name) as caught:
        SamplerSpec(name=name)
    assert "`implementation=dense`" in str(caught.value)
    assert SamplerSpec(name=name, implementation="dense").name == name


def test_a_misspelled_name_gets_the_nearest_one() -> None:
    with pytest.raises(UserError, match="did you mean 'ancestral'"):
        SamplerSpec(name="ancestal")


@given(grids(), st.floats(1e-5, 0.5), st.integers(0, 5), st.sampled_from([-1, 1]))
def test_a_grid_that_does_not_sum_to_one_is_refused(
    grid: tuple[float, ...], error: float, where: int, sign: int
) -> None:
    assume(where < len(grid) and grid[where] + sign * error >= 0)
    off = list(grid)
    off[where] += sign * error
    with pytest.raises(UserError, match="does not sum to one"):
        SamplerSpec(grid=off)


@pytest.mark.parametrize(
    ("field", "value"),
    [("seed", -1), ("seed", 2**63), ("generator", {}), ("batch", {"size": 0}), ("stream", 0)],
)
def test_bad_cells_are_refused(field: str, value: Any) -> None:
    checkpoint = CheckpointSpec(family="mdlm", sha256="0" * 64, shape={})
    generator = GeneratorSpec(checkpoint=checkpoint, sampler=SamplerSpec(), length=8)
    good = {"generator": generator, "seed": 0}
    CellSpec(**good)
    with pytest.raises(UserError):
        CellSpec(**{**good, field: value})
    with pytest.raises(UserError, match="length"):
        GeneratorSpec(checkpoint=checkpoint, sampler=SamplerSpec(), length=0)


def test_a_schedule_of_temperatures_is_part_of_the_identity_and_a_number_keeps_its_id():
    plain = SamplerSpec(steps=4, temperature=0.8)
    linear, late = (
        SamplerSpec(steps=4, temperature=f"{kind}/0.8/0.8") for kind in ("linear", "late")
    )
    assert len({plain.id, linear.id, late.id}) == 3
    assert plain.model_dump(mode="json")["temperature"] == 0.8
    assert linear.model_dump(mode="json")["temperature"] == "linear/0.8/0.8"
    assert SamplerSpec(**late.model_dump(mode="json")) == late
    assert pickle.loads(pickle.dumps(late)).temperature == Cooling(0.8, 0.8, "late")
    assert label(SamplerSpec(steps=4, temperature="late/1/0.6")) == "M=4 tau=late/1/0.6 float64"
    assert OperatingPoint.of(late).at(16).temperature == Cooling(0.8, 0.8, "late")


def test_where_a_schedule_stands_at_every_share():
    linear, late = Cooling(1.0, 0.6), Cooling(1.0, 0.6, "late")
    assert [linear.at(a) for a in (0, 0.25, 1)] == pytest.approx([1.0, 0.9, 0.6])
    # the public grid's middle lies 5e-6 before one half
    assert [late.at(a) for a in (0, 0.4999, 0.499995, 0.75, 1)] == [1.0, 1.0, 0.6, 0.6, 0.6]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "remdm-cap", "temperature": "linear/1/0.6"}, "'remdm-cap' has one temperature"),
        ({"name": "blockwise", "temperature": "late/1/0.6"}, "'blockwise' has one temperature"),
        ({"name": "diffusion-gemma", "temperature": "late/1/0.6"}, "goes over its calls"),
        ({"temperature": "early/1/0.6"}, "not a temperature schedule"),
        ({"temperature": "late/1"}, "not a temperature schedule"),
        ({"temperature": "late/1/-0.6"}, "not a temperature schedule"),
        ({"temperature": "linear/1/inf"}, "not a temperature schedule"),
        ({"temperature": "linear/a/b"}, "not a temperature schedule"),
    ],
)
def test_a_schedule_that_cannot_be_had_is_refused_by_name(fields, words):
    with pytest.raises(UserError) as caught:
        SamplerSpec(**fields)
    assert words in str(caught.value)
    assert caught.value.where == "SamplerSpec.temperature"
