"""One account of looks for each pair of sides in a directory, however it is asked."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from strop.comparing.looks import look_number
from strop.comparing.outputs import Named
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
