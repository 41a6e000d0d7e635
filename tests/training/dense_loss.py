"""The loss by the dense formula: what the sparse one is compared with."""

from __future__ import annotations

import torch
from torch import Tensor

from strop.denoisers.base import Denoiser, all_log_probs
from strop.training.objective import Noise, public_noise


def loss_per_token(
    denoiser: Denoiser,
    ids: Tensor,
    generator: torch.Generator | None = None,
    noise: Noise | None = None,
) -> Tensor:
    """One draw of the loss by the dense formula, [B, L]: zero at visible tokens.

    Without `noise` it is the public form, drawn as the public code draws it.
    """
    drawn = public_noise(ids.shape[0], ids.shape[1], generator) if noise is None else noise
    drawn = drawn.to(ids.device)
    noisy = torch.where(drawn.hidden, denoiser.mask_id, ids)
    log_probs = all_log_probs(denoiser, noisy, drawn.sigma)
    surprise = -log_probs.gather(-1, ids[..., None])[..., 0]
    return surprise * drawn.weight[:, None]
