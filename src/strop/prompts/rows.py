r"""Prompts as the user wrote them: rows with a text or token ids, from a file or from Python.

From a row's text to the text that a model reads: plain, after worked examples, as a chat.

Gaps in a text: `[[12]]` stands for twelve open positions.

A backslash takes a mark literally: `\[[12]]` is the text `[[12]]`. Backslashes count only right
before a mark, where each pair of them is one backslash of the text: `\\[[12]]` is a backslash and
a gap, `\\\[[12]]` a backslash and the text `[[12]]`. Everywhere else they are text like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

from strop.disk import json_lines
from strop.errors import UserError, refuse_half_characters, unknown_name
from strop.prompts.chat import ChatTemplate
from strop.runtime import MOST_LENGTH
from strop.spec.value import shortened_repr

FIELDS = ("prompt", "ids", "id", "reference")
LONGEST_LINE = 2**24
"""Bytes of a line, 16 MiB: beyond, the file is hardly one of prompts."""
_ROW = '{"prompt": "..."} or {"ids": [...]}'


@dataclass(frozen=True)
class Prompt:
    """One row."""

    id: str
    """Its name in the outputs; where the row has none, its number, counted from 0."""
    text: str | None = None
    """What the row's `prompt` says, with its marks; None where ids are given."""
    ids: tuple[int | None, ...] | None = None
    """Token ids as they are to stand, None at open positions."""
    reference: str | None = None
    """What a right answer is; no output depends on it."""
    where: str = field(default="", compare=False)
    """Where the row stands, for messages."""


@dataclass(frozen=True)
class PromptSet:
    """Prompts in their order."""

    prompts: tuple[Prompt, ...]
    source: str = field(default="`prompts`", compare=False)
    """Where they come from, for messages."""

    @classmethod
    def read(cls, path: str | Path) -> PromptSet:
        """Read a file of one JSON object per line; blank lines are passed over."""
        try:
            with open(path, "rb") as file:
                return cls._from(json_lines(file, path, _ROW, LONGEST_LINE), str(path))
        except FileNotFoundError:
            raise UserError("There is no such file.", where=path, fix="check the path") from None
        except OSError as error:
            raise UserError(
                "The file of prompts cannot be read.", where=path, got=error.strerror or error
            ) from error

    @classmethod
    def of(cls, rows: Iterable[str | Mapping[str, Any]]) -> PromptSet:
        """Take texts, or mappings with the fields of a file's rows."""
        if isinstance(rows, (str, bytes, Mapping)):
            rows = [rows]  # pyright: ignore[reportAssignmentType]
        plain = ({"prompt": row} if isinstance(row, str) else row for row in rows)
        placed = ((f"`prompts`, row {i}", row) for i, row in enumerate(plain))
        return cls._from(placed, "`prompts`")

    @classmethod
    def _from(cls, rows: Iterable[tuple[str, Any]], source: str) -> PromptSet:
        prompts = tuple(_prompt(row, i, where) for i, (where, row) in enumerate(rows))
        if not prompts:
            raise UserError("There are no prompts.", where=source, expected=f"rows such as {_ROW}")
        seen: dict[str, str] = {}
        for prompt in prompts:
            if prompt.id in seen:
                raise UserError(
                    f"Two prompts have the id {prompt.id!r}.",
                    where=prompt.where,
                    got=f"the id of {seen[prompt.id]}",
                    expected="ids that differ; a row without one is called by its number, from 0",
                )
            seen[prompt.id] = prompt.where
        return cls(prompts, source)


# Rows


def _prompt(row: Any, number: int, where: str) -> Prompt:
    if not isinstance(row, Mapping):
        raise UserError(
            "The row is not an object.", where=where, got=shortened_repr(row), expected=_ROW
        )
    for name in row:
        if name not in FIELDS:
            raise unknown_name("field of a prompt", str(name), FIELDS, where=where)
    contents = [name for name in ("prompt", "ids") if row.get(name) is not None]
    if len(contents) != 1:
        what = "both a text and ids" if contents else "neither a text nor ids"
        raise UserError(
            f"The row has {what}.",
            where=where,
            got="the fields " + ", ".join(map(repr, row)) if row else "an empty object",
            expected=_ROW,
        )
    reference, name = row.get("reference"), row.get("id")
    if isinstance(name, Integral) and not isinstance(name, bool):
        name = str(name)
    else:
        name = str(number) if name is None else _text(name, "id", where)
    return Prompt(
        id=name,
        text=_text(row["prompt"], "prompt", where) if contents == ["prompt"] else None,
        ids=_ids(row["ids"], where) if contents == ["ids"] else None,
        reference=None if reference is None else _text(reference, "reference", where),
        where=where,
    )


def _text(value: Any, name: str, where: str) -> str:
    if not isinstance(value, str):
        raise UserError(
            f"The field {name!r} is not a text.",
            where=where,
            got=shortened_repr(value),
            expected='"..."',
        )
    if not value and name != "reference":
        raise UserError(
            f"The field {name!r} is empty.",
            where=where,
            expected="at least one character",
            fix="leave the row out, or sample without prompts" if name == "prompt" else None,
        )
    refuse_half_characters(value, name, where)
    return value


def _ids(value: Any, where: str) -> tuple[int | None, ...]:
    # What comes from Python may be an array; a text or bytes would iterate as well.
    if not isinstance(value, (Sequence, str, bytes)) and hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise UserError(
            "The field 'ids' is not a list.",
            where=where,
            got=shortened_repr(value),
            expected="[17, 4]",
        )
    for position, token in enumerate(value):
        if token is not None and (isinstance(token, bool) or not isinstance(token, Integral)):
            raise UserError(
                "The field 'ids' holds something that is not a token id.",
                where=where,
                got=f"{shortened_repr(token)} at position {position}",
                expected="whole numbers, and null where a token is to be filled in",
            )
    if all(token is None for token in value):
        raise UserError(
            "The field 'ids' gives no token.",
            where=where,
            got=shortened_repr(list(value)),
            expected="at least one token id",
            fix="leave the row out, or sample without prompts",
        )
    return tuple(None if token is None else int(token) for token in value)


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
        excerpt = digits if len(digits) < 20 else digits[:17] + "..."
        raise UserError(
            "The gap has no possible size.",
            where=where,
            got=f"[[{excerpt}]]",
            expected=f"[[1]] to [[{MOST_LENGTH}]]",
            fix=f"write \\[[{excerpt}]] if it belongs to the text",
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
        pairs = []
        for row in examples.prompts:
            if row.text is None or row.reference is None:
                missing = "text" if row.text is None else "reference"
                raise UserError(
                    f"A worked example has no {missing}.",
                    where=row.where,
                    expected='{"prompt": "...", "reference": "..."}',
                )
            pairs.append((row.text, row.reference))
        return cls(tuple(pairs), format)

    def around(self) -> tuple[str, str]:
        """What stands before and after the question."""
        start, middle, end = _FIELD.split(self.format)[::2]
        examples = (start + prompt + middle + answer + end for prompt, answer in self.examples)
        return "".join(examples) + start, middle.rstrip(" \t")


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
                fix="give `length` and escape the mark as \\[[...]], or write the conversation "
                "with its special tokens and gaps as plain text",
            )
        return (self.chat.render("".join(map(str, pieces))),)
