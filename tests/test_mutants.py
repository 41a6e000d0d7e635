"""The list of modules for `make mutants`, and the parts of its script; a run takes an hour."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
MODULES: dict[str, Any] = yaml.safe_load((ROOT / "scripts" / "mutants.yaml").read_text())


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import mutants

    yield mutants
    for name in ("mutants", "mutant_texts"):
        sys.modules.pop(name, None)


def test_every_module_and_the_tests_that_watch_it_are_there() -> None:
    lost = [name for name in MODULES if not (ROOT / "src" / "strop" / name).is_file()]
    assert lost == [], "give them their new paths in scripts/mutants.yaml"
    for name, entry in MODULES.items():
        assert set(entry) <= {"tests", "equivalent"}, name
        for test in entry["tests"]:
            assert (ROOT / test).is_file(), f"{name}: {test}"
        for key, reason in (entry.get("equivalent") or {}).items():
            assert isinstance(key, str), f"{name}: {key} needs quotes"
            assert len(key) == 8
            assert len(reason) > 10


SOURCE = '''"""Words."""

MOST = 3


class Shop:
    """Words."""

    @property
    def price(self) -> int:
        """Words that are "not" changed."""
        return self.cost + 1

    def __init__(self, cost: int = 5) -> None:
        self.cost = cost


def enough(n: int) -> bool:
    if n < 0:
        raise ValueError("below 0")
    return n >= MOST
'''


def test_what_is_changed_is_what_makes_numbers(script: Any) -> None:
    mutants = script.mutants_of(SOURCE)
    assert sorted((one.change, one.inside) for one in mutants) == [
        ("(definitions): 5 -> 6", False),
        ("MOST: 3 -> 4", True),
        ("MOST: MOST = 3 -> MOST = None", True),
        ("Shop.__init__: self.cost = cost -> self.cost = None", True),
        ("Shop.price: 1 -> 2", True),
        ("Shop.price: self.cost + 1 -> self.cost - 1", True),
        ("enough: 0 -> 1", True),
        ("enough: < 0 -> <= 0", True),
        ("enough: >= MOST -> > MOST", True),
    ]
    assert [one.id for one in mutants] == sorted({one.id for one in mutants})
    # Ids do not depend on where a function stands.
    moved = script.mutants_of(SOURCE.replace("MOST = 3", "\n\nMOST = 3"))
    assert [one.id for one in moved] == [one.id for one in mutants]


def test_a_change_reaches_what_is_already_imported(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("made_shop")
    monkeypatch.setitem(sys.modules, "made_shop", module)
    exec(compile(SOURCE, "made_shop.py", "exec", dont_inherit=True), vars(module))
    enough, price = module.enough, module.Shop.price
    by_change = {one.change: one for one in script.mutants_of(SOURCE)}
    live = [enough, price.fget, module.Shop.__init__]
    assert (enough(3), module.Shop().price) == (True, 6)
    changed = by_change["Shop.price: self.cost + 1 -> self.cost - 1"].source
    script.transplant("made_shop.py", SOURCE, changed, live)
    assert (enough(3), module.Shop().price) == (True, 4)
    changed = by_change["enough: >= MOST -> > MOST"].source
    script.transplant("made_shop.py", SOURCE, changed, live)
    assert (enough(3), enough(4)) == (False, True)
    script.reassign(module, "MOST", by_change["MOST: 3 -> 4"].source)
    assert (enough(4), enough(5)) == (False, True)


def test_what_a_copy_ends_with_is_the_verdict(script: Any) -> None:
    def endless() -> int:
        while True:
            pass

    def raised() -> int:
        raise SystemExit(0)

    assert script.in_a_copy(lambda: 0, 60)[0] == script.SURVIVED
    assert script.in_a_copy(lambda: 1, 60)[0] == script.KILLED
    assert script.in_a_copy(raised, 60)[0] == script.KILLED
    assert script.in_a_copy(endless, 0.1)[0] == script.HUNG


MADE = """LIMIT = 3


def items():
    return [1, 2]


def below(n):
    return n < LIMIT


def twice(n):
    return 2 * n
"""
WATCHING = """import importlib.util, sys
from pathlib import Path

path = Path(__file__).parents[1] / "src" / "strop" / "made.py"
spec = importlib.util.spec_from_file_location("strop.made", path)
sys.modules["strop.made"] = made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)
ITEMS, MOST = made.items(), made.LIMIT + 1


def test_items():
    assert ITEMS == [1, 2]


def test_limit():
    assert MOST == 4
"""


def test_what_tests_hold_since_they_were_imported_is_seen_to_change(
    script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A function that was called before the first test, and a constant that another is made of."""
    monkeypatch.setattr(script, "RESULTS", tmp_path / "results")
    tree = tmp_path.resolve() / "tree"
    for file, text in (("src/strop/made.py", MADE), ("tests/test_made.py", WATCHING)):
        (tree / file).parent.mkdir(parents=True)
        (tree / file).write_text(text)
    script.run_module(tree, "made.py", {"tests": ["tests/test_made.py"]})
    runs = script.read_results("made.py")["runs"].values()
    assert {run["change"]: run["state"] for run in runs} == {
        "LIMIT: 3 -> 4": "killed",
        "LIMIT: LIMIT = 3 -> LIMIT = None": "killed",
        "items: 1 -> 2": "killed",
        "items: 2 -> 3": "killed",
        "below: < LIMIT -> <= LIMIT": "uncalled",
        "twice: 2 -> 3": "uncalled",
        "twice: 2 * n -> 2 / n": "uncalled",
    }
    assert (tree / "src/strop/made.py").read_text() == MADE


def test_the_table_leaves_equivalents_out_of_the_share(
    script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(script, "RESULTS", tmp_path)
    states = {"a": "killed", "b": "hung", "c": "survived", "d": "uncalled", "e": "survived"}
    runs = {key: {"state": one, "line": 7, "change": "f: 1 -> 2"} for key, one in states.items()}
    script.write_results("stats/made.py", {"all": 9, "runs": runs})
    modules = {
        "stats/made.py": {"tests": [], "equivalent": {"e": "why", "a": "was killed after all"}}
    }
    assert "| `stats/made.py` | 9 | 5 | 2 | 2 | 1 | 50% |" in script.table(modules)
    modules["stats/later.py"] = {"tests": []}
    assert script.table(modules).endswith(
        "| 50% |\n\nNot run, or not since they changed: `stats/later.py`.\n"
    )
    # A row of the page stands if more was run, and the module has as many mutants as then.
    monkeypatch.setattr(script, "ROOT", tmp_path)
    (tmp_path / "src" / "strop" / "stats").mkdir(parents=True)
    for name in ("made", "later"):
        (tmp_path / "src" / "strop" / "stats" / f"{name}.py").write_text(SOURCE)
    size = len(script.mutants_of(SOURCE))
    page = f"| `stats/made.py` | {size} | 4 | 4 | 0 | 0 | 100% |\n"
    page += f"| `stats/later.py` | {size} | 6 | 5 | 1 | 0 | 83% |\n| all | 1 | 1 | 1 | 0 | 0 | 1% |"
    found = script.table(modules, page)
    assert f"| `stats/later.py` | {size} | 6 | 5 | 1 | 0 | 83% |" in found
    assert "| `stats/made.py` | 9 | 5 |" in found  # the results have run more
    assert f"| all | {size + 9} | 11 | 7 | 3 | 1 | 70% |" in found
    assert "later.py` | " not in script.table(modules, page.replace(f"| {size} |", "| 999 |"))
    assert list(script.survivors(modules)) == [
        "c survived stats/made.py:7 f: 1 -> 2",
        "d uncalled stats/made.py:7 f: 1 -> 2",
    ]
