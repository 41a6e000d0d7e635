"""Planted controls: groups of their own whose right answer is known in part.

Each holds originals of one pool, a second copy of one of them (it must share its mode and its
grades), one with its words shuffled (it must not be more coherent) and an empty text (it must be
invalid). They tell about the judge and never enter a score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strop.rng import derive_seed

__all__ = ["PLANTED", "Control", "plant"]

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
