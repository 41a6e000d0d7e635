"""The score-based update of SEDD, run on MDLM's predictions, and MDLM as the DUO code samples it.

A prediction is turned into concrete scores, moved back in time analytically, and multiplied with
the transition row of the absorbing process. Visible tokens stay as they are.

The DUO code has normalised posteriors, its own constants, and float64 by default. The law is that
of `ancestral` and `analytic`; the arithmetic and the order of draws are not, so they are samplers
of their own and reproduce that code's ids.
"""

from __future__ import annotations

import torch
from torch import Tensor

from strop.denoisers.base import NEG_INFINITY
from strop.samplers.machinery.dense import DenseRun
from strop.samplers.machinery.start import alpha_of, neighbouring, sigma_of


def analytic(run: DenseRun) -> Tensor:
    """One network call a step, one at the finish, which draws with the mask ruled out."""
    ids = run.start()
    sigmas = run.grid.sigmas()
    for s, sigma in zip(run.grid.s, sigmas, strict=False):
        ids = run.step(ids, run.draw(_weights(run, ids, sigma, sigma - sigma_of(s))))
    last = sigmas[-1]
    if run.spec.finish == "draw":
        weights = _weights(run, ids, last, last)
        weights[..., run.denoiser.mask_id] = 0
        return run.step(ids, run.draw(weights))
    return run.public_finish(ids)


def _weights(run: DenseRun, ids: Tensor, sigma: Tensor, step: Tensor) -> Tensor:
    """The update from the scores that a prediction implies."""
    mask_id = run.denoiser.mask_id
    score = score_of(run.log_probs(ids, sigma), ids, mask_id, sigma).to(run.dtype)
    return analytic_weights(score, ids, mask_id, step)


def analytic_weights(score: Tensor, ids: Tensor, mask_id: int, step: Tensor) -> Tensor:
    """Staggered score times transition row, [B, L, V], for a step of that much noise.

    May overwrite `score`.
    """
    extra = (1 - step.exp()) * score.sum(dim=-1)
    score = score * step.exp()
    score[..., mask_id] += extra
    masked = (ids == mask_id)[..., None]
    stay = torch.zeros_like(score).scatter_(-1, ids[..., None], 1.0) * (-step).exp()
    return score * torch.where(masked, stay + (1 - (-step).exp()), stay)


def score_of(log_probs: Tensor, ids: Tensor, mask_id: int, sigma: Tensor) -> Tensor:
    """exp of the log ratios p_t(y) / p_t(x) that the prediction implies."""
    log_k = -torch.log(torch.expm1(sigma))
    at_mask = log_probs + log_k
    at_mask[..., mask_id] = 0
    at_token = torch.full_like(log_probs, NEG_INFINITY).scatter_(-1, ids[..., None], 0.0)
    at_token[..., mask_id] = -log_k
    return torch.where((ids == mask_id)[..., None], at_mask, at_token).exp()


def analytic_duo(run: DenseRun) -> Tensor:
    """The score-based update on DUO's times."""
    run.grid = neighbouring(run.grid)
    return analytic(run)


def ancestral_duo(run: DenseRun) -> Tensor:
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
