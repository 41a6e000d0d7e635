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
from strop.verbs.truth import QUESTIONS

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
    if "--question" in rest and rest[rest.index("--question") + 1] not in QUESTIONS:
        return False
    here: Any = build()
    while rest and getattr(here, "commands", {}):
        here = here.commands.get(rest[0])
        if here is None:
            return False
        if rest.pop(0) == "reproduce" and rest:
            return rest[0] in paper.items()
    return True


GRIDS = {"grid-small-late", "grid-small-early", "grid-tiny-late", "frontier"}
"""Tables of the appendix that carry no claim of their own."""


def test_every_table_and_figure_with_a_claim_is_named() -> None:
    told = " ".join(str(one) for one in CLAIMS)
    wanted = {name for name in paper.items() if not name.startswith("less-is-more-")} - GRIDS
    wanted = (wanted - {"exact-repair"}) | {"theory pair", "theory study", "theory verify"}
    wanted |= {"theory collisions", "study collapse", "models certify"}
    assert sorted(name for name in wanted if name not in told) == []


@pytest.mark.parametrize(
    "number",
    # The abstract, the introduction and the headlines of the sections, in the paper's order.
    [
        "102.2",
        "107.1",
        "1.5 to 4.7",
        "41.3",
        "53.1",
        "51.2",
        "34.5",
        "2 to 8",
        ".036 to .068",
        "2.6 to 3.8",
        "4.9 times",
        "40%",
        "17% faster",
        "44.5",
        "about halves",
        ".43 to .62",
        "1.4 to 1.9",
        "at most two outputs",
        "20 of 20",
        "16 of 20",
        "13 of the 20",
        "13.3 to 6.6%",
        "4.73 to 5.74",
        "256",
        ".91",
        ".44 to .62",
        "B + C - R",
        "63%",
        "279 of 280",
        "2.59",
        "1 or 1.05",
        "LLaDA",
        "MDLM-Tiny",
    ],
)
def test_what_the_paper_says_first_is_a_claim_of_the_paper(number: str) -> None:
    assert any(number in one["claim"] for one in CLAIMS if one["says"] == "paper")


@pytest.mark.parametrize(
    ("number", "told"),
    # "What is known", and what README says of times: in its words, and in the ledger's.
    [
        ("16 sharpened steps reach", "16 sharpened steps do"),
        ("saves 7% of the mistakes", "saves 7 and 41% of the violations"),
        ("(1.06 against 2.11 mistakes a text", "-1.06 [-1.16, -0.95] violations"),
        ("0.10 [0.08, 0.12]", "0.10 [0.08, 0.12]"),
        (".74 [.71, .77]", ".74 [.71, .77]"),
        ("none of 900 verdicts", "none of 900 trials"),
        ("two minutes on two cores", "two minutes on two cores"),
        ("have the law of the public codes", "law of the public code"),
        ("are replayed bit for bit", "replayed runs"),
        ("with the same outputs", "the same outputs"),
    ],
)
def test_what_readme_says_is_known_is_a_claim_of_it(number: str, told: str) -> None:
    assert number in (ROOT / "README.md").read_text(encoding="utf-8")
    mine = [str(one) for one in CLAIMS if one["says"] == "README"]
    assert any(told in one for one in mine)
