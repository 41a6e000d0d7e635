"""Files of one JSON object a line, and what an object must hold: all are refused in one way."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, ValidationError

from strop.disk import reading
from strop.errors import UserError

Row = tuple[dict[str, Any], str]
"""The fields of a row, and where it stands."""
EXACT = ConfigDict(strict=True, allow_inf_nan=False)
"""For forms in which 1 is not true, "1" is no number, and NaN is none either."""
SHOWN = 160

F = TypeVar("F")


def read_lines(path: str | Path, expected: str) -> list[Row]:
    """Every object of a file; `expected` is what a line may look like."""
    try:
        with reading(Path(path)):
            content = Path(path).read_bytes()
    except FileNotFoundError:
        raise UserError("There is no such file.", where=path, expected=expected) from None
    return parse_lines(content, str(path), expected)


def parse_lines(content: bytes, source: str, expected: str) -> list[Row]:
    """The same of what a file holds; `source` is what the complaints call it."""
    # bytes.splitlines knows \n, \r\n and \r only; str.splitlines would cut inside JSON strings.
    lines = enumerate(content.splitlines(), start=1)
    rows = ((line, f"{source}, line {number}") for number, line in lines if line.strip())
    return [(_object(line, where, expected), where) for line, where in rows]


def _object(line: bytes, where: str, expected: str) -> dict[str, Any]:
    try:
        row = json.loads(decoded(line, where), object_pairs_hook=no_repeats)
    except (ValueError, RecursionError) as error:
        got = f"{error}; it begins {line[:60].decode(errors='replace')!r}"
        raise UserError("The line is not JSON.", where=where, got=got, expected=expected) from None
    if not isinstance(row, dict):
        got = json.dumps(row)[:SHOWN]
        raise UserError(
            "The line is not a JSON object.", where=where, got=got, expected=expected
        ) from None
    return row


def no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object that says a thing twice says nothing."""
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError("a key stands twice in one object")
    return dict(pairs)


def decoded(content: bytes, where: object) -> str:
    """The text of some bytes, a mark at their beginning left out."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            "The text is not UTF-8.",
            where=where,
            got=f"byte 0x{content[error.start]:02x} at position {error.start}",
            fix="convert it, e.g. iconv -f latin1 -t utf-8",
        ) from None


def formed(
    form: Callable[..., F],
    row: Mapping[str, Any],
    where: str,
    what: str,
    expected: str | None = None,
) -> F:
    """A row in its form, a class of pydantic; the message names the field that is wrong."""
    try:
        return form(**row)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        names = (f"[{one}]" if isinstance(one, int) else f".{one}" for one in first["loc"])
        field = "".join(names).removeprefix(".")
        raise UserError(
            f"{what}: {first['msg'].removeprefix('Value error, ')}.",
            where=f"{where}, {field}" if field else where,
            got=repr(first["input"])[:SHOWN],
            expected=expected,
        ) from None
