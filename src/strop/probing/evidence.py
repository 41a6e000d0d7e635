"""The tests behind the answers: from texts to "yes", "no" or "cannot tell".

Where a request is repeatable, texts are compared one by one: what differs in none of k repeats
differs in under 3/k of them (95%). Whether texts differ more often under a changed knob than in
plain repeats is an exact test without conditions: the largest chance, over all rates of differing,
of as few differences there and as many here. Where a request is not repeatable, laws are compared:
the mean distance within one setting, against labels permuted within prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Literal

import numpy as np

Word = Literal["yes", "no", "cannot tell"]

LEVEL = 0.05
"""The chance of one wrong answer by a test among all questions of a probe."""
PERMUTATIONS = 4999
SOME = 0.05
"""A share of replies from which on differing is no accident of arithmetic."""

Texts = Sequence[Sequence[str]]
"""Per prompt, what was said under one setting."""


@dataclass(frozen=True)
class Answer:
    """One question, answered."""

    knob: str
    question: str
    """Put so that "yes" is what one hopes for."""
    word: Word
    why: str
    """The numbers."""
    idle: bool = False
    """Whether the knob is accepted and does nothing."""


@dataclass(frozen=True)
class Pairs:
    """Texts that may differ: so many do, of so many pairs."""

    differ: int
    pairs: int

    @classmethod
    def of(cls, left: Texts, right: Texts) -> Pairs:
        """One by one, as far as both have them."""
        pairs = [pair for a, b in zip(left, right, strict=True) for pair in zip(a, b, strict=False)]
        return cls(sum(a != b for a, b in pairs), len(pairs))

    @classmethod
    def within(cls, texts: Texts) -> Pairs:
        """Each against the first of its prompt."""
        return cls.of(
            [[group[0]] * (len(group) - 1) for group in texts], [group[1:] for group in texts]
        )

    def __add__(self, other: Pairs) -> Pairs:
        return Pairs(self.differ + other.differ, self.pairs + other.pairs)

    def __str__(self) -> str:
        words = f"{self.differ} of {self.pairs} differ"
        return words if self.differ or not self.pairs else f"{words} (under {3 / self.pairs:.0%})"

    @property
    def surely_some(self) -> bool:
        """Whether the 95% interval of the share that differs lies above `SOME`."""
        from scipy.stats import binom

        return self.pairs > 0 and float(binom.sf(self.differ - 1, self.pairs, SOME)) < 0.025


def more_often(after: Pairs, before: Pairs) -> float:
    """The p of as many differences here and as few before, at one rate of differing."""
    from scipy.stats import binom

    rate = np.linspace(0, 1, 2001)
    joint = binom.sf(after.differ - 1, after.pairs, rate) * binom.cdf(
        before.differ, before.pairs, rate
    )
    return float(joint.max())


def distances(texts: Sequence[str]) -> np.ndarray:
    """Between texts, 0 to 1: what their pairs of neighbouring words do not share."""
    grams = [set(pairwise(words)) | set(words) for words in map(_words, texts)]
    table = np.zeros((len(texts), len(texts)))
    for i, j in combinations(range(len(texts)), 2):
        union = len(grams[i] | grams[j])
        table[i, j] = table[j, i] = 1 - len(grams[i] & grams[j]) / union if union else 0.0
    return table


def _words(text: str) -> list[str]:
    """Words; of a text without blanks, its characters."""
    words = text.split()
    return words if len(words) > 1 else list(text)


@dataclass(frozen=True)
class Spread:
    """How far apart texts are under two settings, and how likely that is by chance."""

    first: float
    second: float
    """Mean distance between two texts that answer one prompt."""
    p: float
    """Two-sided, labels permuted within prompts, of the difference of the two."""
    p_other: float
    """The same of the distance between the two settings, beyond that within them."""


def spread(first: Texts, second: Texts, seed: int = 0) -> Spread:
    """Compare two settings whose texts answer the same prompts."""
    rng = np.random.default_rng(seed)
    total = np.zeros((3, PERMUTATIONS + 1))
    for left, right in zip(first, second, strict=True):
        table, n, m = distances([*left, *right]), len(left), len(right)
        plain = np.arange(n + m) < n
        labels = np.vstack([plain, rng.permuted(np.tile(plain, (PERMUTATIONS, 1)), axis=1)])
        inside, outside = labels.astype(float), (~labels).astype(float)
        near = ((inside @ table) * inside).sum(1) / max(1, n * (n - 1))
        far = ((outside @ table) * outside).sum(1) / max(1, m * (m - 1))
        apart = ((inside @ table) * outside).sum(1) / max(1, n * m)
        total += np.array([near, far, apart - (near + far) / 2]) / len(first)
    wider = np.abs(total[1] - total[0])
    chances = [float((statistic >= statistic[0] - 1e-12).mean()) for statistic in (wider, total[2])]
    return Spread(float(total[0, 0]), float(total[1, 0]), *chances)
