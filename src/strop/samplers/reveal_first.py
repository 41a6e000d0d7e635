"""Ancestral sampling in exact arithmetic, reveal rounds first.

In exact arithmetic the round in which a position is revealed does not depend on the tokens: it is
round k with the grid's mass m_k. So the rounds are drawn before anything else; a sequence then goes
from one of its own non-empty rounds to the next, and only the positions revealed there get a head
and a draw. Same law as the dense float64 sampler (whose 53-bit clocks differ from exact ones by
about 1e-10 at most).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.rng import Stream
from strop.samplers.machinery.categorical import invert, shaped
from strop.samplers.machinery.packed import Packed

__all__ = ["RevealFirst"]


class RevealFirst:
    """The law of float64 draws."""

    def __init__(self, packed: Packed, seed: int) -> None:
        self._stream = Stream(seed, "reveal-first")
        self._edges = np.cumsum(packed.grid.masses)[:-1]
        self._reveal = np.zeros(packed.masked.shape, np.int64)

    def enter(self, slots: NDArray[np.int64], outputs: NDArray[np.int64]) -> None:
        """Draw the round of every position."""
        positions = np.arange(self._reveal.shape[1])
        u = self._stream.uniform(outputs[:, None], 0, positions, 0)
        self._reveal[slots] = np.searchsorted(self._edges, u, side="right")

    def advance(self, slots: NDArray[np.int64], packed: Packed) -> None:
        """Go to the earliest round of a position that is still masked."""
        rounds = np.where(packed.masked[slots], self._reveal[slots], packed.done)
        nearest = rounds.min(1)
        if packed.spec.finish == "none":
            nearest[nearest == packed.grid.updates] = packed.done
        packed.round[slots] = nearest
        packed.wanted[slots] = (rounds == nearest[:, None]) & (nearest != packed.done)[:, None]

    def draw(
        self, logits: Tensor, slots: NDArray[np.int64], positions: NDArray[np.int64], packed: Packed
    ) -> NDArray[np.int64]:
        """Every wanted position is revealed: one random number each."""
        clean = shaped(logits, packed.denoiser.mask_id, packed.spec)
        u = self._stream.uniform(packed.output[slots], 0, positions, 1)
        return invert(clean, torch.from_numpy(u).to(clean.device)).cpu().numpy()
