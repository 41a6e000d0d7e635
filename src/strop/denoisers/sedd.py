"""SEDD (absorbing): a diffusion transformer that predicts ratios of probabilities.

At noise sigma the network's output z becomes the log score

    log s(y) = z(y) - log(e^sigma - 1) - log(V - 1),    and 0 at the token that is there.

At a masked position s(y) stands for p_t(.. y ..) / p_t(.. mask ..); the sum of the scores over the
tokens is the rate at which the position is revealed, and their shares are the token's law.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from strop.checkpoints.config import DiTShape, expected_tensors
from strop.checkpoints.layout import Layout
from strop.denoisers.base import all_logits, carry_over, checked_ids, subs
from strop.denoisers.network import NetworkDenoiser

SMALL_SIGMA = 0.5
"""Below it e^sigma - 1 is computed by `expm1`, above it as it stands: the public code's habit."""


class SEDD(NetworkDenoiser):
    """A score entropy checkpoint as a `Denoiser`; its logits become scores by `log_score`."""

    @torch.no_grad()
    def log_score(self, ids: Tensor, sigma: Tensor | float) -> Tensor:
        """Log scores [B, L, V] at every position, on the CPU."""
        ids = checked_ids(ids, self)
        levels = self._levels(sigma, len(ids))
        return log_score(all_logits(self, ids, levels), ids, levels[:, None]).cpu()  # waits

    @torch.no_grad()
    def log_probs(self, ids: Tensor, sigma: Tensor | None = None) -> Tensor:
        """The scores' shares: log-probabilities [B, L, V], visible tokens carried over."""
        ids = checked_ids(ids, self)
        logits = all_logits(self, ids, self._levels(sigma, len(ids)))
        return carry_over(subs(logits, self.mask_id), ids, self.mask_id).cpu()  # waits


def log_score(logits: Tensor, ids: Tensor, sigma: Tensor) -> Tensor:
    """Log scores from logits [..., V], the tokens that are there [...] and their noise [...]."""
    scores = logits - log_score_shift(sigma, logits.dtype)[..., None]
    scores = scores - math.log(logits.shape[-1] - 1)
    return scores.scatter_(-1, ids[..., None], 0.0)


def log_score_shift(sigma: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """log(e^sigma - 1), as the public code rounds it."""
    return torch.where(sigma < SMALL_SIGMA, sigma.expm1(), sigma.exp() - 1).log().to(dtype)


def layout(shape: DiTShape) -> Layout:
    """The hub's: a nested configuration that counts tokens without the mask, bare keys."""
    names = ("cond_dim", "length", "n_blocks", "n_heads", "dropout")
    model = {"name": "small", "type": "ddit", "hidden_size": shape.hidden_dim}
    model |= {name: getattr(shape, name) for name in names} | {"scale_by_sigma": True}
    config = {
        "tokens": shape.vocab_size - 1,
        "graph": {"type": "absorb"},
        "noise": {"type": "loglinear"},
        "model": model,
    }
    return Layout(config, expected_tensors(shape))
