"""Helpers of tests have names of their own, so that any rooms can be named in one call of pytest.

Rooms without an `__init__.py` share one space of module names: of two files of one name, only the
first is ever imported, and `conftest` is whichever room was read last.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

FILES = sorted(Path(__file__).parent.rglob("*.py"))
IMPORT = re.compile(r"^\s*(from|import)\s+conftest\b", re.MULTILINE)


def test_nobody_imports_a_conftest() -> None:
    assert IMPORT.search("    from conftest import Called")
    assert [str(path) for path in FILES if IMPORT.search(path.read_text())] == []


def test_no_two_modules_share_a_name() -> None:
    alone = [one for one in FILES if not (one.parent / "__init__.py").exists()]
    names = Counter(one.stem for one in alone if one.stem != "conftest")
    assert [name for name, count in names.items() if count > 1] == []
