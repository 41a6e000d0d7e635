"""The plan is cut alike for everybody, and what cannot be meant is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from doc_pages import ROOT
from strop import runtime
from strop.engine import LOCAL, Engine, Shard, cut, spelled
from strop.engine.plan import (
    Elsewhere,
    all_parts,
    planning,
    refuse_missing,
    stop_if_planning,
)
from strop.errors import UserError
from strop.verbs.study import studies


def test_units_are_numbered_over_all_cells() -> None:
    units = cut([[range(3), range(3, 5)], [[0, 2], [1]]])
    assert [(u.number, u.cell, u.indices) for u in units] == [
        (0, 0, (0, 1, 2)),
        (1, 0, (3, 4)),
        (2, 1, (0, 2)),
        (3, 1, (1,)),
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shards_share_the_plan(count: int) -> None:
    units = cut([[range(k, k + 2) for k in range(0, 10, 2)]] * 3)
    parts = [[u for u in units if Shard(i, count).has(u)] for i in range(count)]
    assert sorted(u.number for part in parts for u in part) == list(range(15))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(
    ("environment", "shard"),
    [
        ({"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_MIN": "5", "SLURM_ARRAY_TASK_COUNT": "4"},
         "2/4"),
        ({"SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_TASK_COUNT": "2"}, "0/2"),
        ({"RANK": "1", "WORLD_SIZE": "3"}, "1/3"),
    ],
)  # fmt: skip
def test_auto_reads_what_a_launcher_says(environment: dict[str, str], shard: str) -> None:
    assert str(Shard.read("auto", environment)) == shard


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"SLURM_ARRAY_TASK_ID": "3"},
        {"RANK": "3", "WORLD_SIZE": "3"},
        # An array with gaps, 0,5: its last task has a number beyond the count.
        {"SLURM_ARRAY_TASK_ID": "5", "SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_COUNT": "2"},
    ],
)
def test_auto_never_guesses(environment: dict[str, str]) -> None:
    with pytest.raises(UserError, match="which shard"):
        Shard.read("auto", environment)


@pytest.mark.parametrize("text", ["", "2", "2/2", "-1/2", "1/0", "a/b", "1/2/3"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="not a shard"):
        Shard.read(text)


def test_indices_as_people_write_them() -> None:
    assert spelled([5, 0, 1, 2, 9, 8]) == "0-2, 5, 8-9"
    assert spelled([]) == ""


def test_missing_outputs_are_named(tmp_path: Path) -> None:
    refuse_missing(tmp_path, {"a" * 16: set()})
    with pytest.raises(Elsewhere) as caught:
        refuse_missing(tmp_path, {"a" * 16: set(), "b" * 16: {3, 4, 7}})
    assert caught.value.exit_code == 2
    assert caught.value.got == "cell bbbbbbbb: 3-4, 7"


@pytest.mark.parametrize(
    "said",
    [
        {"engine": "cloud"},
        {"engine": "local", "devices": "cpu:2"},
        {"engine": "devices", "devices": "gpu:0"},
        {"engine": "devices", "devices": "cpu:0"},
        {"engine": "devices", "ray_address": "auto"},
    ],
)
def test_what_does_not_go_together_is_refused(said: dict[str, str]) -> None:
    with pytest.raises(UserError):
        Engine.of(**said)


def test_no_more_processes_are_started_than_cores_can_carry(monkeypatch) -> None:
    monkeypatch.setattr(runtime, "cores", lambda: 3)
    assert len(Engine.of(devices="cpu:12").places()) == 12
    for devices in ("cpu:13", "cpu:1000000", "cpu:7,cpu:6", "cpu:9" + "9" * 5000):
        with pytest.raises(UserError, match=r"too much|not a device"):
            Engine.of(devices=devices)
    assert len(Engine.of("ray", "cpu:4096").places()) == 4096  # of other machines
    with pytest.raises(UserError, match="too much"):
        Engine.of("ray", "cpu:4097")


def test_the_page_lists_exactly_the_studies_that_take_an_engine() -> None:
    page = (ROOT / "docs/cluster.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    words = {
        word
        for row in rows
        if len(row) == 5
        for span in re.findall("`([^`]+)`", row[1])
        for word in span.split()
    }
    taking = {
        name
        for name, one in studies().items()
        if one.version is None and any(p.name == "engine" for p in one.parameters)
    }
    assert words - {"sample", "score", "task", "run", "study", "reproduce"} == taking


def test_places_and_refusals() -> None:
    assert Engine.of(devices="cpu:2,cuda:1") == Engine("devices", "cpu:2,cuda:1")
    assert Engine.of(devices="cpu:2,cuda:1").places() == ["cpu", "cpu", "cuda:1"]
    assert Engine.of("devices").places() == ["all"]
    shard = Engine.of(shard="0/2")
    with pytest.raises(UserError, match="A search decides"):
        shard.refuse_shard("A search")
    with pytest.raises(UserError, match="start a run anew"):
        shard.refuse_force(True)
    Engine.of("devices").refuse_shard("A search")
    shard.refuse_force(False)


def test_where_a_process_loads_the_model_itself() -> None:
    assert LOCAL.at_home("cuda:1") == "cuda:1"
    assert not LOCAL.parallel
    assert Engine.of(devices="cpu:2").at_home("cuda:1") == "cpu"
    assert Engine.of(devices="cuda:0,cpu").at_home("cuda:1") == "cpu"
    gpus = Engine.of(devices="cuda:0,cuda")
    assert (gpus.parallel, gpus.at_home("cpu"), gpus.places()) == (
        True,
        "workers",
        ["cuda:0", "cuda"],
    )
    assert Engine.of(devices="cuda:0,all").places() == ["all"]


def test_a_cluster_is_asked_for_gpus_where_no_devices_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str | None] = []
    monkeypatch.setattr(
        "strop.engine.plan.has_gpus", lambda address: asked.append(address) or address == "auto"
    )
    assert Engine.of("ray", ray_address="auto").at_home("cuda:1") == "workers"
    assert Engine.of("ray").at_home("cuda:1") == "cpu"
    assert asked == ["auto", None]
    assert Engine.of("ray", "cpu:2").at_home("cuda:1") == "cpu"
    assert Engine.of("ray", "cuda:0").at_home("cpu") == "workers"
    assert Engine.of("devices").at_home("cpu") == "workers"
    assert len(asked) == 2


def test_what_is_said_of_an_engine_is_kept() -> None:
    assert Engine.of() == LOCAL == Engine("local", None, None, None)
    assert Engine.of(gpu := Engine("ray")) is gpu
    assert Engine.of("ray", "cpu:2", "auto", "1/2") == Engine("ray", "cpu:2", "auto", Shard(1, 2))
    for said, name, to in (
        ({"ray_address": "auto"}, "ray_address", "`engine=ray`"),
        ({"engine": "local", "devices": "all"}, "devices", "`engine=devices` or `engine=ray`"),
    ):
        with pytest.raises(UserError) as caught:
            Engine.of(**said)  # type: ignore[arg-type]
        error = caught.value
        told = (f"`{name}` belongs to {to}.", f"`{name}`", f"say {to}")
        assert (error.what, error.where, error.fix) == told
    with pytest.raises(UserError, match="not a device") as caught:
        Engine.of(devices="cpu:1,")
    assert caught.value.got == "nothing"


def test_a_shard_takes_its_own_units_and_everybody_else_all() -> None:
    units = cut([[[4, 5], [2]], [[0]]])
    assert [unit.first for unit in units] == [4, 2, 0]
    assert LOCAL.own(units) == units
    assert Engine.of(shard="1/2").own(units) == [units[1]]
    with pytest.raises(UserError) as caught:
        Engine.of(shard="1/2").refuse_shard("A search")
    assert str(caught.value.got) == "1/2"
    LOCAL.refuse_force(True)


def test_a_dry_run_notes_draws_and_stops() -> None:
    stop_if_planning("outside")
    with planning() as noted:
        for draw in ("one", None, "two"):
            with pytest.raises(Elsewhere, match="dry run"):
                stop_if_planning(draw)
        with planning() as inner, pytest.raises(Elsewhere):
            stop_if_planning("three")
    assert (noted, inner) == (["one", "two"], ["three"])
    stop_if_planning("outside")


def test_every_part_is_done_before_the_first_refusal_is_told() -> None:
    done: list[int] = []

    def work() -> None:
        with all_parts() as part:
            for number in range(4):
                with part():
                    done.append(number)
                    if number in (1, 2):
                        raise Elsewhere(f"part {number}")

    with pytest.raises(Elsewhere, match="part 1"):
        work()
    assert done == [0, 1, 2, 3]
    with all_parts() as part, part():
        done.append(4)
    assert done[-1] == 4
    with pytest.raises(ValueError, match="other"), all_parts() as part, part():
        raise ValueError("other")


@pytest.mark.parametrize(("lacking", "rest"), [(8, ""), (9, "; and 1 more"), (11, "; and 3 more")])
def test_of_many_cells_eight_are_named(tmp_path: Path, lacking: int, rest: str) -> None:
    missing = {f"{k:08d}zzz": {0} for k in range(lacking)} | {"whole": set()}
    with pytest.raises(Elsewhere) as caught:
        refuse_missing(tmp_path, missing, "scores")
    assert caught.value.what == f"{lacking} of {lacking + 1} cells lack scores."
    assert caught.value.got == "; ".join(f"cell {k:08d}: 0" for k in range(8)) + rest
    with pytest.raises(Elsewhere, match="1 of 1 cells lack outputs"):
        refuse_missing(tmp_path, {"a": {1}})


def test_a_shard_by_its_environment() -> None:
    slurm = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_COUNT": "2"}
    both = {**slurm, "RANK": "0", "WORLD_SIZE": "9"}
    assert Shard.read("auto", both) == Shard(1, 2)
    half = {"SLURM_ARRAY_TASK_ID": "1", "RANK": "0", "WORLD_SIZE": "9"}
    assert Shard.read("auto", half) == Shard(0, 9)
    with pytest.raises(UserError, match="which shard"):  # below the least
        Shard.read("auto", {**slurm, "SLURM_ARRAY_TASK_MIN": "2"})
    assert Shard.read("auto", {**half, "SLURM_ARRAY_TASK_COUNT": "x"}) == Shard(0, 9)
    for lone in ({"RANK": "0"}, {"WORLD_SIZE": "2"}):
        with pytest.raises(UserError, match="which shard"):
            Shard.read("auto", lone)
    assert Shard.read("1/2", {}) == Shard(1, 2)
