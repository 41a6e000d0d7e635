"""Text of any origin as text that can be written, stays where it is put and tells no secrets."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from pathlib import PurePath

INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode's categories of controls, formats, half surrogates and separators of lines."""
LONGEST = 48
"""Characters of a name in a figure; its end tells more than its beginning."""


def encodable(text: str) -> str:
    """Lone halves of surrogate pairs become U+FFFD; everything else stays."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def visible(text: str) -> str:
    """For labels: what would reorder, hide or break a line becomes U+FFFD; line breaks stay."""
    return "".join(
        c if c == "\n" or unicodedata.category(c) not in INVISIBLE else "\ufffd" for c in text
    )


def short(name: str) -> str:
    """A name from outside as a label: harmless, and no longer than a figure bears."""
    name = visible(name).replace("\n", " ")
    return name if len(name) <= LONGEST else "…" + name[1 - LONGEST :]


def place(path: str) -> str:
    """A path as a page that is passed on may show it: of an absolute one the last two parts."""
    one = PurePath(path)
    return str(PurePath(*one.parts[1:][-2:])) if one.is_absolute() and one.parts[1:] else path


def replaced(text: str, private: Mapping[str, str]) -> str:
    """The text with every private path by its public name, the longest first."""
    for path in sorted(private, key=len, reverse=True):
        text = text.replace(path, private[path])
    return text


def count(n: int, what: str) -> str:
    """`1 output`, `2 outputs`."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def listed(names: list[str], most: int = 3) -> str:
    """Some of them, and a sign that there are more."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")
