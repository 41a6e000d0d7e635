"""offline-v2: how the offline judge sorts texts into modes, content before surface.

Two texts are alike as far as their embeddings agree once the context's direction is taken out of
them (what every answer owes to the question is no agreement), and as far as their character n-grams
agree. From this likeness s follows the chance z = 1 / (1 + exp((threshold - s) / width)) that they
are of one mode, and from the chances how many modes the group has:

    H = mean over texts i of -log(mean over texts j of z_ij)

which is the entropy of modes where every z is 0 or 1 (the diversity of order one of Leinster and
Cobbold 2012, with z for the similarity of kinds). The sorting is that cut of three trees (average,
complete and single linkage) whose entropy is nearest to log n (H / (full log n)) ** power. Copies
are never split, and what is surely apart is never joined.

The numbers were chosen on conTest by cross-validation over contexts (scripts/choose_sorting.py
and docs/validation.md). Changing one makes another judge: it would be offline-v3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strop.groupeval.scores import entropy

Floats = NDArray[np.float64]
Clusters = list[list[int]]

SAME = 1 - 1e-6
"""Likeness from which two texts are copies."""
SURE = 2.5
"""Widths below the threshold from which two modes are surely apart."""
REPEATS = 0.3
"""Length of what is left of a text below which it only says again what the context says."""
CLEAR, UNSURE = 0.05, 0.12
"""How far the cut may be from what is looked for, as shares of log n, to be sure or half sure."""


@dataclass(frozen=True)
class Sorting:
    """What a likeness is made of, and from where on it makes one mode."""

    surface: float
    """The share of n-grams in the likeness; the rest is that of embeddings."""
    threshold: float
    """The likeness at which two texts are of one mode as likely as not."""
    width: float
    """How far around it there is doubt."""
    power: float
    """How much rather people see few modes than many; 1 takes the entropy as it is."""
    full: float = 1.0
    """The soft entropy, as a share of log n, from which all texts are taken to be apart: texts on
    one subject share n-grams by chance."""


SORTINGS = {
    "minilm": Sorting(surface=0.3, threshold=0.4, width=0.07, power=1.5),
    "ngrams": Sorting(surface=1.0, threshold=0.1, width=0.03, power=1.0, full=0.9),
}
"""By the features that there are."""


def without(vectors: Floats, context: Floats | None) -> Floats:
    """Unit vectors without the context's direction; those that repeat it stay as they are."""
    if context is None:
        return vectors
    rest = vectors - np.outer(vectors @ context, context)
    length = np.linalg.norm(rest, axis=1, keepdims=True)
    return np.where(length < REPEATS, vectors, rest / np.maximum(length, REPEATS))


def likeness(surface: Floats, content: Floats | None, share: float) -> Floats:
    """Of every two texts, from their n-grams and, where there are any, their embeddings."""
    both = surface @ surface.T
    if content is not None:
        both = share * both + (1 - share) * (content @ content.T)
    np.fill_diagonal(both, 1.0)
    return both


def soft_entropy(alike: Floats, rule: Sorting) -> float:
    """The entropy of modes that are not cut yet, as a share of log n."""
    with np.errstate(over="ignore"):
        chance = 1 / (1 + np.exp((rule.threshold - alike) / rule.width))
    np.fill_diagonal(chance, 1.0)
    return float(-np.log(chance.mean(1)).mean() / np.log(len(alike)))


def sort_by_content(alike: Floats, rule: Sorting) -> tuple[list[str], list[bool], str]:
    """Letters, whether each is a hybrid, and the confidence."""
    n = len(alike)
    if n < 2:
        return ["A"] * n, [False] * n, "high"
    wanted = min(1.0, soft_entropy(alike, rule) / rule.full) ** rule.power
    gap, clusters = min(
        ((abs(_entropy_share(one, n) - wanted), one) for one in cuts(alike, rule)),
        key=lambda pair: pair[0],
    )
    clusters = sorted(clusters, key=min)
    letters = {i: chr(ord("A") + k) for k, members in enumerate(clusters) for i in members}
    between = [
        any(alike[i, members].mean() >= rule.threshold for members in clusters if i not in members)
        for i in range(n)
    ]
    sure = "high" if gap < CLEAR else "medium" if gap < UNSURE else "low"
    return [letters[i] for i in range(n)], between, sure


def cuts(alike: Floats, rule: Sorting) -> Iterator[Clusters]:
    """Every sorting that a tree has, from all apart to as few as may be; average linkage first."""
    for linkage in ("average", "complete", "single"):
        yield from _tree(alike, linkage, rule.threshold - SURE * rule.width)


def _tree(alike: Floats, linkage: str, least: float) -> Iterator[Clusters]:
    near = alike.copy()
    np.fill_diagonal(near, -np.inf)
    clusters: list[list[int]] = [[i] for i in range(len(alike))]
    while len(clusters) > 1:
        a, b = sorted(divmod(int(near.argmax()), len(near)))
        best = near[a, b]
        if best < SAME:
            yield [list(one) for one in clusters]
        if best < least:
            return
        near[a] = near[:, a] = _joined(
            near[a], near[b], len(clusters[a]), len(clusters[b]), linkage
        )
        near[a, a] = -np.inf
        near = np.delete(np.delete(near, b, 0), b, 1)
        clusters[a] += clusters.pop(b)
    yield [list(one) for one in clusters]


def _joined(one: Floats, other: Floats, m: int, n: int, linkage: str) -> Floats:
    if linkage == "average":
        return (m * one + n * other) / (m + n)
    return np.minimum(one, other) if linkage == "complete" else np.maximum(one, other)


def _entropy_share(clusters: Sequence[Sequence[int]], n: int) -> float:
    return entropy([len(one) for one in clusters]) / float(np.log(n))
