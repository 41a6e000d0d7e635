"""Repetition within outputs and across them, because perplexity rewards both.

An n-gram is n token ids in a row, of the generator's own tokens. Counts are exact: no hashing. An
output that is shorter than others has -1 behind it, which is part of no n-gram.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from strop.measure.entropy import by_length
from strop.measure.grams import NGRAM, count, covered

__all__ = ["NGRAM", "distinct", "ngrams", "pool_repetition", "repetition"]


def ngrams(ids: NDArray[np.integer], n: int) -> NDArray[np.int64]:
    """A number per n-gram [N, L - n + 1], equal exactly where the n-grams are equal."""
    ids = np.asarray(ids, np.int64)
    rows, length = ids.shape
    if n < 1 or length < n or rows == 0:
        return np.zeros((rows, max(0, length - n + 1)), np.int64)
    tokens = np.unique(ids, return_inverse=True)[1].reshape(ids.shape)
    size = int(tokens.max()) + 1
    names = tokens
    for k in range(1, n):
        joined = names[:, :-1] * size + tokens[:, k:]  # below entries * vocabulary: no overflow
        names = np.unique(joined, return_inverse=True)[1].reshape(joined.shape)
    return names


def repetition(ids: NDArray[np.integer], n: int = NGRAM) -> NDArray[np.float64]:
    """Per output, the share of its tokens that lie in an n-gram it contains more than once."""
    if (np.asarray(ids) < 0).any():
        return by_length(lambda some: repetition(some, n), np.asarray(ids))
    names = ngrams(ids, n)
    repeated = np.zeros(names.shape, bool)
    for row, mine in enumerate(names):
        _, inverse, counts = np.unique(mine, return_inverse=True, return_counts=True)
        repeated[row] = counts[inverse] > 1
    return covered(repeated, np.asarray(ids).shape[1], n)


def pool_repetition(ids: NDArray[np.integer], n: int = NGRAM) -> NDArray[np.float64]:
    """Per output, the share of its tokens that lie in an n-gram of some other output.

    It depends on the other outputs, and grows with their number.
    """
    return count(lambda: [np.asarray(ids)], (), n).shared


def distinct(ids: NDArray[np.integer], n: int) -> float | None:
    """Different n-grams over all n-grams of a pool; None where outputs are shorter than n."""
    return count(lambda: [np.asarray(ids)], (n,), n).distinct[n]
