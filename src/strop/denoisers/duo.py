"""DUO and DUO-DCD: a diffusion transformer that predicts the clean token behind a noisy one.

There is no mask: noise replaces a token by a uniform one, so every position may be wrong and every
prediction depends on the noise level. The distilled network (DCD) has the same form.
"""

from __future__ import annotations

import torch
from torch import Tensor

from strop.checkpoints.config import DiTShape, expected_tensors
from strop.checkpoints.layout import Layout, flat_names
from strop.denoisers.base import all_logits, checked_ids
from strop.denoisers.network import NetworkDenoiser


class DUO(NetworkDenoiser):
    """A uniform-state checkpoint as a `Denoiser`."""

    @torch.no_grad()
    def log_probs(self, ids: Tensor, sigma: Tensor | None = None) -> Tensor:
        """Log-probabilities [B, L, V] of the clean token; nothing is carried over."""
        ids = checked_ids(ids, self)
        return all_logits(self, ids, self._levels(sigma, len(ids))).log_softmax(-1).cpu()  # waits


def layout(shape: DiTShape) -> Layout:
    """The hub's: flat names without a mask, one backbone."""
    flat = flat_names(shape, without=("mask_id", "time_conditioning"))
    config = {"model_type": "duo", **flat, "causal": False, "var_min": True}
    return Layout(config, expected_tensors(shape), prefix="backbone.")
