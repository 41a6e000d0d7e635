"""The fast loop: every sequence at its own pace, packed into one network batch.

A slot holds one sequence. The law of the sampler says, without asking the network, in which round
its sequence next needs it, and at which positions; the loop runs the network for all slots whose
state is out of date, the head at the wanted rows only, and lets the law draw. A finished sequence
is handed out and its slot goes to the next one. Nothing here depends on which sequences share a
batch, except the last bits of a matrix product.

The host must not wait for the device. What it needs to go on (rounds, rows, which positions are
masked) it knows itself, uploads do not block, and tokens come back when their sequence is done,
unless the law has to look at them (or somebody watches).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.denoisers.base import Denoiser, Model, PaddingDenoiser
from strop.denoisers.device import Floats, Numbers, head_rows, upload, upload_rows
from strop.pool import OnStep, Output
from strop.prompts.canvas import Canvases
from strop.samplers.machinery.categorical import Normalisers, clean_log_probs, log_share, shaped
from strop.samplers.machinery.lattice import Address
from strop.samplers.machinery.start import Start, Trace, reveal_grid, temperatures
from strop.spec.generator import SamplerSpec


@dataclass(frozen=True)
class FastDraw:
    """Some outputs of one generator under one seed, and who watches."""

    model: Model
    spec: SamplerSpec
    seed: int
    outputs: Iterable[int]
    """Their indices; each is a function of the seed and its index."""
    slots: int
    """How many may be under way at once."""
    length: int
    """Positions of every sequence; with canvases, given and open."""
    on_step: OnStep | None = None
    canvases: Canvases | None = None
    """What the outputs answer, all of one number of positions here; None: nothing is given."""


FastSampler = Callable[[FastDraw], Iterator[Output]]
"""The outputs of a draw, in the order in which they are finished."""


class Rows(NamedTuple):
    """Positions of sequences, one entry each, on the host and on the device."""

    slot: Numbers
    position: Numbers
    cells: tuple[Tensor, Tensor]
    """The same two on the device."""


class Law(Protocol):
    """When a sequence needs the network, and what it draws then."""

    def enter(self, slots: Numbers, outputs: Numbers) -> None:
        """New sequences take these slots."""
        ...

    def advance(self, slots: Numbers, packed: Packed) -> None:
        """Set `packed.round` to the next round in which each slot needs the network.

        A round beyond the last means that the sequence is done.
        """
        ...

    def take(self, slots: Numbers, packed: Packed) -> tuple[Numbers, Numbers]:
        """The rows that need the head in that round, slot and position; asked for once."""
        ...

    def draw(self, logits: Tensor, rows: Rows, packed: Packed) -> Tensor | Numbers:
        """A token for every row of `logits` [R, V].

        Still on the device where every row is revealed for sure; else on the host, the mask where
        a row was not.
        """
        ...


class Packed:
    """Slots, and the loop over them."""

    def __init__(self, draw: FastDraw) -> None:
        denoiser, grid = cast(Denoiser, draw.model), reveal_grid(draw.spec)
        slots, length = draw.slots, draw.length
        self.begin = Start(slots, length, draw.canvases)
        self.denoiser, self.spec, self.grid = denoiser, draw.spec, grid
        self.done = grid.updates + 1  # the round after the finish
        self.sigmas = upload(grid.sigmas().numpy(), denoiser.device)
        self.ids = torch.full((slots, length), denoiser.mask_id, device=denoiser.device)
        self.masked = np.ones((slots, length), bool)
        self.output = np.full(slots, -1, np.int64)
        self.round = np.full(slots, -1, np.int64)
        self.idle = np.zeros(slots, bool)  # the law has yet to say what is next
        self.blank = np.zeros(slots, bool)  # nothing but masks
        self.fresh = np.zeros(slots, bool)  # the hidden state belongs to the current ids
        self.nfe = np.zeros(slots, np.int64)
        self.seconds = np.zeros(slots)
        self.trace = Trace(self.begin, denoiser.device, draw.on_step)
        self.chance: Tensor | None = None
        """Per row of a draw, how likely its token was; a law that knows sets it as it draws."""
        self.network_calls = 0
        self.network_rows = 0
        self._hidden: Tensor | None = None
        self._place = np.zeros(slots, np.int64)  # where each slot is in the hidden state
        self._all_masked: dict[int, Tensor] = {}
        self.confirm = Normalisers()
        self._heats = temperatures(draw.spec, grid)
        self._rows = head_rows(denoiser.vocab_size, denoiser.device)

    def run(self, outputs: Iterable[int], law: Law) -> Iterator[Output]:
        """Yield every output as it is finished."""
        waiting = iter(outputs)
        clock = time.perf_counter()
        self._refill(waiting, law)
        while (active := np.flatnonzero(self.output >= 0)).size:
            idle = active[self.idle[active]]
            if idle.size:
                law.advance(idle, self)
                self.idle[idle] = False
            ended = active[self.round[active] == self.done]
            if not ended.size:
                self._step(active, law)
            rows = None
            if ended.size:  # the only time that the host has to wait, if the law does not ask it to
                at = self.upload(ended)
                rows = self.confirm.fetched(self.ids[at], self.trace.chance[at])
            now = time.perf_counter()
            self.seconds[active] += (now - clock) / active.size
            clock = now
            if rows is not None:
                yield from self._hand_out(ended, *rows)
                self._refill(waiting, law)
                clock = time.perf_counter()  # what the caller does with outputs is not ours

    def upload(self, array: NDArray[Any]) -> Tensor:
        """The array where the sequences are."""
        return upload(array, self.ids.device)

    def _refill(self, waiting: Iterator[int], law: Law) -> None:
        free = np.flatnonzero(self.output < 0)
        outputs = np.fromiter(islice(waiting, len(free)), np.int64)
        if not outputs.size:
            return
        slots = free[: len(outputs)]
        self.begin.enter(slots, outputs)
        start = self.begin.ids(self.denoiser.mask_id, slots)
        self.ids[self.upload(slots)] = self.upload(start.numpy())
        self.masked[slots] = self.begin.open[slots]
        self.idle[slots], self.fresh[slots] = True, False
        self.blank[slots] = self.begin.open[slots].all(1)
        self.output[slots], self.round[slots] = outputs, -1
        self.nfe[slots], self.seconds[slots] = 0, 0.0
        self.trace.forget(slots)
        law.enter(slots, outputs)

    def _hand_out(self, slots: Numbers, rows: Numbers, chance: Floats) -> Iterator[Output]:
        self.trace.end_of(slots)
        yield from self.begin.outputs(
            slots,
            self.output[slots],
            rows,
            chance,
            self.trace,
            nfe=self.nfe[slots],
            seconds=self.seconds[slots],
            mask=self.denoiser.mask_id,
            sampler=self.spec.name,
        )
        self.output[slots] = -1

    def _step(self, active: Numbers, law: Law) -> None:
        """Draw wherever the state is up to date; only when nowhere, run the network.

        So sequences whose offers were all rejected catch up before the next batch is formed.
        """
        ready = active[self.fresh[active]]
        if ready.size:
            self._draw(ready, law)
        else:
            self._think(active)

    def _think(self, slots: Numbers) -> None:
        """Bring the hidden states of `slots`, which are all that are under way, up to date."""
        blank = self.blank[slots]
        seen, unseen = slots[~blank], slots[blank]
        self._hidden = None  # before the next one is made: they are large
        states = []
        if seen.size:
            ids = self.ids[self.upload(seen)]
            starts = self.begin.columns(seen, ids.device)
            states.append(self._network(ids, self.round[seen], starts))
        if unseen.size:
            states.append(self._shared(unseen))
        self._hidden = states[0] if len(states) == 1 else torch.cat(states)
        self._place[seen] = np.arange(len(seen))
        self._place[unseen] = np.arange(len(seen), len(slots))
        self.fresh[slots] = True
        self.nfe[slots] += 1

    def _shared(self, slots: Numbers) -> Tensor:
        """Sequences that are still all masks share one pass (for each noise level that counts)."""
        levels = self.round[slots] if self.denoiser.time_conditioned else np.zeros_like(slots)
        distinct = np.unique(levels)
        new = np.array([k for k in distinct if k not in self._all_masked], np.int64)
        if new.size:
            ids = torch.full(
                (len(new), self.ids.shape[1]), self.denoiser.mask_id, device=self.ids.device
            )
            self._all_masked.update(zip(new.tolist(), self._network(ids, new), strict=True))
        if len(distinct) > 1:
            return torch.stack([self._all_masked[level] for level in levels.tolist()])
        state = self._all_masked[int(distinct[0])]
        return state.expand(len(slots), *state.shape)

    def _network(self, ids: Tensor, rounds: Numbers, starts: Tensor | None = None) -> Tensor:
        self.network_calls += 1
        self.network_rows += len(ids)
        if starts is not None:
            return cast(PaddingDenoiser, self.denoiser).padded(ids, starts)
        timed = self.denoiser.time_conditioned
        return self.denoiser.hidden(ids, self.sigmas[self.upload(rounds)] if timed else None)

    def _draw(self, slots: Numbers, law: Law) -> None:
        """The head and the draw at the wanted rows; a greedy finish takes the best token."""
        slot, position = law.take(slots, self)
        finish = self.round[slot] == self.grid.updates
        if self.spec.finish == "greedy" and finish.any():
            self._reveal(slot[finish], position[finish], self._best)
            slot, position = slot[~finish], position[~finish]
        if len(slot):
            self._reveal(slot, position, law.draw)
        self.idle[slots] = True
        if self.denoiser.time_conditioned:
            self.fresh[slots] = False  # the next round has another noise level

    def _reveal(
        self,
        slots: Numbers,
        positions: Numbers,
        draw: Callable[[Tensor, Rows, Packed], Tensor | Numbers],
    ) -> None:
        """A bounded number of rows at a time."""
        assert self._hidden is not None
        for start in range(0, len(slots), self._rows):
            part = slice(start, start + self._rows)
            slot, position = slots[part], positions[part]
            at = upload_rows(self.ids.device, slot, position, self._place[slot])
            logits = self.denoiser.logits(self._hidden, at[2], at[1])
            rows = Rows(slot, position, (at[0], at[1]))
            token = draw(logits, rows, self)
            if isinstance(token, Tensor):
                self.ids[rows.cells] = token
                tokens = token.cpu().numpy() if self.trace.watched else None  # waits
                self.note(slot, position, tokens)
            else:
                self.ids[rows.cells] = self.upload(token)
                out = token != self.denoiser.mask_id
                self.note(slot[out], position[out], token[out])
            if self.chance is not None:  # after what it replaces was noted
                self.trace.chance[rows.cells], self.chance = self.chance.float(), None

    def _best(self, logits: Tensor, rows: Rows, packed: Packed) -> Tensor:  # noqa: ARG002
        mask_id = self.denoiser.mask_id
        law = shaped(logits.clone(), mask_id, self.spec, self.confirm, self.heat(rows.slot))
        best = clean_log_probs(logits, mask_id, 0, 1, confirm=self.confirm).argmax(-1)
        self.chance = log_share(law, best)
        return best

    def note(self, slot: Numbers, position: Numbers, token: Numbers | None) -> None:
        """These tokens changed in the current round of their sequences; None: to ones unseen."""
        self.masked[slot, position] = False if token is None else token == self.denoiser.mask_id
        self.fresh[slot] = self.blank[slot] = False
        self.trace.note(self.output[slot], slot, self.round[slot], position, token)

    def heat(self, slot: Numbers) -> Tensor | None:
        """The temperatures of these slots' rounds under a schedule; else None."""
        return None if self._heats is None else self.upload(self._heats[self.round[slot]])

    def address(self, slot: Numbers, position: Numbers) -> Address:
        """Where the random numbers of these positions lie in the current rounds."""
        open_index = self.begin.place[slot, position]
        return Address(self.output[slot], self.round[slot], open_index)


def packed(law: Callable[[Packed, int], Law]) -> FastSampler:
    """The fast sampler of a law, which is made from the loop and the seed."""

    def sampler(draw: FastDraw) -> Iterator[Output]:
        loop = Packed(draw)
        return loop.run(draw.outputs, law(loop, draw.seed))

    return sampler
