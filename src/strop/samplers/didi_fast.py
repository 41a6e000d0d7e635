"""DiDi-Instruct's samplers at a fraction of the cost, with the law of `didi`.

The mask's share of the softmax can only slow a position down, so the grid bounds the chance of a
reveal before the network runs: a position is offered a token with that chance (in float32: by the
mask's own clock), and only offered rows get a head and a draw. A sequence without an offer skips
its update. Tilting needs the softmax of every masked position for the discriminator's input, but
only as an average of embeddings, made a few rows at a time; the gradient comes back as one vector
a position and is turned into slopes of logits only where a token is offered.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor

from strop.denoisers.device import Numbers, Truths, upload_rows
from strop.denoisers.didi import DiDi
from strop.rng import Stream
from strop.samplers.didi import offers as token_shares
from strop.samplers.didi import sigma, tilt_strengths
from strop.samplers.machinery import lattice
from strop.samplers.machinery.addressed import Address, Weights, addressed
from strop.samplers.machinery.categorical import clean_log_probs, invert, race
from strop.samplers.machinery.grid import alpha_of
from strop.samplers.machinery.lockstep import LockstepRun, lockstep


@lockstep
def ancestral(run: LockstepRun) -> Tensor:
    """The student alone."""
    ids, tokens = run.start(), run.begin.ids(run.denoiser.mask_id).numpy()
    for k, t in enumerate(run.grid.t):
        draws, masked = CandidateOffers(run, k), _masked(run, tokens)
        offered = masked & draws.opened()
        slots = np.flatnonzero(offered.any(1))
        if slots.size:
            before, blank = tokens.copy(), bool(masked[slots].all())
            hidden = run.hidden(ids, slots, sigma(t), blank=blank)
            _reveal(run, ids, tokens, hidden, slots, offered, draws)
            _note(run, tokens, k, before)
    return _finish(run, ids, tokens)


@lockstep
def guided(run: LockstepRun) -> Tensor:
    """Tilting, then re-ranking, then the student's own finish."""
    strengths = tilt_strengths(run.spec)
    cast(DiDi, run.denoiser).discriminator  # noqa: B018  told before any work is done
    ids, tokens = run.start(), run.begin.ids(run.denoiser.mask_id).numpy()
    for k in range(run.grid.updates):
        before = tokens.copy()
        if k < len(strengths):
            _tilted(run, ids, tokens, k, strengths[k])
        else:
            _reranked(run, ids, tokens, k)
        _note(run, tokens, k, before)
    return _finish(run, ids, tokens)


def _masked(run: LockstepRun, tokens: Numbers) -> Truths:
    return tokens == run.denoiser.mask_id


def _note(run: LockstepRun, tokens: Numbers, k: int, before: Numbers) -> None:
    slot, position = np.nonzero(tokens != before)
    if slot.size:
        run.note(k, slot, position, tokens[slot, position])


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

    def settle(self, logits: Tensor, slot: Numbers, position: Numbers) -> Numbers:
        """A token at every offered row, or the mask."""
        mask_id = self._run.denoiser.mask_id
        shares = token_shares(logits, mask_id, self._run.spec)
        return self._draws.draw(shares, *self._at(slot, position), mask_id)

    def _at(self, slot: Numbers, position: Numbers) -> tuple[Address, Weights]:
        token, mask = (np.full(len(slot), weight) for weight in self._weights)
        return self._run.address(slot, self._k, position), Weights(token, mask)


def _reveal(
    run: LockstepRun,
    ids: Tensor,
    tokens: Numbers,
    hidden: Tensor,
    slots: Numbers,
    offered: Truths,
    draws: CandidateOffers,
    tilt: tuple[float, Tensor] | None = None,
) -> None:
    """Settle the offers of `slots`, whose states are given, in `ids` and on the host."""
    where, position = np.nonzero(offered[slots])
    for part, logits in run.rows(hidden, where, position):
        if tilt is not None:
            strength, slopes = tilt
            at = upload_rows(ids.device, where[part], position[part])
            logits = logits + strength * _slope(run, logits, slopes[at[0], at[1]])
        slot = slots[where[part]]
        token = draws.settle(logits, slot, position[part])
        run.put(ids, slot, position[part], token)
        tokens[slot, position[part]] = token


def _tilted(run: LockstepRun, ids: Tensor, tokens: Numbers, k: int, strength: float) -> None:
    draws, masked = CandidateOffers(run, k), _masked(run, tokens)
    offered = masked & draws.opened()
    slots = np.flatnonzero(offered.any(1))
    if not slots.size:
        return
    denoiser, level = cast(DiDi, run.denoiser), sigma(run.grid.t[k])
    judge = denoiser.discriminator
    hidden = run.hidden(ids, slots, level, blank=bool(masked[slots].all()))
    mine = ids[run.upload(slots)]
    table = judge.vocab_embed.embedding
    embedded = table[mine]
    where, position = np.nonzero(masked[slots])
    for part, logits in run.rows(hidden, where, position):
        at = upload_rows(ids.device, where[part], position[part])
        embedded[at[0], at[1]] = logits.softmax(-1) @ table
    run.calls[slots] += 1
    levels = run.upload(np.full(len(slots), level.numpy()))
    slopes = judge.gradient(embedded, mine == denoiser.mask_id, levels, denoiser.dtype)
    _reveal(run, ids, tokens, hidden, slots, offered, draws, (strength, slopes))


def _slope(run: LockstepRun, logits: Tensor, slope: Tensor) -> Tensor:
    """The chain rule from the embedding back through the softmax, entries in [-1, 1]."""
    table = cast(DiDi, run.denoiser).discriminator.vocab_embed.embedding
    shares, pull = logits.softmax(-1), slope @ table.T
    return (shares * (pull - (shares * pull).sum(-1, keepdim=True))).clamp_(-1, 1)


def _reranked(run: LockstepRun, ids: Tensor, tokens: Numbers, k: int) -> None:
    count, masked = int(run.spec.settings["candidates"]), _masked(run, tokens)
    draws = [CandidateOffers(run, k, candidate) for candidate in range(count)]
    offered = [masked & one.opened() for one in draws]
    slots = np.flatnonzero(np.any([one.any(1) for one in offered], axis=0))
    if not slots.size:
        return
    hidden = run.hidden(ids, slots, sigma(run.grid.t[k]), blank=bool(masked[slots].all()))
    futures = [(ids.clone(), tokens.copy()) for _ in range(count)]
    for one, where, (its_ids, its_tokens) in zip(draws, offered, futures, strict=True):
        _reveal(run, its_ids, its_tokens, hidden, slots, where, one)
    chosen = _choice(run, slots, k, [future for future, _ in futures])
    for candidate, (its_ids, its_tokens) in enumerate(futures):
        won = slots[chosen == candidate]
        rows = run.upload(won)
        ids[rows] = its_ids[rows]
        tokens[won] = its_tokens[won]


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


def _finish(run: LockstepRun, ids: Tensor, tokens: Numbers) -> Tensor:
    """The student fills what is left, the mask ruled out."""
    spec, masked, before = run.spec, _masked(run, tokens), tokens.copy()
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
            best = clean_log_probs(logits, mask_id, 0, 1, confirm=run.confirm).argmax(-1)
            token = best.cpu().numpy()  # waits
        else:
            clean = clean_log_probs(
                logits, mask_id, spec.temperature, spec.top_p, confirm=run.confirm
            )
            token = draws.draw(clean, at.at(part), certain.at(part), mask_id)
        run.put(ids, slots[where[part]], position[part], token)
        tokens[slots[where[part]], position[part]] = token
    _note(run, tokens, last, before)
    return ids
