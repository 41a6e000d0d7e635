"""One account of looks for each pair of sides in a directory, however it is asked."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from strop.comparing.outputs import Named, kept_lists, look_number
from strop.errors import UserError
from strop.verbs.compare import STUDY
from strop.verbs.study import Ask

USUAL: dict[str, Any] = {
    "n": 64,
    "margin": 0.03,
    "seed": 0,
    "temperature": (0.8, 0.9, 1.0),
    "judge": None,
    "vendi": "off",
    "evaluator": "embedded:tales-ar",
    "budget": 0,
    "device": "cpu",
}


def side(source: str, space: tuple[str, ...] = ("temperature=0.7:1.1",), **sampler: Any) -> Any:
    return SimpleNamespace(model=None, named=Named("pool", source, sampler, space))


def look(
    out: Path, a: Any = None, b: Any = None, budgets: tuple[int, ...] = (16,), **more: Any
) -> int:
    (out / "runs").mkdir(exist_ok=True)
    ask = Ask(STUDY, out, ("", ""), {**USUAL, **more})
    return look_number(ask, [a or side("one"), b or side("two")], budgets)


@pytest.mark.parametrize(
    "other",
    [
        {"n": 128},
        {"margin": 0.1},
        {"seed": 1},
        {"temperature": (0.8, 1.0, 1.2)},
        {"judge": "offline"},
        {"vendi": "on"},
        {"evaluator": "gpt2"},
        {"budget": 64},
        {"budgets": (16, 64)},
        {"a": side("one", ("temperature=0.5:1.1",))},
    ],
)
def test_asking_in_another_way_is_another_look(tmp_path: Path, other: dict[str, Any]) -> None:
    assert look(tmp_path) == 1
    assert look(tmp_path, **other) == 2
    assert look(tmp_path, **other) == 2
    assert look(tmp_path) == 1
    assert look(tmp_path, n=1024) == 3


def test_the_same_asked_again_or_the_other_way_round_is_no_look(tmp_path: Path) -> None:
    assert look(tmp_path) == 1
    assert look(tmp_path, side("two"), side("one")) == 1
    assert look(tmp_path, device="cuda") == 1
    assert len(json.loads((tmp_path / "runs" / "looks.json").read_text())) == 1


def test_other_sides_have_an_account_of_their_own(tmp_path: Path) -> None:
    assert look(tmp_path) == look(tmp_path, side("three")) == 1
    assert look(tmp_path, side("one", eta=0.1)) == 1
    assert look(tmp_path, side("three"), n=128) == 2


# ---------------------------------------------------------------- what is kept


def weighed(sha256: str, source: str = "x", kind: Any = "checkpoint", **sampler: Any) -> Any:
    model = SimpleNamespace(spec=SimpleNamespace(sha256=sha256))
    return SimpleNamespace(model=model, named=Named(kind, source, sampler, ("eta=0.1,0.2",)))


def test_the_file_of_an_account_stays_readable(tmp_path: Path) -> None:
    """Other hashes would begin every account anew: whoever has looked is told so no more."""
    path = tmp_path / "runs" / "looks.json"
    look(tmp_path)
    look(tmp_path, weighed("a" * 64, eta=0.1, name="remdm-cap"), seed=Path("b"))
    assert json.loads(path.read_text()) == {
        "0d489415120f": [51576379448720],
        "779ef2fa0175": [3144568260311],
    }


def test_weights_are_what_they_are_whatever_they_are_called(tmp_path: Path) -> None:
    first = weighed("a" * 64, "x")
    assert look(tmp_path, first) == 1
    assert look(tmp_path, weighed("a" * 64, "y"), n=1) == 2  # the same side: one account
    assert look(tmp_path, weighed("b" * 64, "x"), n=1) == 1
    assert look(tmp_path, weighed("a" * 64, "x", "texts"), n=1) == 1
    assert look(tmp_path, weighed("a" * 64, "x", eta=0.1), n=1) == 1
    assert look(tmp_path, weighed("a" * 64, "x", eta=0.2), n=1) == 1
    assert look(tmp_path, side("x"), n=1) == 1
    assert look(tmp_path, side("two"), first) == 1  # in either order
    assert look(tmp_path, first, side("two"), n=2) == 3


def test_how_sides_are_said_and_where_it_runs_is_no_other_question(tmp_path: Path) -> None:
    said = {"a": "one", "b": "two", "a_space": ["x"], "b_space": ["y"], "force": True}
    assert look(tmp_path) == 1
    ask = Ask(STUDY, tmp_path, ("", ""), {**USUAL, **said})
    assert look_number(ask, [side("one"), side("two")], (16,)) == 1
    for name in said:
        ask = Ask(STUDY, tmp_path, ("", ""), {**USUAL, name: "other"})
        assert look_number(ask, [side("one"), side("two")], (16,)) == 1, name
    smoke = Ask(STUDY, tmp_path, ("", ""), USUAL, smoke=True)
    assert look_number(smoke, [side("one"), side("two")], (16,)) == 2
    turned = {"seed": 0, **{name: USUAL[name] for name in reversed(USUAL)}}
    assert (
        look_number(Ask(STUDY, tmp_path, ("", ""), turned), [side("two"), side("one")], (16,)) == 1
    )


@pytest.mark.parametrize(
    "content", ["no JSON", "[1]", '{"a": ["x"]}', '{"a": [1], "b": [1.5]}', '{"a": 1}']
)
def test_an_account_that_cannot_be_read_is_told(tmp_path: Path, content: str) -> None:
    path = tmp_path / "looks.json"
    assert kept_lists(path) == {}
    path.write_text('{"a": [1, 2], "b": []}')
    assert kept_lists(path) == {"a": [1, 2], "b": []}
    path.write_text(content)
    with pytest.raises(UserError) as caught:
        kept_lists(path)
    assert caught.value.fix == f"restore {path}, or start anew with `force`"
