"""What a sampler did: when each token last changed, how likely it was, what stood there before.

The chance of a token is what the law of the clean token (tempered and cut) gave it in the round in
which it came. Loops that know it write it into `Trace.chance`, after they have told of the change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.denoisers.device import upload_rows
from strop.pool import EARLIER, TRACED, OnStep

if TYPE_CHECKING:
    from strop.samplers.machinery.start import Start

Numbers = NDArray[np.int64]
MANTISSA = 6
"""Bits of a chance that are kept beside its exponent: it is within 0.8%, and packs well."""
UNSEEN = -1
"""Nothing was told of a position, or a token that only the device knows."""


class Replaced(NamedTuple):
    """Values of a sequence that others took the place of; chances are still on the device."""

    place: Numbers
    round: Numbers
    token: Numbers
    chance: Tensor


class Trace:
    """The sequences of a batch, by slot.

    A round is told when the next one has something to tell, or at `end`: a sampler may reveal some
    tokens and take back others at different moments of one round.
    """

    def __init__(self, begin: Start, device: torch.device, on_step: OnStep | None) -> None:
        self.changed = np.zeros((len(begin.open), begin.width), np.int32)
        """Per slot and place, the round after which it last changed; 0: never."""
        self.chance = torch.full(begin.open.shape, torch.nan, device=device)
        """Per slot and column, the chance of the token there; of a mask, anything."""
        self._begin, self._on_step = begin, on_step
        self._last = np.full(begin.open.shape, UNSEEN)
        self._replaced: dict[int, list[Replaced]] = {}
        self._untold: dict[int, tuple[int, int, list[Numbers], list[Numbers]]] = {}

    @property
    def watched(self) -> bool:
        """Whether anybody asks for the tokens."""
        return self._on_step is not None

    def forget(self, slots: Numbers) -> None:
        """Other sequences begin in these, or the same ones anew."""
        self.changed[slots], self._last[slots] = 0, UNSEEN
        for slot in slots.tolist():
            self._replaced.pop(slot, None)

    def begun(self, slot: Numbers, column: Numbers, token: Numbers) -> None:
        """What stands there before the first round, where that is no mask."""
        self._last[slot, column] = token

    def note(
        self,
        output: Numbers,
        slot: Numbers,
        round_: Numbers,
        column: Numbers,
        token: Numbers | None,
    ) -> None:
        """These tokens changed, one entry each; `round_` counts updates from 0.

        Where nobody watches, the tokens need not be known.
        """
        position = self._begin.place[slot, column]
        self._keep(output, slot, column, position)
        self._last[slot, column] = UNSEEN if token is None else token
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

    def _keep(self, output: Numbers, slot: Numbers, column: Numbers, place: Numbers) -> None:
        """Of the outputs that are traced, the values that are about to be replaced."""
        kept = (output < TRACED) & (self._last[slot, column] != UNSEEN)
        for one in np.unique(slot[kept]).tolist():
            its = kept & (slot == one)
            at = upload_rows(self.chance.device, slot[its], column[its])
            told = self.changed[one, place[its]], self._last[one, column[its]]
            found = Replaced(place[its], *told, self.chance[at])
            self._replaced.setdefault(one, []).append(found)

    def kept(
        self, slots: Numbers, rows: Numbers, chance: NDArray[np.float64], mask: int | None
    ) -> NDArray[np.float32]:
        """Chances of finished sequences [S, L]: none where another token stands than was told of,
        such as padding behind an end, and none of a mask."""
        last = self._last[slots]
        other = ((last != UNSEEN) & (last != rows)) | (rows == (UNSEEN if mask is None else mask))
        return _rounded(np.where(other, np.nan, chance))

    def earlier(self, slot: int, mask: int | None) -> NDArray[np.void]:
        """What stood in a sequence before, by round and place."""
        parts = self._replaced.pop(slot, [])
        found = np.zeros(sum(len(part.place) for part in parts), EARLIER)
        if not parts:
            return found
        for name in ("place", "round", "token"):
            found[name] = np.concatenate([getattr(part, name) for part in parts])
        chance = torch.cat([part.chance for part in parts]).cpu().numpy()  # waits
        found["chance"] = _rounded(np.where(found["token"] == mask, np.nan, chance))
        return found[np.lexsort((found["place"], found["round"]))]

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


def _rounded(chance: NDArray[np.floating]) -> NDArray[np.float32]:
    drop = np.uint32(23 - MANTISSA)
    bits = chance.astype(np.float32).view(np.uint32) + (np.uint32(1) << (drop - np.uint32(1)))
    found = (bits >> drop << drop).view(np.float32)
    return np.where(np.isnan(chance), np.float32(np.nan), found)
