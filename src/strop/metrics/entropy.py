"""Unigram entropy of an output, and the guard below which a cell is marked.

H = -sum_v f_v log f_v, with f_v the share of token v among the output's own token ids, in nats, end
markers included. A low value means that an output repeats few tokens. It says nothing about
whether outputs differ from each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strop.spec import MetricSpec

__all__ = ["DAGGER", "ENTROPY", "Guard", "entropy", "guard"]

ENTROPY = MetricSpec(name="entropy")
"""The metric: it depends on the generator's ids alone."""

DAGGER = "†"
"""Marks a cell below the guard."""

PAPER_LENGTH, PAPER_THRESHOLD = 1024, 5.0
SHARE = 0.1
FEWEST = 20
"""Held-out texts below which a tenth percentile says too little."""


@dataclass(frozen=True)
class Guard:
    """The mean entropy that a cell should reach."""

    length: int
    threshold: float | None
    """None where there is nothing to compare with."""
    source: str
    """Where the threshold comes from, in words."""

    def below(self, value: float) -> bool:
        """Whether a cell's mean entropy is below the guard."""
        return self.threshold is not None and value < self.threshold


def entropy(ids: NDArray[np.integer]) -> NDArray[np.float64]:
    """Entropy of every row of token ids [n, L], in nats."""
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


def guard(
    length: int,
    held_out: NDArray[np.integer] | None = None,
    *,
    source: str = "held-out texts",
) -> Guard:
    """The guard for outputs of a length.

    At 1,024 tokens it is the paper's H >= 5. Elsewhere it is the tenth percentile of the entropy of
    single held-out texts [n, L], cut to that length, in the generator's own tokens.
    """
    if length == PAPER_LENGTH:
        return Guard(length, PAPER_THRESHOLD, "the paper's H >= 5 at 1,024 tokens")
    if held_out is None or len(held_out) < FEWEST or held_out.shape[1] < length:
        why = f"no {FEWEST} held-out texts of {length} tokens in the generator's vocabulary"
        return Guard(length, None, why)
    values = entropy(held_out[:, :length])
    told = f"tenth percentile of {len(values)} {source} of {length} tokens"
    return Guard(length, float(np.quantile(values, SHARE)), told)
