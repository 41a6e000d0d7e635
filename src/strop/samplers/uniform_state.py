"""DUO's ancestral sampler: every position is drawn anew from its posterior at every update.

With alpha_t the share of signal at time t, a = alpha_t, b = alpha_s, r = a / b, V classes, x the
token that is there and p the predicted law of the clean one,

    q(v)  ~  [v = x] (a V p(x) + r - a)  +  (b - a) p(v)  +  (1 - r) (1 - b) / V,

whose sum is a V p(x) + 1 - a. Temperature and nucleus act on p, before the posterior is formed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from strop.samplers.duo import neighbouring
from strop.samplers.machinery.categorical import any_log_probs
from strop.samplers.machinery.dense import DenseRun
from strop.samplers.machinery.grid import alpha_of

__all__ = ["ancestral"]


def ancestral(run: DenseRun) -> Tensor:
    """A uniform start, one network call an update, and one at the finish.

    The finish draws from the posterior at alpha_s = 1, or takes the best clean token everywhere.
    """
    run.grid = neighbouring(run.grid)
    shape = (run.batch, run.length)
    ids = torch.randint(run.denoiser.vocab_size, shape, generator=run.generator)
    ids = ids.to(run.denoiser.device)
    for t, s in zip(run.grid.t, run.grid.s, strict=True):
        ids = run.draw(_posterior(run, ids, alpha_of(t), alpha_of(s)))
    last = alpha_of(run.grid.last)
    if run.spec.finish == "none":
        return ids
    if run.spec.finish == "greedy":
        return _prediction(run, ids, last).argmax(-1)
    return run.draw(_posterior(run, ids, last, torch.ones_like(last)))


def _prediction(run: DenseRun, ids: Tensor, alpha: Tensor) -> Tensor:
    return any_log_probs(run.logits(ids, -alpha.log()), run.spec.temperature, run.spec.top_p)


def _posterior(run: DenseRun, ids: Tensor, alpha_t: Tensor, alpha_s: Tensor) -> Tensor:
    clean = _prediction(run, ids, alpha_t).to(run.dtype).exp()
    alpha_t, alpha_s = alpha_t.to(ids.device), alpha_s.to(ids.device)
    kept, classes = alpha_t / alpha_s, clean.shape[-1]
    here = torch.zeros(clean.shape, device=ids.device).scatter_(-1, ids[..., None], 1.0)
    own = clean.gather(-1, ids[..., None])
    return (
        alpha_t * classes * clean * here
        + (kept - alpha_t) * here
        + (alpha_s - alpha_t) * clean
        + (1 - kept) * (1 - alpha_s) / classes
    ) / (alpha_t * classes * own + (1 - alpha_t))
