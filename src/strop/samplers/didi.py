"""DiDi-Instruct's samplers: ancestral updates of a student, guided by a discriminator's reward.

With alpha_t the share of signal, a masked position offers token v the weight p(v) (alpha_s -
alpha_t) and staying masked 1 - alpha_s. p is a softmax over all classes: the mask's share of it is
lost when its column is overwritten, so timing depends on the student. The first updates tilt the
logits by the gradient of the reward; the others draw several next states and choose one of them
with probability softmax(reward).

Temperature divides the tilted logits at the draw; the discriminator sees the untempered ones. The
setting `mask_logit` says whether the mask's logit is divided too (`tempered`), kept as it is
(`kept`: the timing of temperature 1), or ruled out (`out`: the timing of the grid).

At less cost: the mask's share of the softmax can only slow a position down, so the grid bounds the
chance of a reveal before the network runs: a position is offered a token with that chance (in
float32: by the mask's own clock), and only offered rows get a head and a draw. A sequence without
an offer skips its update. Tilting needs the softmax of every masked position for the
discriminator's input, but only as an average of embeddings, made a few rows at a time; the gradient
comes back as one vector a position and is turned into slopes of logits only where a token is
offered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from strop.denoisers.base import all_log_probs, carry_over, subs
from strop.denoisers.device import Numbers, Truths, upload, upload_rows
from strop.denoisers.didi import DiDi
from strop.rng import Stream
from strop.samplers.analytic import analytic_weights, score_of
from strop.samplers.machinery import lattice
from strop.samplers.machinery.categorical import (
    any_log_probs,
    clean_log_probs,
    invert,
    log_share,
    race,
)
from strop.samplers.machinery.committing import LockstepRun, lockstep
from strop.samplers.machinery.dense import DenseRun
from strop.samplers.machinery.lattice import Address, Weights, addressed
from strop.samplers.machinery.start import alpha_of
from strop.spec.generator import SamplerSpec

SURE = 1e9
"""The logit that the public code gives a visible token on its way to the discriminator."""


def ancestral(run: DenseRun) -> Tensor:
    """The student without its reward."""
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
    settings = cast("dict[str, float]", spec.settings)
    tilted = int(spec.steps * (1 - settings["rerank"]))
    rise = settings["tilt_end"] - settings["tilt_start"]
    return [settings["tilt_start"] + i / max(1, tilted - 1) * rise for i in range(tilted)]


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
    run.clean = offers(logits, mask_id, run.spec)
    return _offered(run.clean.to(run.dtype).exp(), t, s, mask_id)


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
    run.clean = clean_log_probs(logits, mask_id, spec.temperature, spec.top_p)
    return run.step(ids, fill(ids, run.clean))


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
        run.clean = all_log_probs(denoiser.base, ids, None)
    else:
        blank = torch.zeros((*ids.shape, denoiser.vocab_size), device=ids.device)
        run.clean = carry_over(subs(blank, denoiser.mask_id), ids, denoiser.mask_id)
    return run.clean


@lockstep
def fast_ancestral(run: LockstepRun) -> Tensor:
    """The student without its reward."""
    state = Going.begin(run)
    for k, t in enumerate(run.grid.t):
        draws, masked = CandidateOffers(run, k), _masked(run, state)
        offered = masked & draws.opened()
        slots = np.flatnonzero(offered.any(1))
        if slots.size:
            before, blank = state.tokens.copy(), bool(masked[slots].all())
            hidden = run.hidden(state.ids, slots, sigma(t), blank=blank)
            _reveal(run, state, hidden, slots, offered, draws)
            _note(run, state, k, before)
    return _fast_finish(run, state)


@lockstep
def fast_guided(run: LockstepRun) -> Tensor:
    """Tilting, then re-ranking, then the student's own finish."""
    strengths = tilt_strengths(run.spec)
    cast(DiDi, run.denoiser).discriminator  # noqa: B018  told before any work is done
    state = Going.begin(run)
    for k in range(run.grid.updates):
        before = state.tokens.copy()
        if k < len(strengths):
            _tilted(run, state, k, strengths[k])
        else:
            _reranked(run, state, k)
        _note(run, state, k, before)
    return _fast_finish(run, state)


class Going(NamedTuple):
    """Sequences under way, or one way in which they may go on: [B, L] each."""

    ids: Tensor
    tokens: Numbers
    """The same on the host."""
    chance: Tensor
    """How likely each token was when it came."""

    @classmethod
    def begin(cls, run: LockstepRun) -> Going:
        """Masks, and what is given."""
        ids = run.begin.ids(run.denoiser.mask_id).numpy()
        return cls(run.start(), ids, torch.full_like(run.trace.chance, torch.nan))

    def copy(self) -> Going:
        """One that may change by itself."""
        return Going(self.ids.clone(), self.tokens.copy(), self.chance.clone())

    def put(
        self, run: LockstepRun, token: Numbers, chance: Tensor, slot: Numbers, position: Numbers
    ) -> None:
        """Write tokens, and how likely they were."""
        run.put(self.ids, slot, position, token)
        self.tokens[slot, position] = token
        self.chance[upload_rows(self.ids.device, slot, position)] = chance.float()


def _masked(run: LockstepRun, state: Going) -> Truths:
    return state.tokens == run.denoiser.mask_id


def _note(run: LockstepRun, state: Going, k: int, before: Numbers) -> None:
    slot, position = np.nonzero(state.tokens != before)
    if slot.size:
        run.note(k, slot, position, state.tokens[slot, position])
        run.trace.chance.copy_(state.chance)


class CandidateOffers:
    """What one update offers the masked positions: one candidate's random numbers."""

    def __init__(self, run: LockstepRun, k: int, candidate: int = 0) -> None:
        self._run, self._k = run, k
        stream = Stream(run.seed, f"{run.spec.name}/{candidate}")
        self._draws = addressed(run.spec.precision, stream, partial=True)
        alpha_t, alpha_s = alpha_of(run.grid.t[k]), alpha_of(run.grid.s[k])
        self._weights = float(alpha_s - alpha_t), float(1 - alpha_s)

    def opened(self) -> Truths:
        """Positions that get a token if the network agrees, [B, L]."""
        slot, position = np.nonzero(np.ones((len(self._run.outputs), self._run.length), bool))
        return self._draws.opened(*self._at(slot, position)).reshape(-1, self._run.length)

    def settle(self, logits: Tensor, slot: Numbers, position: Numbers) -> tuple[Numbers, Tensor]:
        """A token at every offered row, or the mask; and how likely it was."""
        mask_id = self._run.denoiser.mask_id
        shares = offers(logits, mask_id, self._run.spec)
        return self._draws.draw(shares, *self._at(slot, position), mask_id)

    def _at(self, slot: Numbers, position: Numbers) -> tuple[Address, Weights]:
        token, mask = (np.full(len(slot), weight) for weight in self._weights)
        return self._run.address(slot, self._k, position), Weights(token, mask)


def _reveal(
    run: LockstepRun,
    state: Going,
    hidden: Tensor,
    slots: Numbers,
    offered: Truths,
    draws: CandidateOffers,
    tilt: tuple[float, Tensor] | None = None,
) -> None:
    """Settle the offers of `slots`, whose hidden states are given."""
    where, position = np.nonzero(offered[slots])
    for part, logits in run.rows(hidden, where, position):
        if tilt is not None:
            strength, slopes = tilt
            at = upload_rows(state.ids.device, where[part], position[part])
            logits = logits + strength * _slope_at(run, logits, slopes[at[0], at[1]])
        slot = slots[where[part]]
        token, chance = draws.settle(logits, slot, position[part])
        state.put(run, token, chance, slot, position[part])


def _tilted(run: LockstepRun, state: Going, k: int, strength: float) -> None:
    draws, masked, ids = CandidateOffers(run, k), _masked(run, state), state.ids
    offered = masked & draws.opened()
    slots = np.flatnonzero(offered.any(1))
    if not slots.size:
        return
    denoiser, level = cast(DiDi, run.denoiser), sigma(run.grid.t[k])
    judge = denoiser.discriminator
    hidden = run.hidden(ids, slots, level, blank=bool(masked[slots].all()))
    tokens = ids[run.upload(slots)]
    table = judge.vocab_embed.embedding
    embedded = table[tokens]
    where, position = np.nonzero(masked[slots])
    for part, logits in run.rows(hidden, where, position):
        at = upload_rows(ids.device, where[part], position[part])
        embedded[at[0], at[1]] = logits.softmax(-1) @ table
    run.calls[slots] += 1
    levels = run.upload(np.full(len(slots), level.numpy()))
    slopes = judge.gradient(embedded, tokens == denoiser.mask_id, levels, denoiser.dtype)
    _reveal(run, state, hidden, slots, offered, draws, (strength, slopes))


def _slope_at(run: LockstepRun, logits: Tensor, slope: Tensor) -> Tensor:
    """The chain rule from the embedding back through the softmax, entries in [-1, 1]."""
    table = cast(DiDi, run.denoiser).discriminator.vocab_embed.embedding
    shares, pull = logits.softmax(-1), slope @ table.T
    return (shares * (pull - (shares * pull).sum(-1, keepdim=True))).clamp_(-1, 1)


def _reranked(run: LockstepRun, state: Going, k: int) -> None:
    count, masked = int(run.spec.settings["candidates"]), _masked(run, state)
    draws = [CandidateOffers(run, k, candidate) for candidate in range(count)]
    offered = [masked & draw.opened() for draw in draws]
    slots = np.flatnonzero(np.any([draw.any(1) for draw in offered], axis=0))
    if not slots.size:
        return
    hidden = run.hidden(state.ids, slots, sigma(run.grid.t[k]), blank=bool(masked[slots].all()))
    futures = [state.copy() for _ in range(count)]
    for draw, where, future in zip(draws, offered, futures, strict=True):
        _reveal(run, future, hidden, slots, where, draw)
    chosen = _choice(run, slots, k, [future.ids for future in futures])
    for candidate, future in enumerate(futures):
        won = slots[chosen == candidate]
        rows = run.upload(won)
        state.ids[rows], state.chance[rows] = future.ids[rows], future.chance[rows]
        state.tokens[won] = future.tokens[won]


def _choice(run: LockstepRun, slots: Numbers, k: int, futures: list[Tensor]) -> Numbers:
    """One of the next states of each sequence, with probability softmax of its reward."""
    if len(futures) == 1:
        return np.zeros(len(slots), np.int64)
    denoiser = cast(DiDi, run.denoiser)
    index = run.upload(slots)
    levels = run.upload(np.full(len(slots), sigma(run.grid.s[k]).numpy()))
    run.calls[slots] += len(futures)
    judge = denoiser.discriminator.reward
    counted = (run.begin.opened(index.device)[index],) if run.begin.held else ()
    rewards = [judge(ids[index], levels, denoiser.dtype, *counted) for ids in futures]
    rewards = torch.stack(rewards, dim=-1).cpu()  # waits
    number = np.arange(len(futures))
    u = run.stream.uniform(run.outputs[slots][:, None], k, number, 3)
    if run.spec.precision == "float32":
        coarse = np.floor(u * 2**lattice.BITS) / 2**lattice.BITS
        return race(rewards.softmax(-1), torch.from_numpy(coarse).float()).numpy()
    return invert(rewards.double().log_softmax(-1), torch.from_numpy(u[:, 0])).numpy()


def _fast_finish(run: LockstepRun, state: Going) -> Tensor:
    """The student fills what is left, the mask ruled out."""
    spec, ids = run.spec, state.ids
    masked, before = _masked(run, state), state.tokens.copy()
    slots = np.flatnonzero(masked.any(1))
    if spec.finish == "none" or not slots.size:
        return ids
    mask_id, last = run.denoiser.mask_id, run.grid.updates
    hidden = run.hidden(ids, slots, sigma(run.grid.last), blank=bool(masked[slots].all()))
    where, position = np.nonzero(masked[slots])
    certain = Weights.certain(len(where))
    draws = addressed(spec.precision, run.stream)
    at = run.address(slots[where], last, position)
    for part, logits in run.rows(hidden, where, position):
        if spec.finish == "greedy":
            law = clean_log_probs(
                logits.clone(), mask_id, spec.temperature, spec.top_p, confirm=run.confirm
            )
            best = clean_log_probs(logits, mask_id, 0, 1, confirm=run.confirm).argmax(-1)
            token, chance = best.cpu().numpy(), log_share(law, best)  # waits
        else:
            clean = clean_log_probs(
                logits, mask_id, spec.temperature, spec.top_p, confirm=run.confirm
            )
            token, chance = draws.draw(clean, at.at(part), certain.at(part), mask_id)
        state.put(run, token, chance, slots[where[part]], position[part])
    _note(run, state, last, before)
    return ids
