"""One categorical draw between the tokens and the mask, with an address instead of a state.

Tokens have weights p(v) a, the mask has weight b. Where a and b are known before the network has
been asked, `opened` says where it has to be; `draw` settles it there. Asking twice at one address
gives the same answer. Two laws: exact arithmetic, and the float32 lattice.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.denoisers.device import Floats, Numbers, Truths, upload
from strop.records.record import Precision
from strop.rng import Stream
from strop.samplers.machinery.categorical import invert, share
from strop.samplers.machinery.lattice import Address, Lattice, Offers, told


class Weights(NamedTuple):
    """The weights a and b, one entry per draw (or, as a table to choose from, per round)."""

    token: Floats
    mask: Floats

    def at(self, rows: Any) -> Weights:
        """Some of them."""
        return Weights(self.token[rows], self.mask[rows])

    @classmethod
    def certain(cls, draws: int) -> Weights:
        """All weight for the tokens, none for the mask."""
        return cls(np.ones(draws), np.zeros(draws))


class Addressed(Protocol):
    """Draws at addresses."""

    def opened(self, where: Address, weights: Weights) -> Truths:
        """Where a token may come out; elsewhere the mask stays, whatever the network says."""
        ...

    def draw(
        self, law: Tensor, where: Address, weights: Weights, mask_id: int
    ) -> tuple[Numbers, Tensor]:
        """The outcome at opened addresses, given log p [R, V], which is overwritten.

        And p of each token, still on the device; anything where the mask stays.
        """
        ...

    def loses(self, where: Address, chance: Floats) -> Truths:
        """Where the mask, of weight `chance`, wins against one token of weight 1 - chance."""
        ...


class ExactDraw:
    """Exact arithmetic: a coin for the round, then one number for the token.

    With `partial`, p may sum to less than one. The first coin is then thrown with an upper bound
    of its chance, before the network is asked, and a second coin corrects it.
    """

    def __init__(self, stream: Stream, *, partial: bool = False) -> None:
        self._stream, self._partial = stream, partial

    def opened(self, where: Address, weights: Weights) -> Truths:
        """Where a token comes out, if p sums to one."""
        hazard = weights.token / (weights.token + weights.mask)
        return self._stream.uniform(*where, 0) < hazard

    def draw(
        self, law: Tensor, where: Address, weights: Weights, mask_id: int
    ) -> tuple[Numbers, Tensor]:
        """A token everywhere, but for what the second coin refuses."""
        if not self._partial:
            token, chance = self.tokens(law, where)
            return token.cpu().numpy(), chance  # waits
        law[..., mask_id] = -torch.inf
        total = law.exp().sum(-1, dtype=torch.float64).clamp_(max=1.0)
        coin, u = (self._stream.uniform(*where, number) for number in (1, 2))
        token, mask, coin, u = upload(np.stack([*weights, coin, u]), law.device)
        rest = token * total + mask
        accept = total * (token + mask) / torch.where(rest > 0, rest, 1.0)
        token = invert(law, u)
        told = torch.where(coin < accept, token, mask_id).cpu().numpy()  # waits
        return told, share(law, token)

    def tokens(self, law: Tensor, where: Address) -> tuple[Tensor, Tensor]:
        """Tokens of a law that sums to one and the probability of each, still on the device."""
        token = invert(law, upload(self._stream.uniform(*where, 1), law.device))
        return token, share(law, token)

    def loses(self, where: Address, chance: Floats) -> Truths:
        """A coin."""
        return self._stream.uniform(*where, 2) < chance


class LatticeDraw:
    """The law of the float32 race (see `lattice`)."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._lattice = stream, Lattice()

    def opened(self, where: Address, weights: Weights) -> Truths:
        """Where the mask's own clock left an offer open."""
        return self._offers(where, weights).open

    def draw(
        self, law: Tensor, where: Address, weights: Weights, mask_id: int
    ) -> tuple[Numbers, Tensor]:
        """Settle the open offers; a refused one leaves the mask."""
        offers = self._offers(where, weights)
        return settled(self._lattice, offers, law, weights.token, mask_id, self._stream)

    def loses(self, where: Address, chance: Floats) -> Truths:
        """Two clocks of the lattice against each other.

        A tie goes to the token, as in the race wherever the mask is the last class.
        """
        first, second, _, _ = self._stream.words(*where, 2**31)
        shift = np.uint64(32 - self._lattice.bits)
        token = (1 - chance).astype(np.float32) / self._lattice.clock(first >> shift)
        return chance.astype(np.float32) / self._lattice.clock(second >> shift) > token

    def _offers(self, where: Address, weights: Weights) -> Offers:
        token, mask = (part.astype(np.float32) for part in weights)
        return self._lattice.offer(self._stream, where, token, mask)


def settled(
    lattice: Lattice,
    offers: Offers,
    law: Tensor,
    token_mass: NDArray[Any],
    mask_id: int,
    stream: Stream,
) -> tuple[Numbers, Tensor]:
    """What comes of open offers, given log p [R, V], which is overwritten, and the weights a.

    And p of each token: the law that the race is given, not the sharper one that it has.
    """
    if mask_id < law.shape[-1]:
        law[..., mask_id] = -torch.inf
    mass = upload(token_mass.astype(np.float32), law.device)
    scaled = law.float().exp_().mul_(mass[:, None])
    token = told(*lattice.settle(offers, scaled, mask_id, stream))
    return token, share(scaled, upload(token, law.device))


def addressed(precision: Precision, stream: Stream, *, partial: bool = False) -> Addressed:
    """The draws of a precision."""
    return ExactDraw(stream, partial=partial) if precision == "float64" else LatticeDraw(stream)
