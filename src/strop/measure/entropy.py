"""Unigram entropy of an output.

H = -sum_v f_v log f_v, with f_v the share of token v among the output's own token ids, in nats, end
markers included. A low value means that an output repeats few tokens. It says nothing about
whether outputs differ from each other.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray


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
