"""What the dense samplers share: the public codes' habits, to the bit.

Every step draws one number per position and class, for visible positions too, from one generator
per batch. That is what makes them slow, and what makes them the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from strop.denoisers.base import all_logits, carry_over
from strop.denoisers.device import Numbers, brought, head_rows, upload, upload_rows
from strop.samplers.machinery.categorical import log_share, race, shaped
from strop.samplers.machinery.start import BatchRun, temperatures


@dataclass
class DenseRun(BatchRun):
    """One batch under way: the settings, the random stream, and the count of network calls."""

    generator: torch.Generator = field(kw_only=True)
    calls: int = field(default=0, init=False)
    """Calls of the network that predicts."""
    judge_calls: int = field(default=0, init=False)
    """Calls of a network that judges what was predicted, one for each state it looks at."""
    row_calls: Numbers | None = field(default=None, init=False)
    """Calls per sequence, where they do not share them."""
    round: int = field(default=0, init=False)
    """Updates made so far."""
    changed: bool = field(default=False, init=False)
    """Whether the last one changed anything."""
    clean: Tensor | None = field(default=None, init=False)
    """[B, L, V], the law of the clean token that the next step draws from, as logarithms that
    need not be normalised; None where a sampler does not say."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.heats = temperatures(self.spec, self.grid)
        """The temperature of every round, where they differ."""

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the draw."""
        return getattr(torch, self.spec.precision)

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
        self.clean = shaped(logits, denoiser.mask_id, self.spec, temperature=heat)
        return carry_over(self.clean, ids, denoiser.mask_id)

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
        on_host = torch.stack([moved, moved != ids]).cpu().numpy()  # waits
        slot, position = np.nonzero(on_host[1])
        self.changed = bool(slot.size)
        if slot.size:
            self.note(self.round, slot, position, on_host[0][slot, position])
            self._know(slot, position, moved)
        self.round += 1
        return moved

    def _know(self, slot: Numbers, position: Numbers, moved: Tensor) -> None:
        """How likely the clean law makes what has just come, some rows at a time."""
        if self.clean is None:
            return
        mask_id, classes = self.denoiser.mask_id, self.clean.shape[-1]
        rows = head_rows(classes, moved.device)
        for first in range(0, len(slot), rows):
            part = slice(first, first + rows)
            at = upload_rows(moved.device, slot[part], position[part])
            scores = self.clean[at]
            if mask_id < classes:
                scores[:, mask_id] = -torch.inf
            self.trace.chance[at] = log_share(scores, moved[at]).float()

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
    device = generator.device
    return torch.rand(weights.shape, dtype=weights.dtype, generator=generator, device=device)


DenseSampler = Callable[[DenseRun], Tensor]
"""A batch of ids [B, L] from a run."""
