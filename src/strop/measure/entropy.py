"""Entropy, repetition and the Vendi score of outputs.

Unigram entropy is H = -sum_v f_v log f_v, with f_v the share of token v among the output's own
token ids, in nats, end markers included. A low value means that an output uses few different
tokens. It says nothing about whether outputs differ from each other.

Repetition is measured within outputs and across them, because perplexity rewards both. An n-gram is
n token ids in a row, of the generator's own tokens. Counts are exact: no hashing. An output that is
shorter than others has -1 behind it, which is part of no n-gram. In memory an n-gram is one whole
number: its tokens' places among those that occur, as digits. So that all n-grams need not be held
together, they are counted in parts, by their first two tokens, and the pool is read again for every
part.

The Vendi score says how many different outputs a pool is worth. With unit embeddings x_1 .. x_n and
the kernel K_ij = x_i . x_j, it is exp of the Shannon entropy of the eigenvalues of K / n: 1 if all
outputs are the same, n if they are pairwise orthogonal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError

NGRAM = 4
"""The n of the repetition shares."""
SIZES = (1, 2, 3, 4)
"""The n of the shares of different n-grams."""
HELD = 2**23
"""N-grams of one length that are held at a time, about."""

Ids = NDArray[np.integer]
Keys = NDArray[np.uint64]


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
        return by_length(lambda rows: repetition(rows, n), np.asarray(ids))
    names = ngrams(ids, n)
    order = np.argsort(names, axis=1)
    ordered = np.take_along_axis(names, order, axis=1)
    same = ordered[:, 1:] == ordered[:, :-1]
    twice = np.zeros(names.shape, bool)
    twice[:, 1:] |= same
    twice[:, :-1] |= same
    repeated = np.zeros(names.shape, bool)
    np.put_along_axis(repeated, order, twice, axis=1)
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
    start = row * length + begin
    counts = np.diff(np.append(start, n * length))
    share = counts / length
    total = np.bincount(row, weights=-share * np.log(share), minlength=n)
    return (total + 0.0).astype(np.float64)  # one zero, not a negative one


def prefix_entropy(ids: NDArray[np.integer]) -> NDArray[np.float64]:
    """Entropy of the first 1, 2, ... L tokens of every row of whole texts [n, L]."""
    n, length = np.asarray(ids).shape
    order = np.argsort(ids, axis=1, kind="stable")
    ordered = np.take_along_axis(np.asarray(ids), order, axis=1)
    position = np.broadcast_to(np.arange(length), (n, length))
    starts = np.zeros((n, length), np.int64)
    starts[:, 1:] = np.where(ordered[:, 1:] != ordered[:, :-1], position[:, 1:], 0)
    number = np.zeros((n, length))  # the how manieth of its kind every token is
    np.put_along_axis(number, order, position - np.maximum.accumulate(starts, axis=1) + 1.0, axis=1)
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


@dataclass(frozen=True)
class Grams:
    """What was counted."""

    distinct: dict[int, float | None]
    """By n, different n-grams over all of the pool; None where outputs are shorter than n."""
    shared: NDArray[np.float64]
    """Per output, the share of its tokens that lie in an n-gram of some other output."""


def count(
    rows: Callable[[], Iterable[Ids]],
    sizes: Sequence[int] = SIZES,
    n: int = NGRAM,
    held: int = HELD,
) -> Grams:
    """Different n-grams of some sizes, and for one n what outputs share."""
    return _Counting(rows, sizes, n, held).result()


def covered(marked: NDArray[np.bool_], length: int, n: int) -> NDArray[np.float64]:
    """The share of a row's tokens inside a marked n-gram."""
    rows, starts = marked.shape
    tokens = np.zeros((rows, length), bool)
    for k in range(n if starts else 0):
        tokens[:, k : k + starts] |= marked
    return tokens.mean(1) if length else np.zeros(rows)


class _Counting:
    def __init__(
        self, rows: Callable[[], Iterable[Ids]], sizes: Sequence[int], n: int, held: int
    ) -> None:
        self.rows, self.sizes, self.n, self.held = rows, tuple(sizes), n, held
        self.lengths, self.length, used = _survey(rows())
        self.tokens = int(used.sum())
        self.place = np.cumsum(used, dtype=np.uint64) - np.uint64(1)
        self.totals = {k: int(np.maximum(self.lengths - k + 1, 0).sum()) for k in {n, *sizes}}
        # Enough parts that one of them fits into memory, and that its numbers fit into 63 bits.
        largest = max(self.totals)
        few = -(-max(self.totals.values(), default=0) // held)
        self.parts = max(1, few, -(-(self.tokens**largest) // 2**63))
        place, parts = self.place, np.uint64(self.parts)
        self.remainders = [
            (numbers % parts).astype(np.int32)
            for numbers in (place * np.uint64(self.tokens), place)
        ]

    def result(self) -> Grams:
        different = dict.fromkeys(self.totals, 0)
        starts = max(0, self.length - self.n + 1)
        marked = np.zeros((len(self.lengths), -(-starts // 8)), np.uint8)  # a bit per n-gram
        several = np.zeros(0, np.uint64)
        # One reading counts a part, and marks what the one before found in several outputs.
        for part in range(self.parts + 1):
            kept = {k: _Kept(self.held) for k in self.totals} if part < self.parts else {}
            first = 0
            for ids in filter(len, self.rows()):
                chunk = _Chunk(self, ids)
                if len(several):
                    self._mark(chunk, part - 1, several, marked[first : first + len(ids)])
                for k, keys_of_k in kept.items():
                    keys_of_k.add(self._keys(chunk, k, part))
                first += len(ids)
            for k, keys_of_k in kept.items():
                different[k] += len(_copies(keys_of_k.keys(), 1))
            if kept:
                occurring = kept[self.n].keys()
                several = occurring[1:][occurring[1:] == occurring[:-1]]
        return Grams(
            {k: different[k] / self.totals[k] if self.totals[k] else None for k in self.sizes},
            self._shares(marked, starts),
        )

    def _keys(self, chunk: _Chunk, k: int, part: int) -> Keys:
        """A part's different n-grams; those that are compared twice, if several rows have them."""
        keys, at = chunk.keys(k, part)
        if k == self.n:
            return _at_most_two_rows(keys, at // chunk.shape[1])
        keys.sort()
        return _copies(keys, 1)

    def _mark(self, chunk: _Chunk, part: int, several: Keys, marked: NDArray[np.uint8]) -> None:
        """Set the bit of every n-gram of a part that is wanted; those are in order."""
        rows, length = chunk.shape
        keys, at = chunk.keys(self.n, part)
        order = np.argsort(keys)  # looking up in order is many times quicker
        keys, at = keys[order], at[order]
        rank = np.minimum(np.searchsorted(several, keys), len(several) - 1)
        flags = np.zeros((rows, length), bool)
        flags.flat[at[several[rank] == keys]] = True
        bits = np.packbits(flags[:, : length - self.n + 1], axis=1)
        marked[:, : bits.shape[1]] |= bits

    def _shares(self, marked: NDArray[np.uint8], starts: int) -> NDArray[np.float64]:
        shares = [np.zeros(0)]
        step = max(1, self.held // max(self.length, 1))
        for first in range(0, len(marked), step):
            bits = np.unpackbits(marked[first : first + step], axis=1, count=starts).astype(bool)
            lengths = self.lengths[first : first + step]
            share = covered(bits, self.length, self.n)
            shares.append(share * (self.length / np.maximum(lengths, 1)))
        return np.concatenate(shares)


class _Chunk:
    """The n-grams of some rows."""

    def __init__(self, counting: _Counting, ids: Ids) -> None:
        self.counting, self.shape, self.flat = counting, ids.shape, ids.ravel()
        self.begins = np.zeros(ids.shape, bool)
        self.begins[:, :-1] = ids[:, 1:] >= 0
        first, second = counting.remainders
        if counting.parts > 1:  # of an id of -1, whatever
            self.sums = first[ids[:, :-1]] + second[ids[:, 1:]]
        self._pairs: dict[int, NDArray[np.int64]] = {}

    def pairs(self, part: int) -> NDArray[np.int64]:
        """Where a pair of tokens begins whose n-grams belong to a part."""
        if part not in self._pairs:
            begins = self.begins.copy()
            if self.counting.parts > 1:
                begins[:, :-1] &= (self.sums == part) | (self.sums == part + self.counting.parts)
            self._pairs[part] = np.flatnonzero(begins)
        return self._pairs[part]

    def keys(self, k: int, part: int) -> tuple[Keys, NDArray[np.int64]]:
        """The numbers of the n-grams, and where they begin among the ids, row after row."""
        place, tokens = self.counting.place, np.uint64(self.counting.tokens)
        if k == 1:  # all in the first part: they are few
            at = np.flatnonzero(self.flat >= 0) if part == 0 else np.zeros(0, np.int64)
            return place[self.flat[at]], at
        at = self.pairs(part)
        at = at[at % self.shape[1] <= self.shape[1] - k]
        at = at[self.flat[at + k - 1] >= 0]
        pair = place[self.flat[at]] * tokens + place[self.flat[at + 1]]
        keys = pair // np.uint64(self.counting.parts)  # those of a part leave the same remainder
        for i in range(2, k):
            keys = keys * tokens + place[self.flat[at + i]]
        return keys, at


class _Kept:
    """Keys with copies, of which two are as good as more."""

    def __init__(self, held: int) -> None:
        self._held, self._waiting = held, list[Keys]()
        self._merged = np.zeros(0, np.uint64)

    def add(self, keys: Keys) -> None:
        self._waiting.append(keys)
        if sum(map(len, self._waiting)) > max(self._held // 4, len(self._merged)):
            self.keys()

    def keys(self) -> Keys:
        """In order."""
        if self._waiting:
            merged = np.concatenate([self._merged, *self._waiting])
            merged.sort()
            self._merged, self._waiting = _copies(merged, 2), []
        return self._merged


def _survey(chunks: Iterable[Ids]) -> tuple[NDArray[np.int64], int, NDArray[np.bool_]]:
    """Every output's length, the width of a row, and which ids occur."""
    lengths, width, used = [np.zeros(0, np.int64)], 0, np.zeros(1, bool)
    for ids in chunks:
        lengths.append((ids >= 0).sum(1))
        width = ids.shape[1]
        seen = np.bincount(ids[ids >= 0], minlength=len(used)) > 0
        seen[: len(used)] |= used
        used = seen
    return np.concatenate(lengths), width, used


def _copies(keys: Keys, most: int) -> Keys:
    """Keys that are in order, each at most so often."""
    more = np.zeros(len(keys), bool)
    more[most:] = keys[most:] == keys[:-most]
    return keys[~more]


def _at_most_two_rows(keys: Keys, row: NDArray[np.int64]) -> Keys:
    """Every key once, or twice if several rows have it; rows ascend as they are given."""
    order = np.argsort(keys, kind="stable")
    keys, row = keys[order], row[order]
    if not len(keys):
        return keys
    other = keys[1:] != keys[:-1]
    begins, ends = np.append(True, other), np.append(other, True)
    several = row[begins] != row[ends]
    return np.concatenate([keys[begins], keys[begins][several]])
