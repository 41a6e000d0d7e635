r"""Gaps in a text: `[[12]]` stands for twelve open positions.

A backslash takes a mark literally: `\[[12]]` is the text `[[12]]`. Backslashes count only right
before a mark, where each pair of them is one backslash of the text: `\\[[12]]` is a backslash and
a gap, `\\\[[12]]` a backslash and the text `[[12]]`. Everywhere else they are text like any other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from strop.bounds import MOST_LENGTH
from strop.errors import UserError

Piece = str | int
"""A stretch of text, or the size of a gap."""

# Looking back keeps a long run of backslashes from being tried at each of them.
_MARK = re.compile(r"(?<!\\)(\\*)\[\[([0-9]+)\]\]")
_LAST = re.compile(r"(?<!\\)(\\+)\Z")


def parse(text: str, where: object = None) -> tuple[Piece, ...]:
    """The text's stretches and gaps in their order; no stretch is empty, no two are neighbours."""
    pieces: list[Piece] = []
    end = 0
    for mark in _MARK.finditer(text):
        slashes, digits = mark.groups()
        pieces += [text[end : mark.start()], "\\" * (len(slashes) // 2)]
        pieces.append(f"[[{digits}]]" if len(slashes) % 2 else _size(digits, where))
        end = mark.end()
    return joined([*pieces, text[end:]])


def escape(text: str) -> str:
    """A text whose marks are to be read literally, as `parse` reads it."""
    return _MARK.sub(lambda mark: mark[1] + "\\" + mark[0], text)


def written(pieces: Sequence[Piece]) -> str:
    """The text that `parse` reads as these pieces."""
    merged, parts = joined(pieces), []
    for piece, after in zip(merged, (*merged, "")[1:], strict=True):
        if isinstance(piece, int):
            parts.append(f"[[{piece}]]")
        else:
            text = escape(piece)
            parts.append(_LAST.sub(r"\1\1", text) if isinstance(after, int) else text)
    return "".join(parts)


def joined(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The same pieces with neighbouring stretches in one and without empty ones."""
    merged: list[Piece] = []
    for piece in pieces:
        if piece == "":
            continue
        last = merged[-1] if merged else None
        if isinstance(piece, str) and isinstance(last, str):
            merged[-1] = last + piece
        else:
            merged.append(piece)
    return tuple(merged)


def _size(digits: str, where: object) -> int:
    significant = digits.lstrip("0")
    # A number of thousands of digits is not converted at all: Python refuses to.
    size = int(significant or 0) if len(significant) < 9 else MOST_LENGTH + 1
    if not 1 <= size <= MOST_LENGTH:
        shown = digits if len(digits) < 20 else digits[:17] + "..."
        raise UserError(
            "The gap has no possible size.",
            where=where,
            got=f"[[{shown}]]",
            expected=f"[[1]] to [[{MOST_LENGTH}]]",
            fix=f"write \\[[{shown}]] if it belongs to the text",
        )
    return size
