"""The fast loop: every sequence at its own pace, packed into one network batch.

A slot holds one sequence. The law of the sampler says, without asking the network, in which round
its sequence next needs it, and at which positions; the loop runs the network for all slots whose
state is out of date, the head at the wanted rows only, and lets the law draw. A finished sequence
is handed out and its slot goes to the next one. Nothing here depends on which sequences share a
batch, except the last bits of a matrix product.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.denoisers.base import Denoiser
from strop.denoisers.padding import PaddingDenoiser
from strop.pool import OnStep, Output
from strop.prompts import Canvases
from strop.samplers.machinery.addressed import Address
from strop.samplers.machinery.categorical import clean_log_probs
from strop.samplers.machinery.grid import RevealGrid, reveal_grid
from strop.samplers.machinery.job import FastSampler, Job
from strop.samplers.machinery.start import Start
from strop.samplers.machinery.trace import Trace
from strop.spec import SamplerSpec

__all__ = ["HEAD_ENTRIES", "Law", "Packed", "packed"]

HEAD_ENTRIES = 2**20
"""Scores computed at a time: the head's memory does not grow with the batch."""


class Law(Protocol):
    """When a sequence needs the network, and what it draws then."""

    def enter(self, slots: NDArray[np.int64], outputs: NDArray[np.int64]) -> None:
        """New sequences take these slots."""
        ...

    def advance(self, slots: NDArray[np.int64], packed: Packed) -> None:
        """Set `packed.round` and `packed.wanted` to the next need of each slot.

        A round beyond the last means that the sequence is done.
        """
        ...

    def draw(
        self, logits: Tensor, slots: NDArray[np.int64], positions: NDArray[np.int64], packed: Packed
    ) -> NDArray[np.int64]:
        """A token for every row of `logits` [R, V], or the mask where none was revealed."""
        ...


class Packed:
    """Slots, and the loop over them."""

    def __init__(
        self,
        denoiser: Denoiser,
        spec: SamplerSpec,
        grid: RevealGrid,
        slots: int,
        length: int,
        on_step: OnStep | None = None,
        canvases: Canvases | None = None,
    ) -> None:
        self.begin = Start(slots, length, canvases)
        self.denoiser, self.spec, self.grid = denoiser, spec, grid
        self.done = grid.updates + 1  # the round after the finish
        self.sigmas = grid.sigmas().to(denoiser.device)
        self.ids = torch.full((slots, length), denoiser.mask_id, device=denoiser.device)
        self.masked = np.ones((slots, length), bool)
        self.wanted = np.zeros((slots, length), bool)
        self.output = np.full(slots, -1, np.int64)
        self.round = np.full(slots, -1, np.int64)
        self.fresh = np.zeros(slots, bool)  # the hidden state belongs to the current ids
        self.nfe = np.zeros(slots, np.int64)
        self.seconds = np.zeros(slots)
        self.trace = Trace(slots, self.begin.width, on_step)
        self.network_calls = 0
        self.network_rows = 0
        self._hidden: Tensor | None = None
        self._all_masked: dict[int, Tensor] = {}

    def run(self, outputs: Iterable[int], law: Law) -> Iterator[Output]:
        """Yield every output as it is finished."""
        waiting = iter(outputs)
        clock = time.perf_counter()
        self._refill(waiting, law)
        while (active := np.flatnonzero(self.output >= 0)).size:
            idle = active[~self.wanted[active].any(1)]
            if idle.size:
                law.advance(idle, self)
            ended = active[self.round[active] == self.done]
            if not ended.size:
                self._step(active, law)
            now = time.perf_counter()
            self.seconds[active] += (now - clock) / active.size
            clock = now
            if ended.size:
                yield from self._hand_out(ended)
                self._refill(waiting, law)
                clock = time.perf_counter()  # what the caller does with outputs is not ours

    def _refill(self, waiting: Iterator[int], law: Law) -> None:
        free = np.flatnonzero(self.output < 0)
        outputs = np.fromiter(islice(waiting, len(free)), np.int64)
        slots = free[: len(outputs)]
        self.begin.enter(slots, outputs)
        start = self.begin.ids(self.denoiser.mask_id, slots)
        self.ids[torch.from_numpy(slots)] = start.to(self.ids.device)
        self.masked[slots] = self.begin.open[slots]
        self.wanted[slots], self.fresh[slots] = False, False
        self.output[slots], self.round[slots] = outputs, -1
        self.nfe[slots], self.seconds[slots] = 0, 0.0
        self.trace.changed[slots] = 0
        law.enter(slots, outputs)

    def _hand_out(self, slots: NDArray[np.int64]) -> Iterator[Output]:
        ids = self.ids[torch.from_numpy(slots)].cpu().numpy()
        self.trace.end_of(slots)
        for slot, row in zip(slots, ids, strict=True):
            yield self.begin.output(
                slot,
                int(self.output[slot]),
                row,
                self.trace.changed[slot],
                nfe=int(self.nfe[slot]),
                seconds=float(self.seconds[slot]),
                mask=self.denoiser.mask_id,
                sampler=self.spec.name,
            )
        self.output[slots] = -1

    def _step(self, active: NDArray[np.int64], law: Law) -> None:
        """Draw wherever the state is up to date; only when nowhere, run the network.

        So sequences whose offers were all rejected catch up before the next batch is formed.
        """
        ready = active[self.fresh[active]]
        if ready.size:
            self._draw(ready, law)
        else:
            self._think(active)

    def _think(self, slots: NDArray[np.int64]) -> None:
        """Bring the hidden states of `slots` up to date."""
        blank = self.masked[slots].all(1)
        self._think_once(slots[blank])
        seen = slots[~blank]
        if seen.size:
            ids = self.ids[torch.from_numpy(seen)]
            starts = self.begin.columns(seen, ids.device)
            self._store(seen, self._network(ids, self.round[seen], starts))
        self.fresh[slots] = True
        self.nfe[slots] += 1

    def _think_once(self, slots: NDArray[np.int64]) -> None:
        """Sequences that are still all masks share one pass (for each noise level that counts)."""
        if not slots.size:
            return
        levels = self.round[slots] if self.denoiser.time_conditioned else np.zeros_like(slots)
        new = np.array([k for k in np.unique(levels) if k not in self._all_masked], np.int64)
        if new.size:
            ids = torch.full(
                (len(new), self.ids.shape[1]), self.denoiser.mask_id, device=self.ids.device
            )
            self._all_masked.update(zip(new.tolist(), self._network(ids, new), strict=True))
        for level in np.unique(levels):
            state = self._all_masked[int(level)]
            same = slots[levels == level]
            self._store(same, state.expand(len(same), *state.shape))

    def _network(
        self, ids: Tensor, rounds: NDArray[np.int64], starts: Tensor | None = None
    ) -> Tensor:
        self.network_calls += 1
        self.network_rows += len(ids)
        if starts is not None:
            return cast(PaddingDenoiser, self.denoiser).padded(ids, starts)
        timed = self.denoiser.time_conditioned
        return self.denoiser.hidden(ids, self.sigmas[torch.from_numpy(rounds)] if timed else None)

    def _store(self, slots: NDArray[np.int64], hidden: Tensor) -> None:
        if self._hidden is None:
            self._hidden = hidden.new_empty((len(self.output), *hidden.shape[1:]))
        self._hidden[torch.from_numpy(slots)] = hidden

    def _draw(self, slots: NDArray[np.int64], law: Law) -> None:
        """The head and the draw at the wanted rows, a bounded number at a time."""
        assert self._hidden is not None
        where, position = np.nonzero(self.wanted[slots])
        slot = slots[where]
        tokens = np.empty(len(slot), np.int64)
        chunk = max(1, HEAD_ENTRIES // self.denoiser.vocab_size)
        for start in range(0, len(slot), chunk):
            rows = slot[start : start + chunk], position[start : start + chunk]
            index = [torch.from_numpy(part).to(self.ids.device) for part in rows]
            logits = self.denoiser.logits(self._hidden, *index)
            token = self._tokens(logits, *rows, law)
            tokens[start : start + chunk] = token
            self.ids[index[0], index[1]] = torch.from_numpy(token).to(self.ids.device)
        revealed = tokens != self.denoiser.mask_id
        self.note(slot[revealed], position[revealed], tokens[revealed])
        self.wanted[slots] = False
        if self.denoiser.time_conditioned:
            self.fresh[slots] = False  # the next round has another noise level

    def note(
        self, slot: NDArray[np.int64], position: NDArray[np.int64], token: NDArray[np.int64]
    ) -> None:
        """These tokens changed in the current round of their sequences."""
        self.masked[slot, position] = token == self.denoiser.mask_id
        self.fresh[slot] = False
        place = self.begin.place[slot, position]
        self.trace.note(self.output[slot], slot, self.round[slot], place, token)

    def address(self, slot: NDArray[np.int64], position: NDArray[np.int64]) -> Address:
        """Where the random numbers of these positions lie in the current rounds."""
        place = self.begin.place[slot, position]
        return Address(self.output[slot], self.round[slot], place)

    def _tokens(
        self, logits: Tensor, slots: NDArray[np.int64], positions: NDArray[np.int64], law: Law
    ) -> NDArray[np.int64]:
        """The law's draw, except where a greedy finish takes the best token."""
        greedy = self.round[slots] == self.grid.updates
        if self.spec.finish != "greedy" or not greedy.any():
            return law.draw(logits, slots, positions, self)
        token = np.empty(len(slots), np.int64)
        best = clean_log_probs(logits[torch.from_numpy(greedy)], self.denoiser.mask_id, 0, 1)
        token[greedy] = best.argmax(-1).cpu().numpy()
        if not greedy.all():
            rest = ~greedy
            token[rest] = law.draw(
                logits[torch.from_numpy(rest)], slots[rest], positions[rest], self
            )
        return token


def packed(law: Callable[[Packed, int], Law]) -> FastSampler:
    """The fast sampler of a law, which is made from the loop and the seed."""

    def sampler(job: Job) -> Iterator[Output]:
        denoiser, grid = cast(Denoiser, job.model), reveal_grid(job.spec)
        loop = Packed(denoiser, job.spec, grid, job.slots, job.length, job.on_step, job.canvases)
        return loop.run(job.outputs, law(loop, job.seed))

    return sampler
