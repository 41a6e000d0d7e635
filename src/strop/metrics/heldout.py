"""Held-out sequences of one length, from JSON lines.

A line is an object with `text`, with `ids`, or with both, or a bare list of ids. Ids count only if
they are the checkpoint's own: beside a text they must decode to it, else the text is tokenised
with the checkpoint's tokenizer. Every row gives its first `length` tokens; shorter rows are left
out and counted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.denoisers.base import Denoiser
from strop.disk import reading
from strop.errors import UserError

__all__ = ["HeldOut", "read_heldout"]


@dataclass(frozen=True, eq=False)
class HeldOut:
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


def read_heldout(path: Path, denoiser: Denoiser, *, length: int, most: int) -> HeldOut:
    """The first `most` rows that are long enough."""
    rows: list[list[int]] = []
    short = retokenised = 0
    for where, record in _records(path):
        ids, anew = _tokens(record, denoiser, where)
        if len(ids) < length:
            short += 1
            continue
        _check_ids(ids, denoiser, where)
        rows.append(ids[:length])
        retokenised += anew
        if len(rows) == most:
            break
    if not rows:
        raise UserError(
            "No held-out row is long enough.",
            where=path,
            got=f"{short} rows, all of fewer than {length} tokens",
            fix="use longer texts, or a smaller --length",
        )
    return HeldOut(np.asarray(rows, dtype=np.int64), short, retokenised)


def _records(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        with reading(path):
            content = path.read_bytes()
    except FileNotFoundError:
        raise UserError(
            "The held-out file is not there.",
            where=path,
            expected="JSON lines with `text` or `ids`",
            fix="give one with --heldout FILE",
        ) from None
    if not content.strip():
        raise UserError("The held-out file is empty.", where=path)
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            yield where, json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(
                "A held-out row is not JSON.",
                where=where,
                got=str(error)[:100],
                expected='one object per line, e.g. {"text": "Once upon a time ..."}',
            ) from None


def _tokens(record: Any, denoiser: Denoiser, where: str) -> tuple[list[int], bool]:
    """The row's ids, and whether its text had to be read though it has ids."""
    ids = record if isinstance(record, list) else None
    text = None
    if isinstance(record, dict):
        ids, text = record.get("ids"), record.get("text")
    whole = isinstance(ids, list) and all(type(one) is int for one in ids)
    if (ids is not None and not whole) or (text is not None and not isinstance(text, str)):
        raise _unreadable(where, "ids that are no whole numbers, or a text that is none")
    if whole and text is None:
        return ids or [], False
    codec = denoiser.codec
    if codec is None:
        if whole:
            return ids or [], False
        raise UserError(
            "The held-out rows are text and the checkpoint has no tokenizer.",
            where=where,
            fix="put its tokenizer.json beside the weights, or give rows with `ids`",
        )
    if text is None:
        raise _unreadable(where, "neither `text` nor `ids`")
    if whole and _decodes(ids or [], text, denoiser):
        return ids or [], False
    return codec.encode(text), whole


def _decodes(ids: list[int], text: str, denoiser: Denoiser) -> bool:
    assert denoiser.codec is not None
    fits = all(0 <= one < denoiser.vocab_size for one in ids)
    return fits and denoiser.codec.decode(ids, mask_id=denoiser.mask_id) == text


def _check_ids(ids: list[int], denoiser: Denoiser, where: str) -> None:
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
    return UserError(
        "A held-out row cannot be read.",
        where=where,
        got=got,
        expected='{"text": "..."} or {"ids": [...]}',
    )
