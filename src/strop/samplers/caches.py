"""One decoder with and without caches: what it writes, what it computes, how far its laws are off.

Everything else is the same: prompts, blocks, steps, temperature and the random numbers, which have
addresses. See `strop study cache`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.denoisers.base import Denoiser
from strop.samplers.decoders import DecoderRecipe, fill, fitting, recipe
from strop.samplers.machinery.blocks import BlockState
from strop.samplers.machinery.reading import Cache, NetworkReader
from strop.samplers.machinery.shadows import Laws, Shadowed
from strop.spec import SamplerSpec


@dataclass(frozen=True)
class CachedOutputs:
    """What came out, in the order of the outputs."""

    ids: NDArray[np.int64]
    """Generated tokens [n, L], without the prompts."""
    calls: NDArray[np.int64]
    """Network calls [n]."""
    positions: NDArray[np.int64]
    """Positions that the network computed [n], all calls together."""
    seconds: float
    """For all of them."""


@dataclass(frozen=True)
class CacheBench:
    """A generator of which everything but the cache is settled."""

    denoiser: Denoiser
    spec: SamplerSpec
    """Of a sampler that has caches, with one of them."""
    length: int
    outputs: Sequence[int]
    """Their numbers."""
    seed: int = 0
    prompts: Sequence[Sequence[int]] = ((),)
    """Token ids; output i follows prompt i mod P."""
    batch_size: int = 16

    @cached_property
    def recipe(self) -> DecoderRecipe:
        """The cached decoder, reading everything: the same but for the cache.

        (Without its cache a public decoder may be another one: Fast-dLLM's for Dream is.)
        """
        mine = recipe(self.spec.name, self.spec.settings)
        return replace(mine, decoder=fitting(mine, self.denoiser), cache="none")

    def run(self, cache: str, *, seed: int | None = None) -> CachedOutputs:
        """All outputs through one cache, or `none`."""
        n = len(self.outputs)
        found = [np.zeros((n, self.length), np.int64)]
        found += [np.zeros(n, np.int64) for _ in range(2)]
        seconds = 0.0
        for batch in self.batches():
            began = time.perf_counter()
            canvas = self._filled(batch, cache, seed=self.seed if seed is None else seed)
            parts = (canvas.ids[:, -self.length :], canvas.calls, canvas.positions)
            for into, part in zip(found, parts, strict=True):
                into[batch] = part.cpu().numpy()
            seconds += time.perf_counter() - began
        return CachedOutputs(found[0], found[1], found[2], seconds)

    def laws(self, caches: Sequence[str]) -> dict[str, Laws]:
        """How far each cache's laws are from the uncached ones, along the uncached outputs."""
        found = {cache: Laws.empty(len(self.outputs), self.length) for cache in caches}
        for batch in self.batches():
            mine = {cache: Laws.empty(len(batch), self.length) for cache in caches}
            self._filled(batch, "none", seed=self.seed, laws=mine)
            for cache, laws in mine.items():
                for name, table in vars(laws).items():
                    getattr(found[cache], name)[batch] = table
        return found

    def _filled(
        self,
        batch: NDArray[np.int64],
        cache: str,
        *,
        seed: int,
        laws: Mapping[str, Laws] | None = None,
    ) -> BlockState:
        spec = self.spec
        reading = NetworkReader if laws is None else partial(Shadowed, laws=laws)
        numbers = np.array(self.outputs, np.int64)[batch]
        return fill(
            self.denoiser,
            replace(self.recipe, cache=cast(Cache, cache)),
            self._start(numbers),
            seed=seed,
            outputs=numbers,
            steps=spec.steps,
            name=spec.name,
            temperature=spec.temperature,
            top_p=spec.top_p,
            precision=spec.precision,
            reading=reading,
        )

    def _prompt(self, output: int) -> Sequence[int]:
        return self.prompts[output % len(self.prompts)]

    def _start(self, numbers: NDArray[np.int64]) -> Tensor:
        masks = [self.denoiser.mask_id] * self.length
        return torch.tensor([[*self._prompt(i), *masks] for i in numbers.tolist()])

    def batches(self) -> Iterator[NDArray[np.int64]]:
        """Places of outputs whose prompts are equally long: no padding that would be computed."""

        def size(place: int) -> int:
            return len(self._prompt(self.outputs[place]))

        for _, group in groupby(sorted(range(len(self.outputs)), key=size), key=size):
            mine = np.array(list(group), np.int64)
            for first in range(0, len(mine), self.batch_size):
                yield mine[first : first + self.batch_size]
