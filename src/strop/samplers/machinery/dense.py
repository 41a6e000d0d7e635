"""What the dense samplers share: the public codes' habits, to the bit.

Every step draws one number per position and class, for visible positions too, from one generator
per batch. That is what makes them slow, and what makes them the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.denoisers.base import Denoiser, all_logits, carry_over
from strop.denoisers.device import brought, upload
from strop.pool import OnStep
from strop.prompts import Canvases
from strop.samplers.machinery.categorical import race, shaped
from strop.samplers.machinery.grid import RevealGrid, temperatures
from strop.samplers.machinery.start import Start
from strop.samplers.machinery.trace import Trace
from strop.spec import SamplerSpec

Numbers = NDArray[np.int64]


@dataclass
class DenseRun:
    """One batch under way: the settings, the random stream, and the count of network calls."""

    denoiser: Denoiser
    spec: SamplerSpec
    grid: RevealGrid
    generator: torch.Generator
    batch: int
    length: int
    outputs: Numbers | None = None
    """Their indices; None: 0, 1, ..."""
    on_step: OnStep | None = None
    canvases: Canvases | None = None
    """What the outputs answer; None: nothing is given."""
    calls: int = field(default=0, init=False)
    """Calls of the network that predicts."""
    counts: dict[str, Numbers] = field(default_factory=dict, init=False)
    """Per output, what else the sampler counts, as its record says."""
    judge_calls: int = field(default=0, init=False)
    """Calls of a network that judges what was predicted, one for each state it looks at."""
    row_calls: Numbers | None = field(default=None, init=False)
    """Calls per sequence, where they do not share them."""
    round: int = field(default=0, init=False)
    """Updates made so far."""
    changed: bool = field(default=False, init=False)
    """Whether the last one changed anything."""

    def __post_init__(self) -> None:
        self.numbers = np.arange(self.batch) if self.outputs is None else self.outputs
        self.begin = Start(self.batch, self.length, self.canvases)
        self.begin.enter(np.arange(self.batch), self.numbers)
        self.trace = Trace(self.batch, self.begin.width, self.on_step)
        self.heats = temperatures(self.spec, self.grid)
        """The temperature of every round, where they differ."""

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the draw."""
        return getattr(torch, self.spec.precision)

    def start(self) -> Tensor:
        """A batch of masks, and whatever is given."""
        return upload(self.begin.ids(self.denoiser.mask_id).numpy(), self.denoiser.device)

    def logits(self, ids: Tensor, sigma: Tensor) -> Tensor:
        """Raw scores [B, L, V] of one network call."""
        self.calls += 1
        levels = upload(np.full(self.batch, sigma.numpy()), ids.device)
        return all_logits(self.denoiser, ids, levels)

    def log_probs(self, ids: Tensor, sigma: Tensor) -> Tensor:
        """Tempered clean-token log-probabilities [B, L, V], visible tokens carried over."""
        return self.law(self.logits(ids, sigma), ids)

    def law(self, logits: Tensor, ids: Tensor) -> Tensor:
        """The same from scores, which it may overwrite."""
        denoiser = self.denoiser
        if denoiser.spec.network_dtype == "public":  # as they left the network: nothing is lost
            logits = logits.bfloat16()
        heat = None if self.heats is None else float(self.heats[self.round])
        clean = shaped(logits, denoiser.mask_id, self.spec, temperature=heat)
        return carry_over(clean, ids, denoiser.mask_id)

    def probabilities(self, log_probs: Tensor) -> Tensor:
        """At the precision of the draw; in float32 the public code takes exp before the cast."""
        if self.dtype == torch.float32:
            return log_probs.exp().to(self.dtype)
        return log_probs.to(self.dtype).exp()

    def draw(self, weights: Tensor) -> Tensor:
        """The public race at the precision of `weights`."""
        return race(weights, brought(uniforms(weights, self.generator), weights.device))

    def step(self, ids: Tensor, moved: Tensor) -> Tensor:
        """End an update: note what it changed, and go on with `moved`."""
        told = torch.stack([moved, moved != ids]).cpu().numpy()  # waits
        slot, position = np.nonzero(told[1])
        self.changed = bool(slot.size)
        if slot.size:
            self.note(self.round, slot, position, told[0][slot, position])
        self.round += 1
        return moved

    def note(self, update: int, slots: Numbers, position: Numbers, token: Numbers) -> None:
        """These tokens changed in an update (counted from 0)."""
        place = self.begin.place[slots, position]
        self.trace.note(self.numbers[slots], slots, np.full(len(slots), update), place, token)

    def keep_visible(self, drawn: Tensor, ids: Tensor) -> Tensor:
        """A token that is visible stays."""
        return torch.where(ids == self.denoiser.mask_id, drawn, ids)

    def fill_greedily(self, ids: Tensor, log_probs: Tensor) -> Tensor:
        """Put the best token at every mask that is left."""
        return self.keep_visible(log_probs.argmax(dim=-1), ids)

    def fill_by_draw(self, ids: Tensor, log_probs: Tensor) -> Tensor:
        """Draw a clean token at every mask that is left."""
        weights = self.probabilities(log_probs)
        weights[..., self.denoiser.mask_id] = 0
        return self.keep_visible(self.draw(weights), ids)

    def public_finish(self, ids: Tensor) -> Tensor:
        """One more network call at the last mass, as the MDLM code does it, needed or not."""
        if self.spec.finish == "none":
            return ids
        log_probs = self.log_probs(ids, self.grid.sigmas()[-1])
        fill = self.fill_greedily if self.spec.finish == "greedy" else self.fill_by_draw
        return self.step(ids, fill(ids, log_probs))


def uniforms(weights: Tensor, generator: torch.Generator) -> Tensor:
    """One number per position and class, at the precision of the weights."""
    place = generator.device
    return torch.rand(weights.shape, dtype=weights.dtype, generator=generator, device=place)


DenseSampler = Callable[[DenseRun], Tensor]
"""A batch of ids [B, L] from a run."""
