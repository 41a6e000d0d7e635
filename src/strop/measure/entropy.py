"""Unigram entropy of an output.

H = -sum_v f_v log f_v, with f_v the share of token v among the output's own token ids, in nats, end
markers included. A low value means that an output repeats few tokens. It says nothing about
whether outputs differ from each other.

Repetition within outputs and across them, because perplexity rewards both.

An n-gram is n token ids in a row, of the generator's own tokens. Counts are exact: no hashing. An
output that is shorter than others has -1 behind it, which is part of no n-gram.

The Vendi score: how many different outputs a pool is worth.

With unit embeddings x_1 .. x_n and the kernel K_ij = x_i . x_j, it is exp of the Shannon entropy of
the eigenvalues of K / n: 1 if all outputs are the same, n if they are pairwise orthogonal.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.measure.grams import NGRAM, count, covered


def vendi_score(embeddings: NDArray[np.floating]) -> float:
    """The score of a pool from its outputs' embeddings [n, d]; rows are scaled to length one."""
    x = np.asarray(embeddings, np.float64)
    if x.ndim != 2 or len(x) == 0:
        raise UserError("There are no embeddings to compare.", got=f"an array {x.shape}")
    length = np.linalg.norm(x, axis=1, keepdims=True)
    if not np.isfinite(x).all() or not (length > 0).all():
        raise UserError("An embedding is zero or not a number, so it has no direction.")
    # The eigenvalues of K / n are the squared singular values of x / sqrt(n).
    share = np.linalg.svd(x / length, compute_uv=False) ** 2 / len(x)
    share = share[share > 0]
    return float(np.exp(-(share * np.log(share)).sum()))


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


def entropy(ids: NDArray[np.integer]) -> NDArray[np.float64]:
    """Entropy of every row of token ids [n, L], in nats; -1 behind a shorter row counts nothing."""
    if (np.asarray(ids) < 0).any():
        return by_length(entropy, np.asarray(ids))
    ordered = np.sort(np.asarray(ids), axis=1)
    n, length = ordered.shape
    if length == 0:
        return np.zeros(n)
    # A run of equal ids in the sorted row is one token and its count.
    starts = np.ones((n, length), bool)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    row, begin = np.nonzero(starts)
    place = row * length + begin
    counts = np.diff(np.append(place, n * length))
    share = counts / length
    total = np.bincount(row, weights=-share * np.log(share), minlength=n)
    return (total + 0.0).astype(np.float64)  # one zero, not a negative one


def prefix_entropy(ids: NDArray[np.integer]) -> NDArray[np.float64]:
    """Entropy of the first 1, 2, ... L tokens of every row of whole texts [n, L]."""
    n, length = np.asarray(ids).shape
    order = np.argsort(ids, axis=1, kind="stable")
    ordered = np.take_along_axis(np.asarray(ids), order, axis=1)
    place = np.broadcast_to(np.arange(length), (n, length))
    starts = np.zeros((n, length), np.int64)
    starts[:, 1:] = np.where(ordered[:, 1:] != ordered[:, :-1], place[:, 1:], 0)
    number = np.zeros((n, length))  # the how manieth of its kind every token is
    np.put_along_axis(number, order, place - np.maximum.accumulate(starts, axis=1) + 1.0, axis=1)
    # H = log l - sum of c log c / l over counts c, and a token that comes again raises one count.
    less = np.maximum(number - 1, 1)
    added = number * np.log(number) - (number - 1) * np.log(less)
    tokens = np.arange(1, length + 1)
    return np.log(tokens) - added.cumsum(axis=1) / tokens


def by_length(
    measure: Callable[[NDArray[np.integer]], NDArray[np.float64]], ids: NDArray[np.integer]
) -> NDArray[np.float64]:
    """A number per row, from rows of one length at a time: without the -1 behind them."""
    lengths = (ids >= 0).sum(1)
    out = np.zeros(len(ids))
    for length in np.unique(lengths):
        rows = lengths == length
        out[rows] = measure(ids[rows][:, :length])
    return out
