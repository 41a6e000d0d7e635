"""Entropy and diversity on the tokens that perplexity is read on.

The span policy `first-document` leaves out what follows the first end of text. Counted as entropy
it would lift an output over the guard at no cost in perplexity. So where a perplexity of that
policy stands beside it, an output that is cut has the entropy of its first document, the end that
closes it included. Entropy grows with length, so that of l tokens is raised by what the guard's own
held-out texts gain from l tokens to the guard's length: each output is held against the guard of
its own length. Outputs that are not cut keep the entropy of all their tokens. Diversity is read on
first documents, too, without the end that closes them: that is in every output that is cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strop.measure.entropy import entropy
from strop.measure.guard import Guard
from strop.measure.rows import PoolRows, Rows
from strop.measure.spans import END_OF_TEXT
from strop.spec import SpanPolicy

CUTS: SpanPolicy = "first-document"
"""The policy that leaves out part of an output."""


@dataclass(frozen=True)
class CutOutputs:
    """How many outputs of a pool the span policy cuts."""

    held: int = 0
    """Whose entropy is that of their first document."""
    whole: int = 0
    """Whose entropy is still that of all their tokens: no guard of their length is known."""


NONE_CUT = CutOutputs()


def document_entropy(
    values: NDArray[np.float64], cut: NDArray[np.bool_], rows: PoolRows, guard: Guard
) -> tuple[NDArray[np.float64], CutOutputs]:
    """Entropies of outputs [n] with those of the `cut` ones replaced, and how many these are."""
    end = end_token(rows.rows()) if guard.rise and cut.any() else None
    if end is None:
        return values, CutOutputs(whole=int(cut.sum()))
    found, first = values.copy(), 0
    for _, ids in rows.rows():
        some = np.flatnonzero(cut[first : first + len(ids)])
        tokens = first_document(ids[some], end)
        behind = np.arange(ids.shape[1]) >= tokens[:, None]
        found[first + some] = guard.raised(entropy(np.where(behind, -1, ids[some])), tokens)
        first += len(ids)
    return found, CutOutputs(held=int(cut.sum()))


def documents(cut: NDArray[np.bool_], rows: PoolRows) -> NDArray[np.int64] | None:
    """All ids [n, L], of the `cut` ones those before the end of their first document."""
    end = end_token(rows.rows())
    if end is None:
        return None
    ids = np.concatenate(list(rows.ids()))
    behind = np.arange(ids.shape[1]) >= first_document(ids, end)[:, None] - 1
    return np.where(behind & cut[:, None], -1, ids)


def first_document(ids: NDArray[np.int64], end: int) -> NDArray[np.int64]:
    """Tokens up to the first end that is not at the very start, that end included [n]."""
    ends = ids == end
    ends[:, :1] = False
    closed = ends.any(axis=1)
    return np.where(closed, ends.argmax(axis=1) + 1, (ids >= 0).sum(axis=1))


def end_token(rows: Iterable[Rows]) -> int | None:
    """The id that every output has as often as its text has ends of text; None if there is none.

    Of several such ids, which is possible where few outputs have an end, it is the one that stands
    where the ends stand in the texts, as shares of the tokens and of the characters.
    """
    off: dict[int, float] | None = None
    others: set[int] = set()
    for texts, ids in rows:
        for text, row in zip(texts, ids, strict=True):
            own = row[row >= 0]
            tokens, first, counts = np.unique(own, return_index=True, return_counts=True)
            pieces = (text or "").split(END_OF_TEXT)
            wanted = len(pieces) - 1
            if not wanted:
                others.update(tokens.tolist())
                continue
            share = len(pieces[0]) / max(sum(map(len, pieces)), 1)
            same = counts == wanted
            far = np.abs(first[same] / max(len(own) - wanted, 1) - share)
            here = dict(zip(tokens[same].tolist(), far.tolist(), strict=True))
            off = here if off is None else {k: off[k] + here[k] for k in off.keys() & here.keys()}
    left = {token: far for token, far in (off or {}).items() if token not in others}
    return min(left, key=lambda token: (left[token], token)) if left else None
