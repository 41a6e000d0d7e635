"""What a sampler did: when each token last changed, and a word to whoever watches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from strop.pool import OnStep

Numbers = NDArray[np.int64]


class Trace:
    """The sequences of a batch, by slot.

    A round is told when the next one has something to tell, or at `end`: a sampler may reveal some
    tokens and take back others at different moments of one round.
    """

    def __init__(self, slots: int, length: int, on_step: OnStep | None) -> None:
        self.changed = np.zeros((slots, length), np.int32)
        """Per slot and position, the round after which it last changed; 0: never."""
        self._on_step = on_step
        self._untold: dict[int, tuple[int, int, list[Numbers], list[Numbers]]] = {}

    @property
    def watched(self) -> bool:
        """Whether anybody asks for the tokens."""
        return self._on_step is not None

    def note(
        self,
        output: Numbers,
        slot: Numbers,
        round_: Numbers,
        position: Numbers,
        token: Numbers | None,
    ) -> None:
        """These tokens changed, one entry each; `round_` counts updates from 0.

        Where nobody watches, the tokens need not be known.
        """
        self.changed[slot, position] = round_ + 1
        if self._on_step is None or token is None:
            return
        for one in np.unique(slot).tolist():
            its = slot == one
            number = int(round_[its][0]) + 1
            if one in self._untold and self._untold[one][1] != number:
                self._tell(one)
            _, _, positions, tokens = self._untold.setdefault(
                one, (int(output[its][0]), number, [], [])
            )
            positions.append(position[its])
            tokens.append(token[its])

    def end(self) -> None:
        """Nothing more happens to the sequences that are told of."""
        for slot in list(self._untold):
            self._tell(slot)

    def end_of(self, slots: Numbers) -> None:
        """Nothing more happens to these; other sequences take their places."""
        for slot in slots.tolist():
            if slot in self._untold:
                self._tell(slot)

    def _tell(self, slot: int) -> None:
        output, number, positions, tokens = self._untold.pop(slot)
        if self._on_step is not None:
            self._on_step(output, number, np.concatenate(positions), np.concatenate(tokens))
