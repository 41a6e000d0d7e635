"""ReMDM at a fraction of the cost, with the law of `remdm`.

How much is revealed and taken back in an update depends on the schedule, never on the prediction
there: where sigma goes by confidence, it goes by the confidence of earlier draws. So a sequence
passes through the updates one by one, decides at every visible token whether it is taken back and
at every masked position whether a token may come out, and asks the network only in an update where
one may; head and draw run at those positions alone. Tokens that an update takes back are still
visible to the prediction of that same update.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.rng import Stream
from strop.samplers.machinery.addressed import addressed
from strop.samplers.machinery.categorical import shaped
from strop.samplers.machinery.packed import Packed
from strop.samplers.remdm_rates import remdm_rates, unsure_first

__all__ = ["Revising"]

Slots = NDArray[np.int64]


class Revising:
    """Any of ReMDM's schedules, in either precision."""

    def __init__(self, packed: Packed, seed: int, bits: int) -> None:
        rates = remdm_rates(packed.spec, packed.grid)
        self._back, self._by_confidence = rates.back, rates.by_confidence
        # The finish, where it draws, has the plain probabilities and leaves the mask no weight.
        token, mask = np.append(rates.token, 1.0), np.append(rates.mask, 0.0)
        stream = Stream(seed, "revising")
        self._draws = addressed(packed.spec.precision, stream, token, mask, bits)
        self._leaving = np.zeros(packed.masked.shape, bool)  # taken back when the update is over
        self._confidence = np.zeros(packed.masked.shape)

    def enter(self, slots: Slots, outputs: Slots) -> None:  # noqa: ARG002
        """Nothing is visible yet, so nothing can be taken back."""
        self._leaving[slots] = False

    def advance(self, slots: Slots, packed: Packed) -> None:
        """End the current update and let others pass until one needs the network."""
        going = slots
        while going.size:
            self._take_back(going, packed)
            packed.round[going] += 1
            at_finish = packed.round[going] == packed.grid.updates
            self._finish(going[at_finish], packed)
            going = going[packed.round[going] < packed.grid.updates]
            self._choose(going, packed)
            where, position = np.nonzero(packed.masked[going])
            slot = going[where]
            opened = self._draws.opened(packed.output[slot], packed.round[slot], position)
            packed.wanted[slot[opened], position[opened]] = True
            going = going[~packed.wanted[going].any(1)]

    def draw(
        self, logits: Tensor, slots: Slots, positions: NDArray[np.int64], packed: Packed
    ) -> NDArray[np.int64]:
        """Settle the rows that may be revealed, and remember how sure they were."""
        mask_id = packed.denoiser.mask_id
        clean = shaped(logits, mask_id, packed.spec)
        sure = clean.clone() if self._by_confidence else None
        address = packed.output[slots], packed.round[slots], positions
        token = self._draws.draw(clean, *address, mask_id)
        if sure is not None:
            chosen = torch.from_numpy(token).to(sure.device)[:, None]
            self._confidence[slots, positions] = sure.gather(-1, chosen)[:, 0].exp().cpu().numpy()
        return token

    def _take_back(self, slots: Slots, packed: Packed) -> None:
        where, position = np.nonzero(self._leaving[slots])
        if not where.size:
            return
        slot = slots[where]
        index = [torch.from_numpy(part).to(packed.ids.device) for part in (slot, position)]
        packed.ids[index[0], index[1]] = packed.denoiser.mask_id
        packed.masked[slot, position] = True
        packed.fresh[slot] = False
        self._leaving[slots] = False

    def _choose(self, slots: Slots, packed: Packed) -> None:
        """Decide, before the network is asked, which visible tokens this update takes back."""
        visible = ~packed.masked[slots]
        where, position = np.nonzero(visible)
        slot = slots[where]
        chance = self._back[packed.round[slot]]
        if self._by_confidence:
            shares = unsure_first(
                torch.from_numpy(self._confidence[slots]), torch.from_numpy(visible)
            )
            chance = chance * shares.numpy()[where, position]
        address = packed.output[slot], packed.round[slot], position
        self._leaving[slot, position] = self._draws.loses(*address, chance)

    def _finish(self, slots: Slots, packed: Packed) -> None:
        """Fill what is masked, if the finish fills and anything is."""
        if packed.spec.finish != "none":
            packed.wanted[slots] = packed.masked[slots]
        packed.round[slots[~packed.wanted[slots].any(1)]] = packed.done
