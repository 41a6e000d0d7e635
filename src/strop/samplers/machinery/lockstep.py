"""The fast loop for laws that need the network in nearly every update.

Time-conditioned networks cannot skip ahead, so the sequences of a batch go through the updates
together. What is saved: the head runs only at rows whose outcome is open, a bounded number at a
time; random numbers have an address (output, update, position), so that nothing depends on which
sequences share a batch, except the last bits of a matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import cast

import numpy as np
from torch import Tensor

from strop.denoisers.base import Denoiser, PaddingDenoiser
from strop.denoisers.device import Numbers, head_rows, upload, upload_rows
from strop.pool import Output
from strop.rng import Stream
from strop.samplers.machinery.categorical import Normalisers
from strop.samplers.machinery.lattice import Address
from strop.samplers.machinery.packed import FastDraw, FastSampler
from strop.samplers.machinery.start import BatchRun, reveal_grid


@dataclass
class LockstepRun(BatchRun):
    """Some outputs under way together; their numbers have addresses."""

    seed: int = field(kw_only=True)
    calls: Numbers = field(init=False)
    """Per output, the network calls it took part in."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.calls = np.zeros(self.batch, np.int64)
        self.stream, self.confirm = Stream(self.seed, self.spec.name), Normalisers()
        self._rows = head_rows(self.denoiser.vocab_size, self.denoiser.device)

    def upload(self, array: np.ndarray) -> Tensor:
        """The array where the sequences are."""
        return upload(array, self.denoiser.device)

    def address(self, slots: Numbers, update: int, position: Numbers) -> Address:
        """Where the random numbers of these positions lie in an update."""
        open_index = self.begin.place[slots, position]
        return Address(self.outputs[slots], np.full(len(slots), update), open_index)

    def hidden(self, ids: Tensor, slots: Numbers, sigma: Tensor, *, blank: bool = False) -> Tensor:
        """States of the sequences `slots` at one noise level; `blank` ones share a pass."""
        self.calls[slots] += 1
        slot_ids = ids[self.upload(slots)]
        if len(slots) > 1 and blank:
            state = self._network(slot_ids[:1], sigma)
            return state.expand(len(slots), *state.shape[1:])
        starts = self.begin.columns(slots, ids.device)
        if starts is not None:
            return cast(PaddingDenoiser, self.denoiser).padded(slot_ids, starts)
        return self._network(slot_ids, sigma)

    def _network(self, ids: Tensor, sigma: Tensor) -> Tensor:
        return self.denoiser.hidden(ids, self.upload(np.full(len(ids), sigma.numpy())))

    def rows(
        self, hidden: Tensor, where: Numbers, position: Numbers
    ) -> Iterator[tuple[slice, Tensor]]:
        """Logits at the rows (where, position) of a state, a bounded number at a time."""
        for start in range(0, len(where), self._rows):
            part = slice(start, min(start + self._rows, len(where)))
            rows = upload_rows(self.denoiser.device, where[part], position[part])
            yield part, self.denoiser.logits(hidden, *rows)

    def uniform(self, slots: Numbers, update: int, position: Numbers, number: int) -> np.ndarray:
        """Random number `number` of a position in an update."""
        return self.stream.uniform(*self.address(slots, update, position), number)

    def put(self, ids: Tensor, slots: Numbers, position: Numbers, token: Numbers) -> None:
        """Write tokens at some positions."""
        at = upload_rows(ids.device, slots, position, token)
        ids[at[0], at[1]] = at[2]


LockstepSampler = Callable[[LockstepRun], Tensor]
"""Ids [B, L] from a run."""


def lockstep(sampler: LockstepSampler) -> FastSampler:
    """The fast sampler that goes through the outputs batch by batch."""

    def run(draw: FastDraw) -> Iterator[Output]:
        waiting = iter(draw.outputs)
        denoiser, grid = cast(Denoiser, draw.model), reveal_grid(draw.spec)
        while len(numbers := np.fromiter(islice(waiting, draw.slots), np.int64)):
            batch = LockstepRun(
                denoiser,
                draw.spec,
                grid,
                numbers,
                draw.length,
                draw.on_step,
                draw.canvases,
                seed=draw.seed,
            )
            ids = sampler(batch)
            yield from batch.done(*batch.confirm.fetched(ids, batch.trace.chance), batch.calls)

    return run
