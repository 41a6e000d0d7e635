"""The batch of step k as a pure function of (seed, k), over the global batch.

Nothing is carried from step to step, so a run can stop anywhere; and every process computes the
whole batch's row numbers and noise and takes its part, so their number changes nothing.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.rng import derive_seed
from strop.training.objective import Noise
from strop.training.responses import row_noise
from strop.training.shards import ShardRows


class Batches:
    """Every row once per epoch, in an order drawn anew for each."""

    def __init__(self, rows: ShardRows, *, batch: int, seed: int, objective: str) -> None:
        self.rows, self.batch, self.seed, self.objective = rows, batch, seed, objective
        self._order: tuple[int, NDArray[np.int64]] | None = None

    def numbers(self, step: int) -> NDArray[np.int64]:
        """Which rows make the global batch of a step (counted from 0)."""
        place = np.arange(step * self.batch, (step + 1) * self.batch)
        epoch, within = np.divmod(place, len(self.rows))
        out = np.empty(self.batch, np.int64)
        for one in np.unique(epoch):
            out[epoch == one] = self._epoch(int(one))[within[epoch == one]]
        return out

    def ids(self, numbers: NDArray[np.int64]) -> Tensor:
        """The tokens of some rows, [n, length]."""
        return torch.from_numpy(self.rows[numbers])

    def noise(self, step: int) -> Noise | None:
        """Which tokens of the global batch are hidden; see `row_noise`."""
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "noise", step))
        return row_noise(
            self.rows, lambda: self.numbers(step), self.batch, self.objective, generator
        )

    def _epoch(self, epoch: int) -> NDArray[np.int64]:
        if self._order is None or self._order[0] != epoch:
            seed = derive_seed(self.seed, "epoch", epoch)
            self._order = (epoch, np.random.default_rng(seed).permutation(len(self.rows)))
        return self._order[1]
