"""MDLM: a diffusion transformer that predicts the clean token at every masked position."""

from __future__ import annotations

import torch
from torch import Tensor

from strop.checkpoints.config import DiTShape, expected_tensors
from strop.checkpoints.layout import Layout, flat_names
from strop.denoisers.base import all_log_probs, checked_ids
from strop.denoisers.network import NetworkDenoiser


class MDLM(NetworkDenoiser):
    """A masked diffusion checkpoint as a `Denoiser`."""

    @torch.no_grad()
    def log_probs(self, ids: Tensor, sigma: Tensor | None = None) -> Tensor:
        """SUBS log-probabilities [B, L, V] on the CPU, visible tokens carried over."""
        ids = checked_ids(ids, self)
        return all_log_probs(self, ids, self._sigma(sigma, len(ids))).cpu()  # waits


def layout(shape: DiTShape) -> Layout:
    """The hub's: flat names, one backbone."""
    return Layout(flat_names(shape), expected_tensors(shape), prefix="backbone.")
