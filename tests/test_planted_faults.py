"""The list of planted faults points at code and tests that are there; planting takes minutes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script() -> Any:
    place = ROOT / "scripts" / "planted-faults.py"
    spec = importlib.util.spec_from_file_location("planted_faults", place)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look for their names
    spec.loader.exec_module(module)
    return module


def test_every_fault_can_be_planted_and_changes_something(script: Any) -> None:
    lost = [one.what for one in script.FAULTS if script.times(one) != 1]
    assert lost == [], "give them their new file or text in scripts/planted-faults.py"
    assert all(one.new != one.old for one in script.FAULTS)
    assert len({one.what for one in script.FAULTS}) == len(script.FAULTS) >= 12


def test_every_test_that_must_notice_is_there(script: Any) -> None:
    for one in script.FAULTS:
        for test in one.tests:
            file, _, name = test.partition("::")
            assert f"def {name}" in (ROOT / file).read_text(), test


def test_a_text_that_is_gone_is_no_success(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = script.Fault("gone", "rng.py", "no such text", "", ("tests/test_rng.py",))
    monkeypatch.setattr(script, "FAULTS", (gone,))
    assert script.main([]) == 3
    assert "rng.py: the text of 'gone' is there 0 times, not once" in capsys.readouterr().out
    assert script.main(["nothing of the kind"]) == 3


@pytest.mark.parametrize(
    ("code", "state", "end"), [(1, "red", 0), (0, "GREEN", 3), (2, "BROKEN", 3)]
)
def test_only_a_red_test_is_a_success(
    script: Any,
    code: int,
    state: str,
    end: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """What pytest says of each tree, given by hand: first of the sound one, then of the fault."""
    one = script.Fault("a sign", "made.py", "a + b", "a - b", ("tests/test_made.py",))
    place = tmp_path / one.path
    place.parent.mkdir(parents=True)
    place.write_text("c = a + b\n")
    seen: list[str] = []

    def pytest_says(tree: Path, tests: tuple[str, ...], turns: int = 1) -> tuple[int, str]:
        seen.append((tree / one.path).read_text())
        return (code, "said") if "-" in seen[-1] else (0, "")

    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script, "FAULTS", (one,))
    monkeypatch.setattr(script, "pytest_says", pytest_says)
    assert script.main([]) == end
    assert seen == ["c = a + b\n", "c = a - b\n"]
    assert place.read_text() == "c = a + b\n"
    assert f"{state:6}" in capsys.readouterr().out
    # Tests that are red without a fault say nothing about it.
    monkeypatch.setattr(script, "pytest_says", lambda *_: (1, "said"))
    assert script.main([]) == 3
