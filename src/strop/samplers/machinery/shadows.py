"""What a cache would have said: a reader of the whole canvas that asks the caches as well.

The run is the uncached one. At each of its calls the same canvas is read through every cache, whose
keys and values are those of the call that opened the block, and the two laws of the clean token are
compared at every open position of the block. So what is measured is the cache alone, not what
follows from tokens that it changed earlier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.denoisers.base import Denoiser
from strop.samplers.machinery.blocks import BlockState
from strop.samplers.machinery.committing import Turn
from strop.samplers.machinery.reading import Cache, NetworkReader, View


@dataclass(frozen=True)
class Laws:
    """Sums over open positions, by sequence and call within its block, [B, K]."""

    kl: NDArray[np.float64]
    """KL(uncached || cached) of the network's own law over clean tokens, in nats."""
    moved: NDArray[np.float64]
    """Positions whose best token is another one."""
    open: NDArray[np.float64]
    """Positions."""

    @classmethod
    def empty(cls, batch: int, calls: int) -> Laws:
        """To be added to."""
        return cls(*(np.zeros((batch, calls)) for _ in range(3)))

    def add(self, row: NDArray, call: NDArray, kl: Tensor, moved: Tensor) -> None:
        """One entry per open position of a call."""
        np.add.at(self.kl, (row, call), kl.cpu().numpy())
        np.add.at(self.moved, (row, call), moved.cpu().numpy())
        np.add.at(self.open, (row, call), 1)


class Shadowed(NetworkReader):
    """The network read whole, and through each cache of `laws`, which are added to."""

    def __init__(
        self,
        denoiser: Denoiser,
        given: Tensor,
        *,
        laws: Mapping[str, Laws],
        cache: Cache = "none",
        guidance: float = 0.0,
        starts: Tensor | None = None,
    ) -> None:
        super().__init__(denoiser, given, cache=cache, guidance=guidance, starts=starts)
        self._laws = laws
        self._shadows = {
            name: NetworkReader(denoiser, given, cache=cast(Cache, name), starts=starts)
            for name in laws
        }
        self._inside: Tensor | None = None
        self._before: Tensor | None = None
        """[B], the calls of each sequence when the block was opened."""

    def read(
        self, canvas: BlockState, rows: Tensor, inside: Tensor, candidates: Tensor, turn: Turn
    ) -> View:
        """The uncached view; the others are compared with it and forgotten."""
        view = super().read(canvas, rows, inside, candidates, turn)
        opens = self._inside is None or not torch.equal(inside, self._inside)
        if opens or self._before is None:
            self._inside, self._before = inside, canvas.calls.clone()
        call = (canvas.calls - self._before)[rows]
        # A cache is filled for all sequences that have the block, whoever needs the call.
        asked = torch.nonzero(inside.any(1))[:, 0] if opens else rows
        here = replace(turn, round=0 if opens else max(1, turn.round))
        place = torch.searchsorted(asked, rows)
        for name, shadow in self._shadows.items():
            seen = shadow.read(canvas, asked, inside, candidates, here)
            for sequence, column, logits in view.chunks(view.open):
                other = seen.at(place[sequence], column - seen.start)
                kl, moved = _compared(logits, other, canvas.mask_id)
                row = rows[sequence].cpu().numpy()
                self._laws[name].add(row, call[sequence].cpu().numpy(), kl, moved)
        return view


def _compared(logits: Tensor, other: Tensor, mask_id: int) -> tuple[Tensor, Tensor]:
    """KL of two laws over clean tokens, row by row, and whether their best tokens differ."""
    logits[:, mask_id] = other[:, mask_id] = -torch.inf
    ours, theirs = logits.double().log_softmax(-1), other.double().log_softmax(-1)
    excess = ours - theirs
    excess[:, mask_id] = 0.0  # ruled out in both
    kl = (ours.exp() * excess).sum(-1).clamp(min=0.0)  # below zero is rounding
    return kl, ours.argmax(-1) != theirs.argmax(-1)
