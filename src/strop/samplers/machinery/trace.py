"""What a sampler did: when each token last changed, and a word to whoever watches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from strop.pool import OnStep

__all__ = ["Trace"]

Numbers = NDArray[np.int64]


class Trace:
    """The sequences of a batch, by slot."""

    def __init__(self, slots: int, length: int, on_step: OnStep | None) -> None:
        self.changed = np.zeros((slots, length), np.int32)
        """Per slot and position, the round after which it last changed; 0: never."""
        self._on_step = on_step

    def note(
        self, output: Numbers, slot: Numbers, round_: Numbers, position: Numbers, token: Numbers
    ) -> None:
        """These tokens changed, one entry each; `round_` counts updates from 0."""
        self.changed[slot, position] = round_ + 1
        if self._on_step is None or not slot.size:
            return
        for one in np.unique(slot):
            its = slot == one
            self._on_step(int(output[its][0]), int(round_[its][0]) + 1, position[its], token[its])
