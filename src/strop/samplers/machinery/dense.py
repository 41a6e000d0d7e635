"""What the dense samplers share: the public codes' habits, to the bit.

Every step draws one number per position and class, for visible positions too, from one generator
per batch. That is what makes them slow, and what makes them the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from strop.denoisers.base import Denoiser, all_logits, carry_over
from strop.samplers.machinery.categorical import race, shaped
from strop.samplers.machinery.grid import RevealGrid
from strop.spec import SamplerSpec

__all__ = ["DenseRun", "DenseSampler"]


@dataclass
class DenseRun:
    """One batch under way: the settings, the random stream, and the count of network calls."""

    denoiser: Denoiser
    spec: SamplerSpec
    grid: RevealGrid
    generator: torch.Generator
    batch: int
    length: int
    bits: int = 24
    """Random bits of a float32 number: 24 as torch has them, fewer only to test the law."""
    calls: int = field(default=0, init=False)
    """Calls of the network that predicts."""
    judge_calls: int = field(default=0, init=False)
    """Calls of a network that judges what was predicted, one for each state it looks at."""

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the draw."""
        return getattr(torch, self.spec.precision)

    def start(self) -> Tensor:
        """A batch of nothing but masks."""
        return torch.full(
            (self.batch, self.length), self.denoiser.mask_id, device=self.denoiser.device
        )

    def logits(self, ids: Tensor, sigma: Tensor) -> Tensor:
        """Raw scores [B, L, V] of one network call."""
        self.calls += 1
        return all_logits(self.denoiser, ids, sigma.expand(self.batch).to(ids.device))

    def log_probs(self, ids: Tensor, sigma: Tensor) -> Tensor:
        """Tempered clean-token log-probabilities [B, L, V], visible tokens carried over."""
        logits = self.logits(ids, sigma)
        denoiser = self.denoiser
        clean = shaped(logits, denoiser.mask_id, self.spec)
        return carry_over(clean, ids, denoiser.mask_id)

    def draw(self, weights: Tensor) -> Tensor:
        """The public race at the precision of `weights`."""
        uniforms = torch.rand(weights.shape, dtype=weights.dtype, generator=self.generator)
        if weights.dtype == torch.float32 and self.bits != 24:
            uniforms = (uniforms * 2**self.bits).floor() / 2**self.bits
        return race(weights, uniforms.to(weights.device))

    def keep_visible(self, drawn: Tensor, ids: Tensor) -> Tensor:
        """A token that is visible stays."""
        return torch.where(ids == self.denoiser.mask_id, drawn, ids)

    def fill_greedily(self, ids: Tensor, log_probs: Tensor) -> Tensor:
        """Put the best token at every mask that is left."""
        return self.keep_visible(log_probs.argmax(dim=-1), ids)

    def fill_by_draw(self, ids: Tensor, log_probs: Tensor) -> Tensor:
        """Draw a clean token at every mask that is left."""
        weights = log_probs.to(self.dtype).exp()
        weights[..., self.denoiser.mask_id] = 0
        return self.keep_visible(self.draw(weights), ids)

    def public_finish(self, ids: Tensor) -> Tensor:
        """One more network call at the last mass, as the MDLM code does it, needed or not."""
        if self.spec.finish == "none":
            return ids
        log_probs = self.log_probs(ids, self.grid.sigmas()[-1])
        fill = self.fill_greedily if self.spec.finish == "greedy" else self.fill_by_draw
        return fill(ids, log_probs)


DenseSampler = Callable[[DenseRun], Tensor]
"""A batch of ids [B, L] from a run."""
