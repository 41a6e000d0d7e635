"""From documents' tokens to rows of one length.

`wrapped` is the public code's way: the documents of a group of 1,000 are joined, each with
end-of-text after it, cut into pieces of length - 2, the remainder dropped, and every piece put
between two end-of-texts. `packed` joins everything end to end and cuts. `sentences` starts every
row where a sentence starts: the next row begins at the last start that the previous one reached, so
that an unfinished sentence is read again, whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from strop.denoisers.tokenizer import TextCodec
from strop.training.documents import sentences

GROUP = 1_000
"""Documents that the public code joins at a time."""

Ids = NDArray[np.int64]


def make_rows(
    documents: Iterable[str], how: str, codec: TextCodec, end_of_text: int, length: int
) -> Iterator[Ids]:
    """Blocks of rows [n, length]."""
    carry = np.zeros(0, np.int64)
    documents = iter(documents)
    while group := list(islice(documents, GROUP)):
        if how == "sentences":
            for text in group:
                yield _from_sentences(sentences(text), codec, end_of_text, length)
            continue
        ids = [[*one, end_of_text] for one in codec.encode_all(group)]
        stream = np.concatenate([np.asarray(one, np.int64) for one in ids])
        if how == "wrapped":
            yield _wrapped(stream, end_of_text, length)
        else:
            stream = np.concatenate([carry, stream])
            whole = len(stream) // length * length
            yield stream[:whole].reshape(-1, length)
            carry = stream[whole:]


def _wrapped(stream: Ids, end_of_text: int, length: int) -> Ids:
    inner = length - 2
    pieces = stream[: len(stream) // inner * inner].reshape(-1, inner)
    edge = np.full((len(pieces), 1), end_of_text)
    return np.concatenate([edge, pieces, edge], axis=1)


def _from_sentences(pieces: list[str], codec: TextCodec, end_of_text: int, length: int) -> Ids:
    encoded = [np.asarray(one, np.int64) for one in codec.encode_all(pieces)]
    starts = np.cumsum([0] + [len(one) for one in encoded])
    stream = np.concatenate([*encoded, np.array([end_of_text])])
    rows, begin = [], 0
    while begin + length <= len(stream):
        rows.append(stream[begin : begin + length])
        reached = int(starts[np.searchsorted(starts, begin + length, side="right") - 1])
        # A sentence longer than a row is cut: nothing in it is a start.
        begin = reached if reached > begin else begin + length
    return np.stack(rows) if rows else np.zeros((0, length), np.int64)
