"""Files of one JSON object a line, and what an object must hold: all are refused in one way."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import IO, Any, TypeVar

from pydantic import ConfigDict, ValidationError

from strop.disk import json_lines, reading
from strop.errors import UserError

JsonLine = tuple[dict[str, Any], str]
"""The fields of a row, and where it stands."""
EXACT = ConfigDict(strict=True, allow_inf_nan=False)
"""For forms in which 1 is not true, "1" is no number, and NaN is none either."""
SHOWN = 160

F = TypeVar("F")


def read_lines(path: str | Path, expected: str) -> list[JsonLine]:
    """Every object of a file; `expected` is what a line may look like."""
    try:
        with reading(Path(path)), open(path, "rb") as file:
            return _objects(file, str(path), expected)
    except FileNotFoundError:
        raise UserError("There is no such file.", where=path, expected=expected) from None


def parse_lines(content: bytes, source: str, expected: str) -> list[JsonLine]:
    """The same of what a file holds; `source` is what the complaints call it."""
    return _objects(BytesIO(content), source, expected)


def _objects(file: IO[bytes], source: str, expected: str) -> list[JsonLine]:
    rows: list[JsonLine] = []
    for where, row in json_lines(file, source, expected):
        if not isinstance(row, dict):
            got = json.dumps(row)[:SHOWN]
            raise UserError(
                "The line is not a JSON object.", where=where, got=got, expected=expected
            )
        rows.append((row, where))
    return rows


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
