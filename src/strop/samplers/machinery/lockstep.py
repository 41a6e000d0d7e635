"""The fast loop for laws that need the network in nearly every update.

Time-conditioned networks cannot skip ahead, so the sequences of a batch go through the updates
together. What is saved: the head runs only at rows whose outcome is open, a bounded number at a
time; random numbers have an address (output, update, position), so that nothing depends on which
sequences share a batch, except the last bits of a matrix product.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.denoisers.base import Denoiser, PaddingDenoiser, refuse_infinite
from strop.denoisers.device import head_rows, upload, upload_rows
from strop.pool import OnStep, Output
from strop.prompts import Canvases
from strop.rng import Stream
from strop.samplers.machinery.addressed import Address
from strop.samplers.machinery.grid import RevealGrid, reveal_grid
from strop.samplers.machinery.packed import FastDraw, FastSampler
from strop.samplers.machinery.start import Start
from strop.samplers.machinery.trace import Trace
from strop.spec import SamplerSpec

Numbers = NDArray[np.int64]


@dataclass
class LockstepRun:
    """Some outputs under way together."""

    denoiser: Denoiser
    spec: SamplerSpec
    grid: RevealGrid
    seed: int
    outputs: Numbers
    length: int
    on_step: OnStep | None = None
    canvases: Canvases | None = None
    calls: Numbers = field(init=False)
    """Per output, the network calls it took part in."""
    counts: dict[str, Numbers] = field(default_factory=dict, init=False)
    """Per output, what else the sampler counts, as its record says."""

    def __post_init__(self) -> None:
        self.calls = np.zeros(len(self.outputs), np.int64)
        self.begin = Start(len(self.outputs), self.length, self.canvases)
        self.begin.enter(np.arange(len(self.outputs)), self.outputs)
        self.trace = Trace(len(self.outputs), self.begin.width, self.on_step)
        self.stream = Stream(self.seed, self.spec.name)
        device = self.denoiser.device
        self._rows = head_rows(self.denoiser.vocab_size, device)
        self._normalisers = torch.zeros((), dtype=torch.float64, device=device)
        self._confirmed = False

    def start(self) -> Tensor:
        """Masks, and whatever is given."""
        return self.upload(self.begin.ids(self.denoiser.mask_id).numpy())

    def upload(self, array: np.ndarray) -> Tensor:
        """The array where the sequences are."""
        return upload(array, self.denoiser.device)

    def confirm(self, normaliser: Tensor) -> None:
        """Look at the first normalisers now, which shows damaged weights, and at others later."""
        self._normalisers += normaliser.sum()
        if not self._confirmed:
            refuse_infinite(self._normalisers)
            self._confirmed = True

    def finished(self, ids: Tensor) -> Numbers:
        """The ids on the host, if all scores were finite."""
        told = torch.cat([ids.double().flatten(), self._normalisers[None]]).cpu()  # waits
        refuse_infinite(told[-1])
        return told[:-1].long().view(ids.shape).numpy()

    def address(self, slots: Numbers, update: int, position: Numbers) -> Address:
        """Where the random numbers of these positions lie in an update."""
        place = self.begin.place[slots, position]
        return Address(self.outputs[slots], np.full(len(slots), update), place)

    def hidden(self, ids: Tensor, slots: Numbers, sigma: Tensor, *, blank: bool = False) -> Tensor:
        """States of the sequences `slots` at one noise level; `blank` ones share a pass."""
        self.calls[slots] += 1
        mine = ids[self.upload(slots)]
        if len(slots) > 1 and blank:
            state = self._network(mine[:1], sigma)
            return state.expand(len(slots), *state.shape[1:])
        starts = self.begin.columns(slots, ids.device)
        if starts is not None:
            return cast(PaddingDenoiser, self.denoiser).padded(mine, starts)
        return self._network(mine, sigma)

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
        """Write tokens."""
        at = upload_rows(ids.device, slots, position, token)
        ids[at[0], at[1]] = at[2]

    def note(self, update: int, slots: Numbers, position: Numbers, token: Numbers) -> None:
        """These tokens changed in an update (counted from 0)."""
        output, update_of, place = self.address(slots, update, position)
        self.trace.note(output, slots, update_of, place, token)


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
                draw.seed,
                numbers,
                draw.length,
                draw.on_step,
                draw.canvases,
            )
            start = time.perf_counter()
            ids = batch.finished(sampler(batch))
            batch.trace.end()
            seconds = (time.perf_counter() - start) / len(numbers)
            yield from batch.begin.outputs(
                np.arange(len(numbers)),
                numbers,
                ids,
                batch.trace.changed,
                nfe=batch.calls,
                seconds=np.full(len(numbers), seconds),
                mask=draw.model.mask_id,
                sampler=draw.spec.name,
                counts=batch.counts,
            )

    return run
