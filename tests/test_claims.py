"""docs/claims.md: made from its data, and its data from what the pages and the paper say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import make_claims
from strop.cli.main import build
from strop.verbs import paper

ROOT = Path(__file__).parents[1]
CLAIMS = make_claims.claims()
NUMBER = re.compile(r"\d[\d,.]*\d|\d")


def test_the_page_is_what_the_data_say() -> None:
    assert make_claims.PAGE.read_text(encoding="utf-8") == make_claims.text(), (
        "run scripts/make_claims.py"
    )
    assert "docs/claims.md" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("one", CLAIMS, ids=[str(i) for i in range(len(CLAIMS))])
def test_a_claim_names_what_its_status_needs(one: dict[str, Any]) -> None:
    assert one["says"] in ("paper", "README")
    needed = make_claims.NEEDED[one["status"]]
    assert [name for name in needed if not one.get(name)] == []
    if "numbers" in one:
        page = (ROOT / one["page"]).read_text(encoding="utf-8")
        printed = set(NUMBER.findall(page))
        assert [n for n in NUMBER.findall(one["numbers"]) if n not in printed] == []
        assert NUMBER.search(one["numbers"]) or one["numbers"] in page
    for table, column, where, value in one.get("printed", ()):
        assert paper.table(table).value(column, **where) == value
    for command in [one["command"]] if "command" in one else commands(one.get("needs", "")):
        assert runs(command), command


def commands(words: str) -> list[str]:
    return [one for one in re.findall(r"`([^`]+)`", words) if one.startswith("strop ")]


def runs(command: str) -> bool:
    """Whether there is such a verb, study, item, target or script."""
    first, *rest = shlex.split(command)
    if first == "make":
        return f"\n{rest[0]}:" in (ROOT / "Makefile").read_text(encoding="utf-8")
    if first != "strop":
        return (ROOT / (rest[0] if first == "python" else first)).is_file()
    here: Any = build()
    while rest and getattr(here, "commands", {}):
        here = here.commands.get(rest[0])
        if here is None:
            return False
        if rest.pop(0) == "reproduce" and rest:
            return rest[0] in paper.items()
    return True


def test_every_claim_of_the_abstract_is_there() -> None:
    """Every table and figure of the paper with a claim of its own is named by one."""
    told = " ".join(str(one) for one in CLAIMS)
    wanted = ("headline", "cross-model", "less-is-more", "posterior", "groupeval-main", "cost")
    wanted += ("exact-output", "conditional", "large-models", "overview", "theory study")
    assert [name for name in wanted if name not in told] == []
