"""The rules of proposals one by one: shares of the budget, what Optuna is asked and told."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from strop.errors import UserError
from strop.rng import derive_seed
from strop.spec import SamplerSpec
from strop.stats.resample import mean
from strop.tuning import race as race_module
from strop.tuning.race import Arm, Drawn, Limit, Proposer, Rules, search
from strop.tuning.space import Axis, Space

optuna = pytest.importorskip("optuna")

FIXED = {"steps": 4}
WIDE = Space.of(["temperature=0.6:1.1"], "ancestral", FIXED)
RULES = Rules(limits=(Limit("entropy", ">=", 4.2),))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a search asks of the race and of the proposer, in turn."""
    heard: list[Any] = []

    class Race:
        def __init__(self, measure: Any, rules: Rules, budget: int) -> None:
            heard.append(("race", measure, rules, budget))

        def run(self, *given: Any) -> None:
            heard.append(("run", *given))

    class Waves:
        def __init__(self, *given: Any) -> None:
            heard.append(("proposer", *given))

        def wave(self, number: int) -> str:
            return f"wave {number}"

        def tell(self, number: int, race: Any) -> None:
            heard.append(("tell", number, type(race)))

    monkeypatch.setattr(race_module, "Race", Race)
    monkeypatch.setattr(race_module, "Proposer", Waves)
    heard.append(Race)
    return heard


@pytest.mark.parametrize(
    ("budget", "shares"),
    [(512, [102, 204, 307, 409]), (255, [127]), (256, [85, 170]), (20, [10])],
)
def test_every_wave_has_its_share_of_the_budget(
    calls: list[Any], tmp_path: Path, budget: int, shares: list[int]
) -> None:
    """A wave costs 8 candidates of 8 outputs, and as much again for the doubtful."""
    search(WIDE, "measure", RULES, budget=budget, folder=tmp_path, seed=3)  # type: ignore[arg-type]
    race, *rest = calls
    expected: list[Any] = [("race", "measure", RULES, budget)]
    expected.append(("proposer", WIDE, RULES, tmp_path, 3))
    for number, share in enumerate(shares):
        expected += [("run", f"wave {number}", share), ("tell", number, race)]
    assert rest == [*expected, ("run",)]


def test_a_space_that_can_be_counted_is_tried_whole_or_a_random_part(
    calls: list[Any], tmp_path: Path
) -> None:
    small = Space.of(["temperature=0.6,0.7,0.8,0.9,1"], "ancestral", FIXED)
    every = small.settings(32) or []
    assert len(every) == 5
    search(small, "measure", RULES, budget=40, folder=tmp_path)  # type: ignore[arg-type]
    assert calls[1:] == [("race", "measure", RULES, 40), ("run", every)]
    for given, seed in (({}, 0), ({"seed": 7}, 7)):
        search(small, "measure", RULES, budget=39, folder=tmp_path, **given)  # type: ignore[arg-type]
        shuffled = list(every)
        random.Random(derive_seed(seed, "enumerate")).shuffle(shuffled)
        assert shuffled != every
        assert calls[-1] == ("run", shuffled)
    search(small, "measure", RULES, budget=40, folder=tmp_path, enumerated=5)  # type: ignore[arg-type]
    assert calls[-1] == ("run", every)
    search(small, "measure", RULES, budget=40, folder=tmp_path, enumerated=4)  # type: ignore[arg-type]
    assert calls[-1] == ("run",)  # after waves


def test_thirty_two_settings_are_all_tried(calls: list[Any], tmp_path: Path) -> None:
    for count, whole in ((32, True), (33, False)):
        values = ",".join(f"{0.5 + k / 100:g}" for k in range(count))
        some = Space.of([f"temperature={values}"], "ancestral", FIXED)
        search(some, "measure", RULES, budget=999, folder=tmp_path)  # type: ignore[arg-type]
        assert (len(calls[-1]) == 2) is whole


def test_a_journal_is_of_one_space_rules_and_seed(tmp_path: Path) -> None:
    """The name is kept in journals: another one would begin them anew."""
    usual = Proposer(WIDE, RULES, tmp_path, 0)
    assert usual._name == "101f511aa81f4efe"
    others = [
        replace(RULES, best="max"),
        replace(RULES, limits=()),
        replace(RULES, first=16),
        replace(RULES, most=65),
        replace(RULES, tolerance=0.01),
    ]
    names = {Proposer(WIDE, one, tmp_path, 0)._name for one in others}
    names |= {Proposer(WIDE, RULES, tmp_path, 1)._name, usual._name}
    other = Space.of(["temperature=0.6:1.2"], "ancestral", FIXED)
    names.add(Proposer(other, RULES, tmp_path, 0)._name)
    assert len(names) == 8
    assert Proposer(WIDE, RULES, tmp_path / "x", 0)._name == usual._name


# ---------------------------------------------------------------- what Optuna is asked and told


def test_the_sampler_of_a_proposal_has_its_number_in_its_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(optuna.samplers, "TPESampler", lambda **how: made.append(how) or "tpe")
    monkeypatch.setattr(optuna, "create_study", lambda **how: how)
    proposer = Proposer(WIDE, RULES, tmp_path, 5)
    study = proposer._study("storage", 11)
    how = {"storage": "storage", "sampler": "tpe", "study_name": proposer._name}
    assert study == {**how, "load_if_exists": True}
    [sampler] = made
    limited = sampler.pop("constraints_func")
    assert sampler == {
        "seed": derive_seed(5, "propose", 11) % 2**32,
        "n_startup_trials": 8,
        "multivariate": True,
        "group": True,
        "constant_liar": True,
    }
    assert limited(SimpleNamespace(user_attrs={})) == [0.0]
    assert limited(SimpleNamespace(user_attrs={"excess": [0.5]})) == [0.5]
    Proposer(WIDE, Rules(), tmp_path, 5)._study("storage", 0)
    assert made[1]["constraints_func"] is None


def test_what_became_of_a_wave_is_told(tmp_path: Path) -> None:
    """Where more is better Optuna, which seeks the least, is told minus the value."""
    rules = replace(RULES, best="max")
    proposer = Proposer(WIDE, rules, tmp_path, 0)
    wave = proposer.wave(0)
    assert len(wave) == 8
    assert len(set(wave)) == 8
    assert wave[0] == SamplerSpec(steps=4)  # the usual setting
    arms = {
        spec: Arm(spec, Drawn(mean(np.full(8, 2.0 + k)), (mean(np.full(8, 4.0)),)))
        for k, spec in enumerate(wave[:3])
    }
    race: Any = SimpleNamespace(arms=arms)
    proposer.tell(0, race)
    with proposer._journal() as storage:
        trials = proposer._study(storage, 8).trials
        assert len(trials) == 8
        assert [one.value for one in trials] == [-2.0, -3.0, -4.0, *[None] * 5]
        assert [one.user_attrs["spec"] for one in trials] == [
            spec.model_dump(mode="json") for spec in wave
        ]
        excess = [one.user_attrs.get("excess") for one in trials]
        assert excess == [[pytest.approx(0.2)]] * 3 + [None] * 5
        assert {one.state.name for one in trials[3:]} == {"FAIL"}
    proposer.tell(0, race)  # told already: nothing happens
    second = proposer.wave(1)
    assert len(second) == 8
    assert not set(second) & set(wave)
    assert proposer.wave(1) == second
    assert Proposer(WIDE, rules, tmp_path, 0).wave(0) == wave
    verbosity = optuna.logging.get_verbosity()
    with proposer._journal():
        assert optuna.logging.get_verbosity() == optuna.logging.ERROR
    assert optuna.logging.get_verbosity() == verbosity != optuna.logging.ERROR


class Trial:
    """Keeps what is asked of it, and answers with the lowest or the first."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def suggest_categorical(self, name: str, values: Any) -> Any:
        self.asked.append((name, values))
        return values[0]

    def suggest_int(self, name: str, low: int, high: int, *, step: int, log: bool) -> int:
        self.asked.append((name, low, high, step, log))
        return low

    suggest_float = suggest_int


@pytest.mark.parametrize(
    ("axis", "asked", "value"),
    [
        (Axis.parse("top_p=1,0.9"), ("top_p", (1, 0.9)), 1),
        (
            Axis.parse("temperature=0.61234:1.1"),
            ("temperature", 0.61234, 1.1, None, False),
            0.61234,
        ),
        (Axis.parse("eta=0.01:0.1:log"), ("eta", 0.01, 0.1, None, True), 0.01),
        (Axis.parse("temperature=0.6:1:0.2"), ("temperature", 0.6, 1.0, 0.2, False), 0.6),
        (replace(Axis.parse("steps=2:9"), whole=True), ("steps", 2, 9, 1, False), 2),
        (replace(Axis.parse("steps=2:9:3"), whole=True), ("steps", 2, 9, 3, False), 2),
        (replace(Axis.parse("steps=2:9:log"), whole=True), ("steps", 2, 9, 1, True), 2),
    ],
)
def test_how_an_axis_is_asked_for(axis: Axis, asked: tuple[Any, ...], value: float) -> None:
    trial = Trial()
    found = race_module._suggestion(trial, axis)
    assert trial.asked == [asked]
    assert [type(one) for one in trial.asked[0]] == [type(one) for one in asked]
    assert found == value


def test_the_usual_setting_comes_first_if_the_space_has_it(tmp_path: Path) -> None:
    def first(*axes: str, sampler: str = "ancestral", at: int = 0) -> tuple[Any, list[Any]]:
        trial, some = Trial(), Space.of(axes, sampler, FIXED)
        return Proposer(some, RULES, tmp_path, 0)._proposed(trial, at), trial.asked

    usual = SamplerSpec(steps=4)
    assert first("temperature=0.6:1.1") == (usual, [])
    assert first("temperature=1:1.1") == first("temperature=0.9:1") == (usual, [])
    low = SamplerSpec(steps=4, temperature=0.6)
    assert first("temperature=0.6:0.9") == (low, [("temperature", 0.6, 0.9, None, False)])
    assert first("temperature=0.6:1.1", at=1)[0] == low
    assert first("temperature=0.6,0.9")[0] == low
    assert first("temperature=0.6,1")[0] == usual
    spec, asked = first("name=remdm-cap,ancestral", "temperature=0.6:1.1", at=1)
    assert asked[0] == ("name", ("remdm-cap", "ancestral"))
    assert (spec.name, spec.temperature) == ("remdm-cap", 0.6)
    # What does not go together is nothing.
    assert first("t_on=0.3,0.6", "t_off=0.5,0.2", sampler="remdm-loop", at=1)[0] is None


# ---------------------------------------------------------------- the journal

STARTED = b'{"datetime_start": "now"}\n'
SET = b'{"user_attr": {"spec": null}}\n'
OTHER = b'{"user_attr": {"excess": [0.1]}}\n'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b""),
        (OTHER, OTHER),
        (STARTED + SET, STARTED + SET),
        (STARTED + SET + b'{"half', STARTED + SET),
        (STARTED + SET + STARTED, STARTED + SET),
        (STARTED + SET + STARTED + OTHER + b"{", STARTED + SET),
        (SET + STARTED + OTHER, SET),
        (b'{"half', b""),
    ],
)
def test_what_is_half_proposed_is_cut_off(tmp_path: Path, before: bytes, after: bytes) -> None:
    path = tmp_path / "journal.log"
    path.write_bytes(before)
    race_module._mend(path)
    assert path.read_bytes() == after
    race_module._mend(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_damaged_journal_is_told(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    path.write_bytes(b"no JSON\n" + STARTED)
    with pytest.raises(UserError, match="journal of proposals is damaged") as caught:
        race_module._mend(path)
    assert caught.value.where == str(path)
