"""Ancestral sampling with float32 random numbers: the same law as the public draw, at less cost.

Here tokens and timing are entangled: a position stays masked when no token beats the mask's clock,
and rare tokens cannot. So every masked position gets an offer in every round (see `lattice`), most
of which are refused without asking the network; a sequence goes on to its first round with an open
offer. If all its offers fall through, its state is still the same and serves the next round too.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.rng import Stream
from strop.samplers.machinery.addressed import LatticeDraw
from strop.samplers.machinery.categorical import shaped
from strop.samplers.machinery.lattice import BITS
from strop.samplers.machinery.packed import Packed

__all__ = ["LatticeRace"]


class LatticeRace:
    """The law of float32 draws, on a lattice of `bits` bits."""

    def __init__(self, packed: Packed, seed: int, bits: int = BITS) -> None:
        grid = packed.grid
        # The finish, where it draws, has the plain probabilities and leaves the mask no weight.
        token = torch.cat([grid.t - grid.s, torch.ones(1)]).numpy()
        mask = torch.cat([grid.s, torch.zeros(1)]).numpy()
        self._draws = LatticeDraw(Stream(seed, "lattice-race"), token, mask, bits)

    def enter(self, slots: NDArray[np.int64], outputs: NDArray[np.int64]) -> None:
        """Nothing is drawn in advance."""

    def advance(self, slots: NDArray[np.int64], packed: Packed) -> None:
        """Let rounds pass until one has an open offer, or the sequence is complete."""
        finish = packed.grid.updates
        going = slots
        while going.size:
            packed.round[going] += 1
            masked = packed.masked[going]
            last = packed.round[going] == finish
            ended = ~masked.any(1) | (last & (packed.spec.finish == "none"))
            packed.round[going[ended]] = packed.done
            greedy = going[last & ~ended & (packed.spec.finish == "greedy")]
            packed.wanted[greedy] = packed.masked[greedy]
            drawing = going[~ended & ~np.isin(going, greedy)]
            where, position = np.nonzero(packed.masked[drawing])
            slot = drawing[where]
            opened = self._draws.opened(packed.output[slot], packed.round[slot], position)
            packed.wanted[slot[opened], position[opened]] = True
            going = drawing[~packed.wanted[drawing].any(1)]

    def draw(
        self, logits: Tensor, slots: NDArray[np.int64], positions: NDArray[np.int64], packed: Packed
    ) -> NDArray[np.int64]:
        """Settle the open offers; a refused one leaves the mask."""
        mask_id = packed.denoiser.mask_id
        clean = shaped(logits, mask_id, packed.spec)
        address = packed.output[slots], packed.round[slots], positions
        return self._draws.draw(clean, *address, mask_id)
