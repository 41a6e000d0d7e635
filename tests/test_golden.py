"""What scripts/golden.py calls a difference, and what its table lets pass."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from golden import select
from golden_compare import Table, compare, values


def answer(files: dict[str, Any], exit_code: int = 0) -> dict[str, Any]:
    return {"exit": exit_code, "stdout": [], "stderr": ["no"], "files": files}


def differences(old: dict[str, Any], new: dict[str, Any], **rules: Any) -> list[str]:
    table = Table.read({name: [{"why": "", **one} for one in some] for name, some in rules.items()})
    was, now = (values("audit", answer(side), table) for side in (old, new))
    return [str(one) for one in compare(was, now, table)]


OLD = {"audit.json": {"rows": [{"x": 2.0, "x_low": 1.0, "id": "a"}], "seconds": 3.0}}
NEW = {"result.json": {"rows": [{"x": {"value": 2.0, "low": 1.0}, "id": "a"}], "seconds": 4.0}}
RENAMED = {
    "left_out": [{"at": r"[ .]seconds$"}],
    "files": [{"at": "audit\\.json$", "to": "result.json"}],
    "keys": [{"at": r"_low$", "to": ".low"}, {"at": r"$", "to": ".value"}],
}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (1.0, 1.0 + 1e-10, 0),
        (1.0, 1.0 + 1e-8, 1),
        (0.0, 1e-16, 0),
        (7, 8, 1),
        (7, 7.0, 0),
        (True, 1, 1),
        (None, 0, 1),
        ("a", "b", 1),
        ([1, 2], [1], 1),
        ({}, {"k": None}, 2),
    ],
)
def test_values_are_compared_by_kind(old: Any, new: Any, expected: int) -> None:
    assert len(differences({"f": {"v": old}}, {"f": {"v": new}})) == expected


def test_what_the_table_says_is_no_difference() -> None:
    assert differences(OLD, NEW, **RENAMED) == []
    [missing, added] = differences(OLD, NEW)
    assert missing.startswith("audit: audit.json: (whole): '(written)' -> '(not there)'")
    assert added.startswith("audit: result.json: (whole)")


def test_renamed_values_are_compared_where_they_are_now() -> None:
    wrong = {"result.json": {"rows": [{"x": {"value": 2.0, "low": 1.1}, "id": "a"}]}}
    [one] = differences(OLD, wrong, **RENAMED)
    assert one == "audit: result.json: rows[0].x.low: 1.0 -> 1.1"


def test_what_is_gone_new_or_moved_needs_a_rule() -> None:
    old, new = {"f": {"gone": 1, "moved": 1.0}}, {"f": {"new": 1, "moved": 1.05}}
    assert len(differences(old, new)) == 3
    rules = {"dropped": [{"at": "gone$"}], "added": [{"at": "new$"}]}
    assert differences(old, new, **rules) == ["audit: f: moved: 1.0 -> 1.05"]
    assert differences(old, new, **rules, moved=[{"at": "moved$", "within": 0.1}]) == []
    assert len(differences(old, new, **rules, moved=[{"at": "moved$", "within": 0.01}])) == 1


def test_a_failure_is_compared_with_its_words() -> None:
    table = Table.read({})
    done, failed = (values("audit", answer({}, code), table) for code in (0, 1))
    assert len(compare(done, failed, table)) == 2


def test_a_command_brings_those_that_it_builds_on() -> None:
    commands = {
        "sample": "sample -o runs/a",
        "other": "sample -o runs/b",
        "score": "score runs/a",
        "report": "report runs/a",
        "audit": "audit -o runs/c",
    }
    assert select(commands, "report") == ["sample", "score", "report"]
    assert select(commands, "") == list(commands)
