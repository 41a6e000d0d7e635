"""Ancestral sampling with float32 random numbers: the same law as the public draw, at less cost.

Here tokens and timing are entangled: a position stays masked when no token beats the mask's clock,
and rare tokens cannot. So every masked position gets an offer in every round (see `lattice`), most
of which are refused without asking the network; a sequence goes on to its first round with an open
offer. If all its offers fall through, its state is still the same and serves the next round too.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.rng import Stream
from strop.samplers.categorical import clean_log_probs
from strop.samplers.lattice import BITS, Lattice, Offers
from strop.samplers.packed import Packed

__all__ = ["LatticeRace"]


class LatticeRace:
    """The law of float32 draws, on a lattice of `bits` bits."""

    def __init__(self, packed: Packed, seed: int, bits: int = BITS) -> None:
        self._stream = Stream(seed, "lattice-race")
        self._lattice = Lattice(bits)
        grid = packed.grid
        # The finish, where it draws, has the plain probabilities and leaves the mask no weight.
        self._token_mass = torch.cat([grid.t - grid.s, torch.ones(1)]).numpy()
        self._mask_weight = torch.cat([grid.s, torch.zeros(1)]).numpy()

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
            opened = self._offers(drawing[where], position, packed).open
            packed.wanted[drawing[where[opened]], position[opened]] = True
            going = drawing[~packed.wanted[drawing].any(1)]

    def draw(
        self, logits: Tensor, slots: NDArray[np.int64], positions: NDArray[np.int64], packed: Packed
    ) -> NDArray[np.int64]:
        """Settle the open offers; a refused one leaves the mask."""
        spec, mask_id = packed.spec, packed.denoiser.mask_id
        offers = self._offers(slots, positions, packed)
        clean = clean_log_probs(logits, mask_id, spec.temperature, spec.top_p)
        mass = torch.from_numpy(self._token_mass[packed.round[slots]]).to(clean.device)
        weights = clean.float().exp_().mul_(mass[:, None])
        token, broken = self._lattice.settle(offers, weights, mask_id, self._stream)
        if broken:
            warnings.warn(
                f"{broken} draws broke a bound of the fast float32 law (probabilities that sum to "
                "more than 1.0001) and were made class by class; implementation='dense' avoids it",
                stacklevel=2,
            )
        return token

    def _offers(
        self, slots: NDArray[np.int64], positions: NDArray[np.int64], packed: Packed
    ) -> Offers:
        """Addressed randomness: asking again gives the same offers."""
        rounds = packed.round[slots]
        return self._lattice.offer(
            self._stream,
            packed.output[slots],
            rounds,
            positions,
            self._token_mass[rounds],
            self._mask_weight[rounds],
        )
