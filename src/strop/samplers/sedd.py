"""SEDD's samplers: the analytic and the Euler predictor, and the denoiser at the end.

With scores s and S their sum over tokens, a masked position is revealed in one update with
probability min(1, r S) and its token has law s / S:

    analytic  r = e^(sigma(t) - sigma(s)) - 1        Euler  r = (t - s) dsigma/dt

With log-linear noise the two rates are equal, so the predictors differ in rounding only. The timing
depends on the model. Temperature and nucleus act on s / S and leave S alone. The denoiser is the
analytic update over all remaining noise with the mask ruled out.

At less cost: whether a position is revealed depends on the sum of its scores, so every masked
position needs the head in every update: that is the limit. But one number per position decides it;
only where a token may come out is a law over the vocabulary formed and drawn from.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from strop.denoisers.device import Numbers, upload
from strop.denoisers.sedd import log_score, log_score_shift
from strop.samplers.analytic import analytic_weights
from strop.samplers.machinery.categorical import clean_log_probs, log_share
from strop.samplers.machinery.committing import LockstepRun, lockstep
from strop.samplers.machinery.dense import DenseRun
from strop.samplers.machinery.lattice import Weights as Odds
from strop.samplers.machinery.lattice import addressed
from strop.samplers.machinery.start import NOISE_EPSILON, neighbouring, sigma_of

Weights = Callable[[DenseRun, Tensor, int], Tensor]
"""(run, ids, update) -> unnormalised law [B, L, V] of every position after that update."""


def analytic(run: DenseRun) -> Tensor:
    """`analytic`: one network call a step, one at the finish."""
    return _sample(run, _analytic, drop_mask=True)


def euler(run: DenseRun) -> Tensor:
    """`euler`: a first-order step; the finish is the same."""
    return _sample(run, _euler, drop_mask=True)


def analytic_duo(run: DenseRun) -> Tensor:
    """`analytic` in the DUO code: its times; its finish zeroes the mask's column instead."""
    run.grid = neighbouring(run.grid)
    return _sample(run, _analytic, drop_mask=False)


def noise_rate(t: Tensor) -> Tensor:
    """The rate of the noise, dsigma / dt."""
    return (1 - NOISE_EPSILON) / (1 - (1 - NOISE_EPSILON) * t)


def _sample(run: DenseRun, weights: Weights, *, drop_mask: bool) -> Tensor:
    ids = run.start()
    for k in range(run.grid.updates):
        ids = run.step(ids, run.draw(weights(run, ids, k)))
    if run.spec.finish == "none":
        return ids
    sigma = run.grid.sigmas()[-1]
    score = _score(run, ids, sigma)
    mask_id = run.denoiser.mask_id
    if run.spec.finish == "greedy":
        score[..., mask_id] = -1
        return run.step(ids, run.keep_visible(score.argmax(-1), ids))
    final = analytic_weights(score, ids, mask_id, sigma)
    if drop_mask:
        # One class less, hence other random numbers than with a zero in its place.
        classes = torch.arange(final.shape[-1], device=ids.device)
        clean = torch.cat([classes[:mask_id], classes[mask_id + 1 :]])
        return run.step(ids, clean[run.draw(final[..., clean])])
    final[..., mask_id] = 0
    return run.step(ids, run.draw(final))


def _analytic(run: DenseRun, ids: Tensor, k: int) -> Tensor:
    sigma = run.grid.sigmas()[k]
    step = sigma - sigma_of(run.grid.s[k])
    return analytic_weights(_score(run, ids, sigma), ids, run.denoiser.mask_id, step)


def _euler(run: DenseRun, ids: Tensor, k: int) -> Tensor:
    """The identity plus (t - s) dsigma/dt times the reverse rate."""
    grid, mask_id = run.grid, run.denoiser.mask_id
    score = _score(run, ids, grid.sigmas()[k])
    masked = (ids == mask_id)[..., None]
    identity = torch.zeros_like(score).scatter_(-1, ids[..., None], 1.0)
    rate = torch.where(masked, 1 - identity, -identity) * score
    rate.scatter_(-1, ids[..., None], 0.0)
    rate.scatter_(-1, ids[..., None], -rate.sum(-1, keepdim=True))
    width = grid.t[k] - grid.s[k]
    return identity + width * noise_rate(grid.t[k]) * rate


def _score(run: DenseRun, ids: Tensor, sigma: Tensor) -> Tensor:
    """Scores [B, L, V] at the precision of the draw, tempered at fixed sums."""
    spec, mask_id = run.spec, run.denoiser.mask_id
    levels = upload(np.full(ids.shape, sigma.numpy()), ids.device)
    scores = log_score(run.logits(ids, sigma), ids, levels)
    if spec.temperature != 1 or spec.top_p != 1:
        scores[..., mask_id] = -torch.inf
        total = scores.logsumexp(-1, keepdim=True)
        scores[..., mask_id] = 0.0
        scores = clean_log_probs(scores, mask_id, spec.temperature, spec.top_p) + total
        scores.scatter_(-1, ids[..., None], 0.0)  # what is there has score 1
    run.clean = scores
    return scores.exp().to(run.dtype)


@lockstep
def fast_analytic(run: LockstepRun) -> Tensor:
    """The fast sampler with the law of `analytic`."""
    return _fast(run, torch.expm1(run.grid.sigmas()[:-1] - sigma_of(run.grid.s)))


@lockstep
def fast_euler(run: LockstepRun) -> Tensor:
    """The fast sampler with the law of `euler`."""
    return _fast(run, (run.grid.t - run.grid.s) * noise_rate(run.grid.t))


def _fast(run: LockstepRun, rates: Tensor) -> Tensor:
    ids, sigmas = run.start(), run.grid.sigmas()
    masked = run.begin.open.copy()
    for k in range(run.grid.updates + (run.spec.finish != "none")):
        slots = np.flatnonzero(masked.any(1))
        if not slots.size:
            break
        where, position = np.nonzero(masked[slots])
        hidden = run.hidden(ids, slots, sigmas[k], blank=bool(masked[slots].all()))
        # The finish rules the mask out, whatever the rate.
        rate = float(rates[k]) if k < len(rates) else math.inf  # on the host
        slot, token, chances = slots[where], np.empty(len(where), np.int64), []
        for part, logits in run.rows(hidden, where, position):
            at = k, slot[part], position[part]
            token[part], chance = _outcome(run, logits, *at, sigmas[k], rate)
            chances.append(chance)
        out = np.flatnonzero(token != run.denoiser.mask_id)
        revealed = slot[out], position[out], token[out]
        masked[revealed[0], revealed[1]] = False
        run.put(ids, *revealed)
        run.note(k, *revealed)
        run.know(*revealed[:2], torch.cat(chances)[run.upload(out)])
    return ids


def _outcome(
    run: LockstepRun,
    logits: Tensor,
    k: int,
    slots: Numbers,
    position: Numbers,
    sigma: Tensor,
    rate: float,
) -> tuple[Numbers, Tensor]:
    """A token at every row, or the mask; and how likely it was."""
    spec, mask_id = run.spec, run.denoiser.mask_id
    if rate == math.inf and spec.finish == "greedy":
        law = clean_log_probs(logits.clone(), mask_id, spec.temperature, spec.top_p)
        best = clean_log_probs(logits, mask_id, 0, 1, confirm=run.confirm).argmax(-1)
        return best.cpu().numpy(), log_share(law, best)  # waits
    reveal = np.ones(len(slots))
    if rate < math.inf:
        logits[..., mask_id] = -torch.inf
        shift = float(log_score_shift(sigma)) + math.log(logits.shape[-1] - 1)
        total = (logits.logsumexp(-1).double() - shift).exp().cpu().numpy()  # waits
        reveal = np.minimum(rate * total, 1.0)
    draws, odds = addressed(spec.precision, run.stream), Odds(reveal, 1 - reveal)
    where = run.address(slots, k, position)
    token, chance = np.full(len(slots), mask_id), logits.new_full((len(slots),), torch.nan)
    opened = np.flatnonzero(draws.opened(where, odds))
    if opened.size:
        at = run.upload(opened)
        clean = clean_log_probs(
            logits[at], mask_id, spec.temperature, spec.top_p, confirm=run.confirm
        )
        token[opened], drawn = draws.draw(clean, where.at(opened), odds.at(opened), mask_id)
        chance[at] = drawn.to(chance.dtype)  # that of the draw's precision, not the network's
    return token, chance
