"""Ancestral sampling as the public MDLM code does it, cached and uncached.

Each update offers every masked position one categorical outcome among all tokens and the mask:
token v has weight p(v) (t - s), staying masked has weight s. Weights are not normalised.
"""

from __future__ import annotations

from torch import Tensor

from strop.samplers.machinery.dense import DenseRun
from strop.samplers.machinery.grid import sigma_of

__all__ = ["cached", "uncached", "update"]


def cached(run: DenseRun) -> Tensor:
    """`ddpm_cache`: times are used as they are, and predictions are kept while nothing changes.

    The cache is dropped as soon as any sequence of the batch changed, and never used by a
    time-conditioned network. Random numbers are drawn on cached steps as well.
    """
    ids, prediction = run.start(), None
    for t, s, sigma in zip(run.grid.t, run.grid.s, run.grid.sigmas(), strict=False):
        if prediction is None:
            prediction = run.log_probs(ids, sigma).to(run.dtype).exp()
        moved = update(run, ids, prediction, t, s)
        if run.denoiser.time_conditioned or not moved.equal(ids):
            prediction = None
        ids = moved
    return run.public_finish(ids)


def uncached(run: DenseRun) -> Tensor:
    """`ddpm`: a network call at every step, times passed through the noise schedule."""
    ids = run.start()
    for s, sigma in zip(run.grid.s, run.grid.sigmas(), strict=False):
        prediction = run.log_probs(ids, sigma).to(run.dtype).exp()
        ids = update(run, ids, prediction, 1 - (-sigma).exp(), 1 - (-sigma_of(s)).exp())
    return run.public_finish(ids)


def update(run: DenseRun, ids: Tensor, prediction: Tensor, t: Tensor, s: Tensor) -> Tensor:
    """One update from hidden share t to s, given exp of the predicted log-probabilities."""
    weights = prediction * (t - s).to(prediction.device)
    weights[..., run.denoiser.mask_id] = s
    return run.keep_visible(run.draw(weights), ids)
