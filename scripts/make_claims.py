"""Write docs/claims.md: every claim and what is known of it, from docs/claims.yaml.

scripts/make_claims.py            write the page
scripts/make_claims.py --check    exit code 3 if it is not what the data say
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

DOCS = Path(__file__).parents[1] / "docs"
DATA, PAGE = DOCS / "claims.yaml", DOCS / "claims.md"
NEEDED = {
    "shown here": ("command", "page", "numbers", "date"),
    "shown elsewhere": ("source",),
    "does not hold here": ("command", "page", "numbers", "date", "why"),
    "open": ("needs",),
}
"""The answers in the order of the page, and what each has to name."""
HEAD = """# What is claimed, and what is known of it

Words: [glossary](glossary.md). Made from `docs/claims.yaml` by `scripts/make_claims.py`.

Every claim of [the paper](../CITATION.cff) and of [README](../README.md). *Shown here*: by a
command that runs with what ships, on small models unless it says otherwise. *Shown elsewhere*:
others measured it. *Does not hold here*: it was tried on what ships. *Open*: what it needs. Nothing
was run on released weights or on a GPU.
"""


def claims() -> list[dict[str, Any]]:
    """All of them."""
    return yaml.safe_load(DATA.read_text(encoding="utf-8"))


def text() -> str:
    """The page."""
    every = claims()
    parts = [HEAD]
    counted = ", ".join(f"{sum(c['status'] == s for c in every)} {s}" for s in NEEDED)
    parts.append(f"{len(every)} claims: {counted}.\n")
    for status in NEEDED:
        mine = [one for one in every if one["status"] == status]
        parts.append(f"## {status.capitalize()}\n\n| claim | of | what is known |\n|---|---|---|")
        parts += [f"| {_cell(c['claim'])} | {c['says']} | {_cell(_known(c))} |" for c in mine]
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _known(one: dict[str, Any]) -> str:
    found = []
    if "numbers" in one:
        page = one["page"].removeprefix("docs/")
        place = f"../{page}" if page == "README.md" else page
        found.append(f"{one['numbers']} ([{page}]({place}), {one['date']})")
    found += [str(one[name]) for name in ("source", "needs", "why") if name in one]
    if "command" in one:
        found.append(f"`{one['command']}`")
    return "; ".join(found)


def _cell(words: str) -> str:
    return words.replace("|", "\\|")


def main() -> int:
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.read_text(encoding="utf-8") == text() else 3
    PAGE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
