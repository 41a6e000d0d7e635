"""Held-out text from JSON lines or a text file, as a checkpoint reads it (`read_rows`).

A line is an object with `text`, with `ids`, or with both, or a bare list of ids. Ids count only if
they are the checkpoint's own: beside a text they must decode to it, else the text is tokenised with
its tokenizer. Every row gives its first `length` tokens, shorter rows are left out and counted. The
rows that ship have both (`read_texts`).

A `.txt` file holds documents with a line `<|endoftext|>` between them, as training reads them; each
gives as many rows of `length` tokens as it has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from strop import assets
from strop.disk import decoded, json_lines, reading
from strop.errors import UserError

PLAIN = ".txt"
SEPARATOR = b"<|endoftext|>"
"""The line between two documents of a text file."""


class Vocabulary(Protocol):
    """What of a checkpoint decides how it reads a text; every model has it."""

    @property
    def vocab_size(self) -> int: ...  # noqa: D102
    @property
    def mask_id(self) -> int | None: ...  # noqa: D102
    @property
    def codec(self) -> Any: ...  # noqa: D102


@dataclass(frozen=True, eq=False)
class HeldOutTexts:
    """The texts that ship, which no model here was trained on."""

    texts: list[str]
    ids: NDArray[np.int64]
    """Their tokens [n, L] in the embedded models' vocabulary."""
    vocab_size: int | None
    """Of that vocabulary, the mask left out."""
    source: str


@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """Sequences as a checkpoint reads them."""

    ids: NDArray[np.int64]
    """[n, length], no mask among them."""
    short: int
    """Rows that were left out because they have fewer tokens."""
    retokenised: int
    """Rows whose ids belong to another tokenizer, so that their text was read."""

    @property
    def sha256(self) -> str:
        """Of the ids: what a measurement on them depends on."""
        return hashlib.sha256(np.ascontiguousarray(self.ids).tobytes()).hexdigest()


def read_texts() -> HeldOutTexts | None:
    """The rows that ship, if they do."""
    path = assets.HELD_OUT
    if not path.is_file():
        return None
    rows = [record for _, record in _records(path)]
    ids = np.array([row["ids"] for row in rows], np.int64)
    texts = [str(row["text"]) for row in rows]
    return HeldOutTexts(texts, ids, assets.embedded_vocabulary(), f"texts of {path.name}")


def read_rows(
    path: Path, denoiser: Vocabulary, *, length: int, most: int, least: int = 1
) -> HeldOutRows:
    """The first `most` rows that are long enough; fewer than `least` are an error."""
    rows: list[list[int]] = []
    short = retokenised = 0
    for where, record in _records(path):
        ids, anew = _tokens(record, denoiser, where)
        if len(ids) < length:
            short += 1
            continue
        _check_ids(ids, denoiser, where)
        whole = len(ids) // length if path.suffix.lower() == PLAIN else 1
        rows += [ids[k * length : (k + 1) * length] for k in range(whole)]
        retokenised += anew
        if len(rows) >= most:
            break
    rows = rows[:most]
    if len(rows) < least:
        raise UserError(
            "Too few held-out rows are long enough.",
            where=path,
            got=f"{len(rows)} of {length} tokens, {short} shorter",
            expected=f"{least} or more",
            fix="use longer texts, or a smaller `length`",
        )
    return HeldOutRows(
        np.asarray(rows, dtype=np.int64).reshape(len(rows), length), short, retokenised
    )


def plain_texts(path: Path) -> list[str]:
    """The texts of a file for whoever has a tokenizer; rows of ids alone are left out."""
    rows = [one for _, one in _records(path) if isinstance(one, dict)]
    return [one["text"] for one in rows if isinstance(one.get("text"), str)]


def check_file(path: Path) -> None:
    """Refuse a file that is not there, before any work is done for it."""
    with reading(path):
        there = path.is_file()
    if not there:
        raise UserError(
            "The held-out file is not there.",
            where=path,
            expected='JSON lines with "text" or "ids", or a .txt file',
            fix="give one with `held_out`",
        )


def _records(path: Path) -> Iterator[tuple[str, Any]]:
    check_file(path)
    with reading(path):
        content = path.read_bytes()
    if not content.strip():
        raise UserError("The held-out file is empty.", where=path)
    if path.suffix.lower() == PLAIN:
        yield from _documents(path, content)
        return
    yield from json_lines(BytesIO(content), path, '{"text": "Once upon a time ..."}')


def _documents(path: Path, content: bytes) -> Iterator[tuple[str, Any]]:
    """Of a text file."""
    lines = content.splitlines(keepends=True)
    ends = [number for number, line in enumerate(lines) if line.strip() == SEPARATOR]
    for first, end in zip([0, *(one + 1 for one in ends)], [*ends, len(lines)], strict=True):
        where = f"{path}, line {first + 1}"
        text = decoded(b"".join(lines[first:end]), where).strip()
        if text:
            yield where, {"text": text}


def _tokens(record: Any, denoiser: Vocabulary, where: str) -> tuple[list[int], bool]:
    """The row's ids, and whether its text had to be read though it has ids."""
    ids, text = record if isinstance(record, list) else None, None
    if isinstance(record, dict):
        ids, text = record.get("ids"), record.get("text")
    own: list[int] | None = None
    if isinstance(ids, list) and all(type(one) is int for one in ids):
        own = ids
    if (ids is not None and own is None) or (text is not None and not isinstance(text, str)):
        raise _unreadable(where, "ids that are no whole numbers, or a text that is none")
    codec = denoiser.codec
    if own is not None:
        fits = all(0 <= one < denoiser.vocab_size for one in own)
        if text is None or codec is None:
            return own, False
        if fits and codec.decode(own, mask_id=denoiser.mask_id) == text:
            return own, False
    if codec is None:
        raise UserError(
            "The held-out rows are text and the checkpoint has no tokenizer.",
            where=where,
            fix="put its tokenizer.json beside the weights, or give rows with `ids`",
        )
    if text is None:
        raise _unreadable(where, "neither `text` nor `ids`")
    return codec.encode(text), own is not None


def _check_ids(ids: list[int], denoiser: Vocabulary, where: str) -> None:
    wrong = [i for i in ids if not 0 <= i < denoiser.vocab_size or i == denoiser.mask_id]
    if wrong:
        raise UserError(
            "A held-out row has an id that is no clean token of the checkpoint.",
            where=where,
            got=wrong[0],
            expected=f"0 to {denoiser.vocab_size - 1} without the mask {denoiser.mask_id}",
            fix="tokenise the rows with the checkpoint's own tokenizer, or give their text",
        )


def _unreadable(where: str, got: str) -> UserError:
    expected = '{"text": "..."} or {"ids": [...]}'
    return UserError("A held-out row cannot be read.", where=where, got=got, expected=expected)
