"""One categorical draw between the tokens and the mask, with an address instead of a state.

Tokens have weights p(v) a, the mask has weight b, and a and b depend on the round alone. So whether
the network has to be asked is decided before it is: `opened` says where, `draw` settles it. Asking
twice at one address gives the same answer. Two laws: exact arithmetic, and the float32 lattice.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.rng import Stream
from strop.samplers.machinery.categorical import invert
from strop.samplers.machinery.lattice import BITS, Lattice, Offers, told
from strop.spec import Precision

__all__ = ["Addressed", "ExactDraw", "LatticeDraw", "addressed"]

Numbers = NDArray[np.int64]


class Addressed(Protocol):
    """Draws at (output, round, position)."""

    def opened(self, output: Numbers, round_: Numbers, position: Numbers) -> NDArray[np.bool_]:
        """Where a token may come out; elsewhere the mask stays, whatever the network says."""
        ...

    def draw(
        self, clean: Tensor, output: Numbers, round_: Numbers, position: Numbers, mask_id: int
    ) -> Numbers:
        """The outcome at opened addresses, given log p [R, V], which is overwritten."""
        ...

    def loses(
        self, output: Numbers, round_: Numbers, position: Numbers, chance: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """Where the mask, of weight `chance`, wins against one token of weight 1 - chance."""
        ...


class ExactDraw:
    """Exact arithmetic: a coin for the round, then one number for the token."""

    def __init__(
        self, stream: Stream, token: NDArray[np.float64], mask: NDArray[np.float64]
    ) -> None:
        self._stream = stream
        self._hazard = token / (token + mask)

    def opened(self, output: Numbers, round_: Numbers, position: Numbers) -> NDArray[np.bool_]:
        """Exactly where a token comes out."""
        return self._stream.uniform(output, round_, position, 0) < self._hazard[round_]

    def draw(
        self,
        clean: Tensor,
        output: Numbers,
        round_: Numbers,
        position: Numbers,
        mask_id: int,  # noqa: ARG002
    ) -> Numbers:
        """A token everywhere."""
        u = self._stream.uniform(output, round_, position, 1)
        return invert(clean, torch.from_numpy(u).to(clean.device)).cpu().numpy()

    def loses(
        self, output: Numbers, round_: Numbers, position: Numbers, chance: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """A coin."""
        return self._stream.uniform(output, round_, position, 2) < chance


class LatticeDraw:
    """The law of the float32 race, on a lattice of `bits` bits (see `lattice`)."""

    def __init__(
        self,
        stream: Stream,
        token: NDArray[np.float64],
        mask: NDArray[np.float64],
        bits: int = BITS,
    ) -> None:
        self._stream, self._lattice = stream, Lattice(bits)
        self._token, self._mask = token.astype(np.float32), mask.astype(np.float32)

    def opened(self, output: Numbers, round_: Numbers, position: Numbers) -> NDArray[np.bool_]:
        """Where the mask's own clock left an offer open."""
        return self._offers(output, round_, position).open

    def draw(
        self, clean: Tensor, output: Numbers, round_: Numbers, position: Numbers, mask_id: int
    ) -> Numbers:
        """Settle the open offers; a refused one leaves the mask."""
        offers = self._offers(output, round_, position)
        mass = torch.from_numpy(self._token[round_]).to(clean.device)
        weights = clean.float().exp_().mul_(mass[:, None])
        return told(*self._lattice.settle(offers, weights, mask_id, self._stream))

    def loses(
        self, output: Numbers, round_: Numbers, position: Numbers, chance: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """Two clocks of the lattice against each other.

        A tie goes to the token, as in the race wherever the mask is the last class.
        """
        first, second, _, _ = self._stream.words(output, round_, position, 2**31)
        shift = np.uint64(32 - self._lattice.bits)
        token = (1 - chance).astype(np.float32) / self._lattice.clock(first >> shift)
        return chance.astype(np.float32) / self._lattice.clock(second >> shift) > token

    def _offers(self, output: Numbers, round_: Numbers, position: Numbers) -> Offers:
        return self._lattice.offer(
            self._stream, output, round_, position, self._token[round_], self._mask[round_]
        )


def addressed(
    precision: Precision,
    stream: Stream,
    token: NDArray[np.float64],
    mask: NDArray[np.float64],
    bits: int,
) -> Addressed:
    """The draws of a precision, with the weights `token` and `mask` of every round."""
    if precision == "float64":
        return ExactDraw(stream, token, mask)
    return LatticeDraw(stream, token, mask, bits)
