"""Held-out text from JSON lines: as it is, for the entropy guard, or as a checkpoint reads it.

A line is an object with `text`, with `ids`, or with both, or a bare list of ids. The guard needs
both, equally many ids a row (`read_texts`). For a checkpoint (`read_rows`) ids count only if they
are its own: beside a text they must decode to it, else the text is tokenised with its tokenizer;
every row gives its first `length` tokens, shorter rows are left out and counted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strop import assets
from strop.disk import reading
from strop.errors import UserError
from strop.metrics.entropy import Guard, guard
from strop.spec import GeneratorSpec

if TYPE_CHECKING:
    from strop.denoisers.base import Denoiser

__all__ = ["HeldOutRows", "HeldOutTexts", "own_guard", "read_rows", "read_texts"]


PAIRED = '{"text": "...", "ids": [1, 2, ...]} with equally many ids a row'


@dataclass(frozen=True, eq=False)
class HeldOutTexts:
    """Texts that no model here was trained on."""

    texts: list[str]
    ids: NDArray[np.int64]
    """Their tokens [n, L]; the file that ships has them in the embedded models' vocabulary."""
    source: str
    vocab_size: int | None = None
    """Of the tokenizer that made the ids; None if whoever brought the file vouches for them."""


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


def read_texts(given: Path | None = None) -> HeldOutTexts | None:
    """Rows with `text` and `ids`: of a file, or those that ship, if they do."""
    path = assets.HELD_OUT if given is None else given
    if given is None and not path.is_file():
        return None
    texts, ids = [], []
    for where, record in _records(path):
        if not isinstance(record, dict) or not {"text", "ids"} <= record.keys():
            raise _unreadable(where, "no `text`, or no `ids`", PAIRED)
        texts.append(str(record["text"]))
        ids.append(record["ids"])
    try:
        table = np.array(ids, np.int64)
    except (ValueError, TypeError, OverflowError):
        raise _unreadable(
            str(path), "rows of different lengths, or no whole numbers", PAIRED
        ) from None
    if table.ndim != 2 or table.size == 0:
        raise _unreadable(str(path), "rows of different lengths, or none", PAIRED)
    known = assets.embedded_vocabulary() if path == assets.HELD_OUT else None
    return HeldOutTexts(texts, table, f"texts of {path.name}", known)


def own_guard(generator: GeneratorSpec, held_out: HeldOutTexts | None) -> Guard:
    """The entropy guard of a generator's length, where the held-out ids are of its vocabulary."""
    shape = generator.checkpoint.shape
    size = int(shape.get("vocab_size", 0))
    # The mask, where there is one, follows the tokenizer's last token.
    tokens = size - 1 if int(shape.get("mask_id", size)) < size else size
    if (
        held_out is None
        or (held_out.vocab_size or tokens) != tokens
        or held_out.ids.max() >= tokens
    ):
        return guard(generator.length)
    return guard(generator.length, held_out.ids, source=held_out.source)


def read_rows(path: Path, denoiser: Denoiser, *, length: int, most: int) -> HeldOutRows:
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
    return HeldOutRows(np.asarray(rows, dtype=np.int64), short, retokenised)


def _records(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        with reading(path):
            content = path.read_bytes()
    except FileNotFoundError:
        raise UserError(
            "The held-out file is not there.",
            where=path,
            expected="JSON lines with `text` or `ids`",
            fix="give one with --held-out FILE",
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


def _unreadable(
    where: str, got: str, expected: str = '{"text": "..."} or {"ids": [...]}'
) -> UserError:
    return UserError("A held-out row cannot be read.", where=where, got=got, expected=expected)
