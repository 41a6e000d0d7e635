"""DiDi-Instruct's samplers: ancestral updates of a student, guided by a discriminator's reward.

With alpha_t the share of signal, a masked position offers token v the weight p(v) (alpha_s -
alpha_t) and staying masked 1 - alpha_s. p is a softmax over all classes: the mask's share of it is
lost when its column is overwritten, so timing depends on the student. The first updates tilt the
logits by the gradient of the reward; the others draw several next states and choose one of them
with probability softmax(reward).

Temperature divides the tilted logits at the draw; the discriminator sees the untempered ones. The
setting `mask_logit` says whether the mask's logit is divided too (`tempered`), kept as it is
(`kept`: the timing of temperature 1), or ruled out (`out`: the timing of the grid).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from torch import Tensor

from strop.denoisers.base import all_log_probs, carry_over, subs
from strop.denoisers.device import upload
from strop.denoisers.didi import DiDi
from strop.samplers.analytic import analytic_weights, score_of
from strop.samplers.machinery.categorical import any_log_probs, clean_log_probs
from strop.samplers.machinery.dense import DenseRun
from strop.samplers.machinery.grid import alpha_of
from strop.spec import SamplerSpec

SURE = 1e9
"""The logit that the public code gives a visible token on its way to the discriminator."""


def ancestral(run: DenseRun) -> Tensor:
    """The student alone."""
    ids = run.start()
    for t, s in zip(run.grid.t, run.grid.s, strict=True):
        drawn = run.draw(_weights(run, run.logits(ids, sigma(t)), t, s))
        ids = run.step(ids, run.keep_visible(drawn, ids))
    return _finish(run, ids)


def guided(run: DenseRun) -> Tensor:
    """Tilting, then re-ranking, then the student's own finish."""
    return _finish(run, _guided(run))


def guided_literal(run: DenseRun) -> Tensor:
    """As published: the finish asks the network that was trained instead of the student."""
    return _literal_finish(run, _guided(run))


def ancestral_literal(run: DenseRun) -> Tensor:
    """As published: the network that was trained, its mask ruled out, no noise level given."""
    ids = run.start()
    for t, s in zip(run.grid.t, run.grid.s, strict=True):
        clean = _base_log_probs(run, ids).to(run.dtype).exp()
        drawn = run.draw(_offered(clean, t, s, run.denoiser.mask_id))
        ids = run.step(ids, run.keep_visible(drawn, ids))
    return _literal_finish(run, ids)


def sigma(t: Tensor) -> Tensor:
    """The noise level as this code computes it."""
    return -alpha_of(t).log()


def tilt_strengths(spec: SamplerSpec) -> list[float]:
    """The strength of the tilt at each tilted update; the updates after them re-rank."""
    own = cast("dict[str, float]", spec.settings)
    tilted = int(spec.steps * (1 - own["rerank"]))
    rise = own["tilt_end"] - own["tilt_start"]
    return [own["tilt_start"] + i / max(1, tilted - 1) * rise for i in range(tilted)]


def offers(logits: Tensor, mask_id: int, spec: SamplerSpec) -> Tensor:
    """Log of the tokens' share p [..., V]; the mask's own column has no meaning.

    Rows do not sum to one where the mask keeps its share. May overwrite `logits`.
    """
    how = spec.settings.get("mask_logit", "tempered")
    if how == "tempered" and spec.top_p == 1:
        return any_log_probs(logits, spec.temperature)
    if how == "out":
        return clean_log_probs(logits, mask_id, spec.temperature, spec.top_p)
    plain = logits if how == "kept" else any_log_probs(logits, spec.temperature)
    share = plain.log_softmax(-1)[..., mask_id].exp()
    return clean_log_probs(logits, mask_id, spec.temperature, spec.top_p) + torch.log1p(
        -share
    ).unsqueeze(-1)


def _guided(run: DenseRun) -> Tensor:
    strengths = tilt_strengths(run.spec)
    ids = run.start()
    for k, (t, s) in enumerate(zip(run.grid.t, run.grid.s, strict=True)):
        logits = run.logits(ids, sigma(t))
        if k < len(strengths):
            logits = logits + strengths[k] * _slope(run, logits, ids, sigma(t))
            moved = run.keep_visible(run.draw(_weights(run, logits, t, s)), ids)
        else:
            moved = _best_of_several(run, ids, _weights(run, logits, t, s), sigma(s))
        ids = run.step(ids, moved)
    return ids


def _weights(run: DenseRun, logits: Tensor, t: Tensor, s: Tensor) -> Tensor:
    mask_id = run.denoiser.mask_id
    return _offered(offers(logits, mask_id, run.spec).to(run.dtype).exp(), t, s, mask_id)


def _offered(tokens: Tensor, t: Tensor, s: Tensor, mask_id: int) -> Tensor:
    alpha_t, alpha_s = alpha_of(t), alpha_of(s)
    weights = tokens * (alpha_s - alpha_t)
    weights[..., mask_id] = 1 - alpha_s
    return weights


def _slope(run: DenseRun, logits: Tensor, ids: Tensor, level: Tensor) -> Tensor:
    """The reward's gradient with respect to the logits of masked positions, entries in [-1, 1]."""
    denoiser = cast(DiDi, run.denoiser)
    judge = denoiser.discriminator
    masked = ids == denoiser.mask_id
    run.judge_calls += 1
    with torch.enable_grad():
        leaf = logits.detach().requires_grad_()
        sure = torch.zeros_like(logits).scatter_(-1, ids[..., None], SURE)
        seen = torch.where(masked[..., None], leaf, sure).softmax(-1)
        embedded = seen @ judge.vocab_embed.embedding
        levels = upload(np.full(len(ids), level.numpy()), ids.device)
        scores = judge.scores(embedded, levels, denoiser.dtype)
        (slope,) = torch.autograd.grad((scores * masked).sum(), leaf)
    return slope.clamp(-1, 1)


def _best_of_several(run: DenseRun, ids: Tensor, weights: Tensor, level: Tensor) -> Tensor:
    """Draw several next states and keep one, with probability softmax of its reward."""
    denoiser = cast(DiDi, run.denoiser)
    count = int(run.spec.settings["candidates"])
    several = (run.batch, count, *weights.shape[1:])
    drawn = run.draw(weights[:, None].expand(several))
    drawn = run.keep_visible(drawn, ids[:, None].expand(drawn.shape))
    levels = upload(np.full(run.batch * count, level.numpy()), ids.device)
    run.judge_calls += count
    counted = ()
    if run.begin.held:  # what a prompt gives is not ranked
        counted = (run.begin.opened(ids.device).repeat_interleave(count, 0),)
    reward = denoiser.discriminator.reward(drawn.flatten(0, 1), levels, denoiser.dtype, *counted)
    chosen = run.draw(reward.view(run.batch, count).to(run.dtype).softmax(-1))
    return drawn[torch.arange(run.batch, device=ids.device), chosen]


def _finish(run: DenseRun, ids: Tensor) -> Tensor:
    """The student fills what is left, the mask ruled out."""
    if run.spec.finish == "none":
        return ids
    logits = run.logits(ids, sigma(run.grid.last))
    spec, mask_id = run.spec, run.denoiser.mask_id
    fill: Callable[[Tensor, Tensor], Tensor]
    fill = run.fill_greedily if spec.finish == "greedy" else run.fill_by_draw
    clean = clean_log_probs(logits, mask_id, spec.temperature, spec.top_p)
    return run.step(ids, fill(ids, clean))


def _literal_finish(run: DenseRun, ids: Tensor) -> Tensor:
    """The score-based denoiser on the trained network's prediction, always in float64."""
    if run.spec.finish == "none":
        return ids
    level = run.grid.sigmas()[-1]
    mask_id = run.denoiser.mask_id
    score = score_of(_base_log_probs(run, ids), ids, mask_id, level).double()
    weights = analytic_weights(score, ids, mask_id, level)
    weights[..., mask_id] = 0
    return run.step(ids, run.draw(weights))


def _base_log_probs(run: DenseRun, ids: Tensor) -> Tensor:
    """SUBS log-probabilities of the network that was trained.

    The public converter writes files without it; the network is then as it was initialised, whose
    head is zero: uniform over tokens. The same is done here.
    """
    denoiser = cast(DiDi, run.denoiser)
    run.calls += 1
    if denoiser.base is not None:
        return all_log_probs(denoiser.base, ids, None)
    blank = torch.zeros((*ids.shape, denoiser.vocab_size), device=ids.device)
    return carry_over(subs(blank, denoiser.mask_id), ids, denoiser.mask_id)
