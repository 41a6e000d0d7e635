"""The continuous-time objective of masked diffusion, as the public code estimates it.

One noise level t per sequence, stratified over the batch; every token is masked with probability
(1 - 1e-3) t; the loss of a masked token is -log p(token | visible) / t, others cost nothing. Its
mean estimates the negative ELBO per token, clipped to t in [1e-3, 1].
"""

from __future__ import annotations

import torch
from torch import Tensor

from strop.denoisers.base import Denoiser, all_log_probs
from strop.samplers.grid import NOISE_EPSILON, sigma_of

__all__ = ["corrupt", "loss_per_token", "stratified_times"]

TIME_EPSILON = 1e-3
"""The smallest time that training sees."""


def stratified_times(batch: int, generator: torch.Generator | None = None) -> Tensor:
    """One time in each of `batch` equal strata of [1e-3, 1]."""
    offsets = torch.rand(batch, generator=generator)
    u = (offsets / batch + torch.arange(batch) / batch) % 1
    return (1 - TIME_EPSILON) * u + TIME_EPSILON


def corrupt(
    ids: Tensor, sigma: Tensor, mask_id: int, generator: torch.Generator | None = None
) -> Tensor:
    """Mask every token of ids [B, L] independently, at the rate that its sequence's sigma has."""
    move = 1 - (-sigma).exp()
    hide = torch.rand(ids.shape, generator=generator).to(ids.device) < move[:, None]
    return torch.where(hide, mask_id, ids)


def loss_per_token(
    denoiser: Denoiser, ids: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    """One draw of the public loss, [B, L]: zero at visible tokens."""
    t = stratified_times(len(ids), generator).to(ids.device)
    sigma = sigma_of(t)
    noisy = corrupt(ids, sigma, denoiser.mask_id, generator)
    log_probs = all_log_probs(denoiser, noisy, sigma)
    surprise = -log_probs.gather(-1, ids[..., None])[..., 0]
    rate = (1 - NOISE_EPSILON) / (1 - (1 - NOISE_EPSILON) * t)  # d sigma / dt
    return surprise * (rate / torch.expm1(sigma))[:, None]
