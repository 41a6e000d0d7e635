"""Texts out of files: one function per kind of file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strop.errors import UserError

__all__ = ["PROMPT", "READERS", "TEXT", "Columns", "read_folder"]

TEXT, PROMPT = "text", "prompt"

Columns = tuple[list[str], list[str] | None]
"""Texts and, where the input has them, what each one answers."""


def read_folder(path: Path) -> Columns:
    """The files of a folder, 2.txt before 10.txt."""
    files = sorted((p for p in path.glob("*.txt") if p.is_file()), key=_natural)
    if not files:
        raise UserError(
            "The folder holds neither a run nor text files.",
            where=path,
            expected="files whose names end in .txt",
        )
    return [_decoded(file.read_bytes(), file) for file in files], None


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """2.txt before 10.txt."""
    words = re.findall(r"\d+|\D+", path.name)
    return [(0, int(word), "") if word.isdecimal() else (1, 0, word) for word in words]


def _decoded(content: bytes, where: object) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            "The text is not UTF-8.",
            where=where,
            got=f"byte 0x{content[error.start]:02x} at position {error.start}",
            fix="convert it, e.g. iconv -f latin1 -t utf-8",
        ) from None


def _jsonl(path: Path) -> Columns:
    rows = []
    # bytes.splitlines knows \n, \r\n and \r only; str.splitlines would cut inside JSON strings.
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        where = f"{path}, line {number}"
        if not line.strip():
            continue
        try:
            row = json.loads(_decoded(line, where))
        except (ValueError, RecursionError) as error:
            raise UserError("The line is not JSON.", where=where, got=error) from None
        if not isinstance(row, dict) or TEXT not in row:
            fields = ", ".join(map(repr, row)) if isinstance(row, dict) else type(row).__name__
            raise UserError(
                f"The row has no field {TEXT!r}.",
                where=where,
                got=fields[:120] or "an empty object",
                expected='{"text": "..."}',
            )
        rows.append({key: _string(row[key], key, where) for key in (TEXT, PROMPT) if key in row})
    return _columns(rows, path)


def _string(value: Any, field: str, where: str) -> str:
    if not isinstance(value, str):
        raise UserError(
            f"The field {field!r} is not a text.", where=where, got=repr(value)[:80], expected="str"
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"The field {field!r} holds half of a surrogate pair, which is no character.",
            where=where,
            got=f"\\u{ord(value[error.start]):04x} at position {error.start}",
        ) from None
    return value


def _columns(rows: list[dict[str, str]], path: Path) -> Columns:
    prompted = [PROMPT in row for row in rows]
    if any(prompted) and not all(prompted):
        raise UserError(
            f"Some rows have a {PROMPT!r} and some have none.",
            where=path,
            got=f"{sum(prompted)} of {len(rows)} rows have one",
        )
    prompts = [row[PROMPT] for row in rows] if any(prompted) else None
    return [row[TEXT] for row in rows], prompts


def _parquet(path: Path) -> Columns:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        names = file.schema_arrow.names
        if TEXT not in names:
            raise UserError(
                f"The table has no column {TEXT!r}.", where=path, got=", ".join(names)[:120]
            )
        wanted = [name for name in (TEXT, PROMPT) if name in names]
        # No threads: arrow's pool can abort the interpreter when it ends right after a read.
        rows = file.read(wanted, use_threads=False).to_pylist()
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise UserError(
            "The Parquet file cannot be read.", where=path, got=str(error).splitlines()[0][:160]
        ) from None
    checked = [
        {key: _string(value, key, f"{path}, row {i + 1}") for key, value in row.items()}
        for i, row in enumerate(rows)
    ]
    return _columns(checked, path)


READERS: dict[str, Callable[[Path], Columns]] = {
    ".jsonl": _jsonl,
    ".parquet": _parquet,
}
"""By the file's ending: texts and, where there are any, prompts."""
