r"""From a row's text to the text that a model reads: plain, after worked examples, as a chat.

Gaps in a text: `[[12]]` stands for twelve open positions.

A backslash takes a mark literally: `\[[12]]` is the text `[[12]]`. Backslashes count only right
before a mark, where each pair of them is one backslash of the text: `\\[[12]]` is a backslash and
a gap, `\\\[[12]]` a backslash and the text `[[12]]`. Everywhere else they are text like any other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from strop.bounds import MOST_LENGTH
from strop.errors import UserError
from strop.prompts.chat import ChatTemplate
from strop.prompts.rows import Prompt, PromptSet

Piece = str | int
"""A stretch of text, or the size of a gap."""

# Looking back keeps a long run of backslashes from being tried at each of them.
_MARK = re.compile(r"(?<!\\)(\\*)\[\[([0-9]+)\]\]")


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


FORMAT = "Question: {prompt}\nAnswer: {reference}\n\n"
"""As the usual harness writes arithmetic questions."""

Bos = Literal["tokenizer", "always", "never"]
_FIELD = re.compile(r"\{(prompt|reference)\}")


@dataclass(frozen=True)
class Shots:
    """Worked examples before the question, all in one format.

    The format holds `{prompt}` and, after it, `{reference}`; no other brace means anything. The
    question is written in the same format up to `{reference}`, without the blanks before it: most
    tokenizers count a blank to the word that follows, which is the answer's.
    """

    examples: tuple[tuple[str, str], ...]
    """Questions and answers, in the order in which they are shown."""
    format: str = FORMAT

    def __post_init__(self) -> None:
        names = _FIELD.findall(self.format)
        if names != ["prompt", "reference"]:
            raise UserError(
                "The format of the worked examples does not fit.",
                where="`format`",
                got=repr(self.format)[:80],
                expected=f"one {{prompt}} and, after it, one {{reference}}, as in {FORMAT!r}",
            )
        if not self.examples:
            raise UserError(
                "There are no worked examples.", where="`shots`", expected="at least one"
            )

    @classmethod
    def of(cls, examples: PromptSet, format: str = FORMAT) -> Shots:
        """Take the rows of a file that have both a text and a reference."""
        return cls(tuple(_example(row) for row in examples.prompts), format)

    def around(self) -> tuple[str, str]:
        """What stands before and after the question."""
        start, middle, end = _FIELD.split(self.format)[::2]
        shown = (start + prompt + middle + answer + end for prompt, answer in self.examples)
        return "".join(shown) + start, middle.rstrip(" \t")


def _example(row: Prompt) -> tuple[str, str]:
    if row.text is None or row.reference is None:
        missing = "text" if row.text is None else "reference"
        raise UserError(
            f"A worked example has no {missing}.",
            where=row.place,
            expected='{"prompt": "...", "reference": "..."}',
        )
    return row.text, row.reference


@dataclass(frozen=True)
class Template:
    """What is written around a row's text, and what its marks mean."""

    shots: Shots | None = None
    """Worked examples first; with `chat` they and the question are one message."""
    chat: ChatTemplate | None = None
    """The tokenizer's own template, which also says where the response begins."""
    bos: Bos = "tokenizer"
    """What stands before a text: what the tokenizer's own post-processor puts there (GPT-2, LLaDA:
    nothing; Llama: its beginning-of-text token), that token in any case (Dream's base model), or
    nothing. A chat template writes its own, and nothing is put before ids."""
    marks: bool = True
    """Whether `[[12]]` is a gap; if not, all text is text, backslashes included."""

    @property
    def name(self) -> str:
        """In words, for tables: `plain`, `few-shot`, `chat`, `few-shot chat`."""
        words = ["few-shot"] * (self.shots is not None) + ["chat"] * (self.chat is not None)
        return " ".join(words) or "plain"

    def pieces(self, text: str, where: object = None) -> tuple[Piece, ...]:
        """The text to encode, cut at its gaps. Marks of worked examples are text."""
        pieces = parse(text, where) if self.marks else joined([text])
        if all(isinstance(piece, int) for piece in pieces):
            raise UserError(
                "The prompt is all gap and gives no token.",
                where=where,
                got=text[:80],
                fix="leave the row out, or sample without prompts",
            )
        if self.shots is not None:
            before, after = self.shots.around()
            pieces = joined([before, *pieces, after])
        if self.chat is None:
            return pieces
        gaps = [f"[[{piece}]]" for piece in pieces if isinstance(piece, int)]
        if gaps:
            raise UserError(
                "A chat's message has a gap, but the response follows the message.",
                where=where,
                got=", ".join(gaps)[:80],
                fix="say `length` and escape the mark as \\[[...]], or write the conversation "
                "with its special tokens and gaps as plain text",
            )
        return (self.chat.render("".join(map(str, pieces))),)
