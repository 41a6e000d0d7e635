"""Helpers of tests have names of their own, so that any rooms can be named in one call of pytest.

Rooms without an `__init__.py` share one space of module names: of two files of one name, only the
first is ever imported, and `conftest` is whichever room was read last.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent
FILES = sorted(TESTS.rglob("*.py"))


def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def test_nobody_imports_a_conftest() -> None:
    assert [str(path) for path in FILES if "conftest" in imported(path)] == []


def test_no_two_modules_share_a_name() -> None:
    alone = [one for one in FILES if not (one.parent / "__init__.py").exists()]
    names = Counter(one.stem for one in alone if one.stem != "conftest")
    assert [name for name, count in names.items() if count > 1] == []
