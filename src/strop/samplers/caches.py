"""One decoder with and without caches: what it writes, what it computes, how far its laws are off.

Everything else is the same: prompts, blocks, steps, temperature and the random numbers, which have
addresses. See `strop study cache`.

`Shadowed` measures the laws along the uncached run. At each of its calls the same canvas is read
through every cache, whose keys and values are those of the call that opened the block, and the two
laws of the clean token are compared at every open position of the block. So what is measured is the
cache alone, not what follows from tokens that it changed earlier.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.denoisers.base import Denoiser
from strop.denoisers.device import Floats, Numbers, Truths
from strop.samplers.decoders import DecoderRecipe, fill, fitting, recipe
from strop.samplers.machinery.blocks import BlockState
from strop.samplers.machinery.committing import Cache, NetworkReader, Turn, View
from strop.spec.generator import SamplerSpec


@dataclass(frozen=True)
class Laws:
    """Sums over open positions, by sequence and call within its block, [B, K]."""

    kl: Floats
    """KL(uncached || cached) of the network's own law over clean tokens, in nats."""
    moved: Floats
    """Positions whose best token is another one."""
    open: Floats
    """The number of open positions."""

    @classmethod
    def empty(cls, batch: int, calls: int) -> Laws:
        """Sums of zero, to be added to."""
        return cls(*(np.zeros((batch, calls)) for _ in range(3)))

    def add(self, row: NDArray, call: NDArray, kl: Tensor, moved: Tensor) -> None:
        """One entry per open position of a call."""
        np.add.at(self.kl, (row, call), kl.cpu().numpy())  # waits
        np.add.at(self.moved, (row, call), moved.cpu().numpy())  # waits
        np.add.at(self.open, (row, call), 1)


class Shadowed(NetworkReader):
    """The network read whole, and through each cache of `laws`, which are added to."""

    def __init__(
        self,
        denoiser: Denoiser,
        given: Truths,
        *,
        laws: Mapping[str, Laws],
        starts: Numbers | None = None,
        **how: Any,
    ) -> None:
        super().__init__(denoiser, given, starts=starts, **how)
        self._laws = laws
        self._shadows = {
            name: NetworkReader(denoiser, given, cache=cast(Cache, name), starts=starts)
            for name in laws
        }
        self._inside: Truths | None = None
        self._before: Numbers | None = None
        """[B], the calls of each sequence when the block was opened."""

    def read(
        self, canvas: BlockState, rows: Numbers, inside: Truths, candidates: Truths, turn: Turn
    ) -> View:
        """The uncached view; the others are compared with it and forgotten."""
        view = super().read(canvas, rows, inside, candidates, turn)
        opens = self._inside is None or not np.array_equal(inside, self._inside)
        if opens or self._before is None:
            self._inside, self._before = inside, canvas.calls.copy()
        call = (canvas.calls - self._before)[rows]
        # A cache is filled for all sequences that have the block, needed or not.
        filled = np.flatnonzero(inside.any(1)) if opens else rows
        shadow_turn = replace(turn, round=0 if opens else max(1, turn.round))
        index = np.searchsorted(filled, rows)
        for name, shadow in self._shadows.items():
            seen = shadow.read(canvas, filled, inside, candidates, shadow_turn)
            for sequence, column, logits in view.chunks(view.open):
                other = seen.at(index[sequence], column - seen.start)
                kl, moved = _compared(logits, other, canvas.mask_id)
                self._laws[name].add(rows[sequence], call[sequence], kl, moved)
        return view


def _compared(logits: Tensor, other: Tensor, mask_id: int) -> tuple[Tensor, Tensor]:
    """KL of two laws over clean tokens, row by row, and whether their best tokens differ."""
    logits[:, mask_id] = other[:, mask_id] = -torch.inf
    log_probs, other_log_probs = logits.double().log_softmax(-1), other.double().log_softmax(-1)
    excess = log_probs - other_log_probs
    excess[:, mask_id] = 0.0  # ruled out in both
    kl = (log_probs.exp() * excess).sum(-1).clamp(min=0.0)  # below zero is rounding
    return kl, log_probs.argmax(-1) != other_log_probs.argmax(-1)


@dataclass(frozen=True)
class CachedOutputs:
    """The outputs through one cache, in their order."""

    ids: Numbers
    """Generated tokens [n, L], without the prompts."""
    calls: Numbers
    """Network calls [n]."""
    positions: Numbers
    """Positions that the network computed [n], all calls together."""
    seconds: float
    """Seconds for all outputs together."""


@dataclass(frozen=True)
class CacheBench:
    """A generator of which everything but the cache is settled."""

    denoiser: Denoiser
    spec: SamplerSpec
    """Of a sampler that has caches, with one of them."""
    length: int
    outputs: Sequence[int]
    """The numbers of the outputs."""
    seed: int = 0
    prompts: Sequence[Sequence[int]] = ((),)
    """Token ids; output i follows prompt i mod P."""
    batch_size: int = 16

    @cached_property
    def recipe(self) -> DecoderRecipe:
        """The cached decoder, reading everything: the same but for the cache.

        (Without its cache a public decoder may be another one: Fast-dLLM's for Dream is.)
        """
        cached = recipe(self.spec.name, self.spec.settings)
        return replace(cached, decoder=fitting(cached, self.denoiser), cache="none")

    def run(self, cache: str, *, seed: int | None = None) -> CachedOutputs:
        """All outputs through one cache, or `none`."""
        n = len(self.outputs)
        ids = np.zeros((n, self.length), np.int64)
        calls, positions = np.zeros((2, n), np.int64)
        seconds = 0.0
        for batch in self.batches():
            began = time.perf_counter()
            canvas = self._filled(batch, cache, seed=self.seed if seed is None else seed)
            ids[batch] = canvas.tokens[:, -self.length :]
            calls[batch], positions[batch] = canvas.calls, canvas.positions
            seconds += time.perf_counter() - began
        return CachedOutputs(ids, calls, positions, seconds)

    def laws(self, caches: Sequence[str]) -> dict[str, Laws]:
        """How far each cache's laws are from the uncached ones, along the uncached outputs."""
        all_laws = {cache: Laws.empty(len(self.outputs), self.length) for cache in caches}
        for batch in self.batches():
            batch_laws = {cache: Laws.empty(len(batch), self.length) for cache in caches}
            self._filled(batch, "none", seed=self.seed, laws=batch_laws)
            for cache, laws in batch_laws.items():
                for name, table in vars(laws).items():
                    getattr(all_laws[cache], name)[batch] = table
        return all_laws

    def _filled(
        self, batch: Numbers, cache: str, *, seed: int, laws: Mapping[str, Laws] | None = None
    ) -> BlockState:
        reading = NetworkReader if laws is None else partial(Shadowed, laws=laws)
        numbers = np.array(self.outputs, np.int64)[batch]
        masks = [self.denoiser.mask_id] * self.length
        starts = torch.tensor([[*self._prompt(i), *masks] for i in numbers.tolist()])
        return fill(
            self.denoiser,
            replace(self.recipe, cache=cast(Cache, cache)),
            starts,
            self.spec,
            seed=seed,
            outputs=numbers,
            reading=reading,
        )

    def _prompt(self, output: int) -> Sequence[int]:
        return self.prompts[output % len(self.prompts)]

    def batches(self) -> Iterator[Numbers]:
        """Places of outputs whose prompts are equally long: no padding that would be computed."""

        def size(index: int) -> int:
            return len(self._prompt(self.outputs[index]))

        for _, group in groupby(sorted(range(len(self.outputs)), key=size), key=size):
            indices = np.array(list(group), np.int64)
            for first in range(0, len(indices), self.batch_size):
                yield indices[first : first + self.batch_size]
