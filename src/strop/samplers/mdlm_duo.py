"""MDLM as the DUO code samples it: normalised posteriors, its own constants, float64 by default.

The law is that of `ancestral` and `analytic`; the arithmetic and the order of draws are not, so
they are samplers of their own and reproduce that code's ids.
"""

from __future__ import annotations

import torch
from torch import Tensor

from strop.samplers import analytic as score_based
from strop.samplers.machinery.dense import DenseRun
from strop.samplers.machinery.grid import alpha_of, neighbouring


def analytic(run: DenseRun) -> Tensor:
    """The score-based update on DUO's times."""
    run.grid = neighbouring(run.grid)
    return score_based.analytic(run)


def ancestral(run: DenseRun) -> Tensor:
    """`ancestral_cache`: alphas instead of times, every row drawn, the finish may use the cache."""
    run.grid = neighbouring(run.grid)
    ids, prediction = run.start(), None
    for t, s, sigma in zip(run.grid.t, run.grid.s, run.grid.sigmas(), strict=False):
        if prediction is None:
            prediction = run.log_probs(ids, sigma)
        drawn = run.draw(_posterior(run, prediction, ids, alpha_of(t), alpha_of(s)))
        ids = run.step(ids, drawn)
        if run.denoiser.time_conditioned or run.changed:
            prediction = None
    if run.spec.finish == "none":
        return ids
    if prediction is None:
        prediction = run.log_probs(ids, run.grid.sigmas()[-1])
    if run.spec.finish == "greedy":
        return run.step(ids, run.fill_greedily(ids, prediction))
    last = run.grid.last
    final = _posterior(run, prediction, ids, alpha_of(last), torch.ones_like(last))
    return run.step(ids, run.draw(final))


def _posterior(
    run: DenseRun, log_probs: Tensor, ids: Tensor, alpha_t: Tensor, alpha_s: Tensor
) -> Tensor:
    """q(x_s | x_t) with visible rows certain: [B, L, V]."""
    mask_id = run.denoiser.mask_id
    clean = log_probs.to(run.dtype).exp()
    posterior = (alpha_s - alpha_t) / (1 - alpha_t) * clean
    posterior[..., mask_id] = (1 - alpha_s) / (1 - alpha_t)
    visible = (ids != mask_id)[..., None]
    certain = torch.zeros_like(posterior).scatter_(-1, ids[..., None], 1.0)
    return torch.where(visible, certain, posterior)
