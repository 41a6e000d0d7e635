"""A pool in groups: partitions that share as few pairs as possible, and planted controls.

Let G groups of n outputs be given. A group of the second partition takes a_1, ..., a_G outputs
from the G groups of the first; it reuses sum_j a_j (a_j - 1) / 2 pairs, least if the a_j differ
by one at most. With n = qG + r the table a_ij = q + [(j - i) mod G < r] has all row and column
sums n and such rows throughout, so the second partition built from it is optimal: no pair is
reused from G >= n on (128 outputs in eights), and 15 are for 40 outputs.

Controls are groups of their own whose right answer is known in part. Each holds originals of one
pool, a second copy of one of them (it must share its mode and its grades), one with its words
shuffled (it must not be more coherent) and an empty text (it must be invalid). They tell about the
judge and never enter a score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strop.rng import derive_seed

Partition = NDArray[np.int64]
"""Output indices [G, n], one row per group."""

METHODS = ("minimum", "best-of-2000")
"""`minimum`: the construction above; `best-of-2000`: the paper's, from that many candidates."""

CANDIDATES = 2_000


def partitions(outputs: int, size: int, count: int, seed: int, method: str) -> list[Partition]:
    """One or two partitions of the indices 0 .. outputs - 1; `outputs` is a multiple of `size`.

    They depend on nothing but the arguments: equal pools are cut in the same way.
    """
    rng = np.random.default_rng(derive_seed(seed, "groupeval partition", outputs, size))
    first = rng.permutation(outputs).reshape(-1, size)
    if count == 1:
        return [first]
    return [first, _minimum(first, rng) if method == "minimum" else _best(first, rng)]


def reused_pairs(first: Partition, second: Partition) -> int:
    """Pairs of outputs that are in one group in both partitions."""
    groups, size = first.shape
    owner = np.empty(groups * size, np.int64)
    owner[first.ravel()] = np.repeat(np.arange(groups), size)
    # Which outputs meet: those of one second group that come from one first group.
    met = np.sort(owner[second], axis=1)
    starts = np.flatnonzero(np.diff(met, axis=1, prepend=-1).ravel())
    counts = np.diff(starts, append=met.size)
    return int((counts * (counts - 1) // 2).sum())


def _minimum(first: Partition, rng: np.random.Generator) -> Partition:
    groups, size = first.shape
    q, r = divmod(size, groups)
    # Which group of the first partition plays which column, and in which order it hands out.
    donors = rng.permuted(first, axis=1)[rng.permutation(groups)]
    # Row i of the table, spelled out: each donor j as often as a_ij says, in their order.
    rows = np.arange(groups)[:, None]
    always = np.broadcast_to(np.repeat(np.arange(groups), q), (groups, groups * q))
    takes = np.sort(np.hstack([always, (rows + np.arange(r)) % groups]), axis=1)
    # A donor hands its outputs out one by one, to the rows from the first to the last.
    turn = np.empty(takes.size, np.int64)
    turn[np.argsort(takes, axis=None, kind="stable")] = np.tile(np.arange(size), groups)
    second = donors[takes, turn.reshape(takes.shape)]
    return second[rng.permutation(groups)]


def _best(first: Partition, rng: np.random.Generator) -> Partition:
    candidates = (rng.permutation(first.size).reshape(first.shape) for _ in range(CANDIDATES))
    return min(candidates, key=lambda second: reused_pairs(first, second))


PLANTED = ("duplicate", "shuffled", "empty")


@dataclass(frozen=True)
class Control:
    """The texts of one control group."""

    cell: str
    group: int
    first: int
    """Index of its first text among the cell's control texts."""
    texts: tuple[str, ...]
    planted: tuple[str, ...]
    """Of each text: `copied` (there is a duplicate of it), `ordered` (there is a shuffled form of
    it), `original`, or one of `PLANTED`."""


def plant(cell: str, texts: Sequence[str], size: int, seed: int, groups: int) -> list[Control]:
    """Control groups from a pool; the copied and the shuffled text are the longest of each.

    Long ones, because shuffling a few words, or copying an empty text, plants nothing.
    """
    rng = np.random.default_rng(derive_seed(seed, "groupeval control", len(texts)))
    made = []
    for group in range(groups):
        picked = [texts[int(i)] for i in rng.choice(len(texts), size - len(PLANTED), replace=False)]
        picked.sort(key=lambda text: len(text.split()), reverse=True)
        words = picked[1].split()
        shuffled = " ".join(words[i] for i in rng.permutation(len(words)))
        kinds = ("copied", "ordered", *["original"] * (len(picked) - 2), *PLANTED)
        made.append(Control(cell, group, group * size, (*picked, picked[0], shuffled, ""), kinds))
    return made
