"""docs/architecture.md and the tree: every room is in it, every file that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "strop"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def rooms() -> set[str]:
    folders = {f"{path.parent.name}/" for path in SOURCE.glob("*/__init__.py")}
    return folders | {path.name for path in SOURCE.glob("*.py")} - {"__main__.py"}


def test_the_tree_lists_every_room_once_and_no_other():
    tree = PAGE.split("src/strop/\n", 1)[1].split("\ntests/", 1)[0]
    listed = [line.split()[0] for line in tree.splitlines()]
    assert len(listed) == len(set(listed))
    assert set(listed) == rooms()


def test_every_file_that_is_named_exists():
    named = re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`", PAGE)
    assert len(named) > 30
    outside = ("tests/", "scripts/", "benchmarks/", "cells/")
    missing = [
        name
        for name in named
        if not ((ROOT if name.startswith(outside) else SOURCE) / name).exists()
        and not (SOURCE / "tasks" / name).exists()  # inside/
        and not (SOURCE / "samplers" / name).exists()  # machinery/
    ]
    assert missing == []
