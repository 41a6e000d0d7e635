"""Prompts as the user wrote them: rows with a text or token ids, from a file or from Python."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any

from strop.errors import UserError, unknown_name

FIELDS = ("prompt", "ids", "id", "reference")
LONGEST_LINE = 2**24
"""Bytes of a line, 16 MiB: beyond, the file is hardly one of prompts."""
_ROW = '{"prompt": "..."} or {"ids": [...]}'
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


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
    place: str = field(default="", compare=False)
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
        return cls._from(_rows_of(Path(path)), str(path))

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
        prompts = tuple(_prompt(row, i, place) for i, (place, row) in enumerate(rows))
        if not prompts:
            raise UserError("There are no prompts.", where=source, expected=f"rows such as {_ROW}")
        seen: dict[str, str] = {}
        for prompt in prompts:
            if prompt.id in seen:
                raise UserError(
                    f"Two prompts have the id {prompt.id!r}.",
                    where=prompt.place,
                    got=f"the id of {seen[prompt.id]}",
                    expected="ids that differ; a row without one is called by its number, from 0",
                )
            seen[prompt.id] = prompt.place
        return cls(prompts, source)


# Lines


def _rows_of(path: Path) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(_lines(path), start=1):
        place = f"{path}, line {number}"
        if number == 1 and line.startswith(_UTF16):
            raise _not_utf8(place, "the byte order mark of UTF-16", "utf-16")
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            byte = f"byte 0x{line[error.start]:02x} at position {error.start} of the line"
            raise _not_utf8(place, byte, "latin1") from None
        if text.strip():
            yield place, _json(text, place)


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            # Two arguments: call until b"" comes.
            for line in iter(lambda: file.readline(LONGEST_LINE + 1), b""):
                if len(line) > LONGEST_LINE:
                    raise UserError(
                        "A line of the file is too long to be a prompt.",
                        where=path,
                        got=f"more than {LONGEST_LINE:,} bytes, beginning {line[:40]!r}",
                        expected="one JSON object per line",
                    )
                yield line
    except FileNotFoundError:
        raise UserError("There is no such file.", where=path, fix="check the path") from None
    except OSError as error:
        raise UserError(
            "The file of prompts cannot be read.", where=path, got=error.strerror or error
        ) from error


def _not_utf8(place: str, got: str, encoding: str) -> UserError:
    return UserError(
        "The file of prompts is not UTF-8.",
        where=place,
        got=got,
        fix=f"convert it, e.g. iconv -f {encoding} -t utf-8",
    )


def _json(text: str, place: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: _object(pairs, place))
    except (ValueError, RecursionError) as error:
        raise UserError(
            "The line is not JSON.",
            where=place,
            got=str(error)[:120],
            expected=f"one object per line: {_ROW}",
        ) from None


def _object(pairs: list[tuple[str, Any]], place: str) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for i, (name, _) in enumerate(pairs) if name in dict(pairs[:i]))
        raise UserError(f"The row has the field {twice!r} twice.", where=place)
    return found


# Rows


def _prompt(row: Any, number: int, place: str) -> Prompt:
    if not isinstance(row, Mapping):
        raise UserError("The row is no object.", where=place, got=_shown(row), expected=_ROW)
    for name in row:
        if name not in FIELDS:
            raise unknown_name("field of a prompt", str(name), FIELDS, where=place)
    given = [name for name in ("prompt", "ids") if row.get(name) is not None]
    if len(given) != 1:
        what = "both a text and ids" if given else "neither a text nor ids"
        raise UserError(
            f"The row has {what}.",
            where=place,
            got="the fields " + ", ".join(map(repr, row)) if row else "an empty object",
            expected=_ROW,
        )
    reference = row.get("reference")
    return Prompt(
        id=_name(row.get("id"), number, place),
        text=_text(row["prompt"], "prompt", place) if given == ["prompt"] else None,
        ids=_ids(row["ids"], place) if given == ["ids"] else None,
        reference=None if reference is None else _text(reference, "reference", place),
        place=place,
    )


def _name(value: Any, number: int, place: str) -> str:
    if isinstance(value, Integral) and not isinstance(value, bool):
        return str(value)
    return str(number) if value is None else _text(value, "id", place)


def _text(value: Any, name: str, place: str) -> str:
    if not isinstance(value, str):
        raise UserError(
            f"The field {name!r} is not a text.", where=place, got=_shown(value), expected='"..."'
        )
    if not value and name != "reference":
        raise UserError(
            f"The field {name!r} is empty.",
            where=place,
            expected="at least one character",
            fix="leave the row out, or sample without prompts" if name == "prompt" else None,
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"The field {name!r} holds half of a surrogate pair, which is no character.",
            where=place,
            got=f"\\u{ord(value[error.start]):04x} at position {error.start}",
        ) from None
    return value


def _ids(value: Any, place: str) -> tuple[int | None, ...]:
    # What comes from Python may be an array; a text or bytes would iterate as well.
    if not isinstance(value, (Sequence, str, bytes)) and hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise UserError(
            "The field 'ids' is not a list.", where=place, got=_shown(value), expected="[17, 4]"
        )
    for position, one in enumerate(value):
        if one is not None and (isinstance(one, bool) or not isinstance(one, Integral)):
            raise UserError(
                "The field 'ids' holds something that is no token id.",
                where=place,
                got=f"{_shown(one)} at position {position}",
                expected="whole numbers, and null where a token is to be filled in",
            )
    if all(one is None for one in value):
        raise UserError(
            "The field 'ids' gives no token.",
            where=place,
            got=_shown(list(value)),
            expected="at least one token id",
            fix="leave the row out, or sample without prompts",
        )
    return tuple(None if one is None else int(one) for one in value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
