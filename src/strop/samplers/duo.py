"""DUO's ancestral sampler: every position is drawn anew from its posterior at every update.

With alpha_t the share of signal at time t, a = alpha_t, b = alpha_s, r = a / b, V classes, x the
token that is there and p the predicted law of the clean one,

    q(v)  ~  [v = x] (a V p(x) + r - a)  +  (b - a) p(v)  +  (1 - r) (1 - b) / V,

whose sum is D = a V p(x) + 1 - a. Temperature and nucleus act on p, before the posterior is formed.

At less cost: the posterior is a mixture. A position stays, is drawn from p, or is drawn uniformly,
with weights a V p(x) + r - a, b - a and (1 - r)(1 - b) over D. D is at least 1 - a, so the chance
of any change is at most

    c = (b - a + (1 - r)(1 - b)) / (1 - a),

which is known without the network. A coin of chance c nominates positions; only they get a head,
and a nomination is accepted with chance (1 - a) / D. The product is the posterior's own chance.

After a prompt (`duo-held`) given positions are set to their tokens at every update. That is no
conditional law, however many updates there are: the network takes a given token for one that noise
may have put there, and weighs it as little as any other.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from strop.denoisers.device import Numbers, brought
from strop.samplers.machinery.categorical import any_log_probs, invert, log_share
from strop.samplers.machinery.dense import DenseRun
from strop.samplers.machinery.lockstep import LockstepRun, lockstep
from strop.samplers.machinery.start import alpha_of, neighbouring

START, NOMINATE, ACCEPT, ORIGIN, TOKEN = range(5)
"""Numbers of the random draws at a position in an update."""


def ancestral(run: DenseRun) -> Tensor:
    """A uniform start, one network call an update, and one at the finish.

    The finish draws from the posterior at alpha_s = 1, or takes the best clean token everywhere.
    """
    run.grid = neighbouring(run.grid)
    shape = (run.batch, run.length)
    source = run.generator
    ids = torch.randint(run.denoiser.vocab_size, shape, generator=source, device=source.device)
    ids = run.begin.hold(brought(ids, run.denoiser.device))
    everywhere = np.nonzero(run.begin.open)
    run.trace.begin(everywhere, ids.cpu().numpy()[everywhere])  # waits
    for t, s in zip(run.grid.t, run.grid.s, strict=True):
        drawn = run.draw(_posterior(run, ids, alpha_of(t), alpha_of(s)))
        ids = run.step(ids, run.begin.hold(drawn))
    last = alpha_of(run.grid.last)
    if run.spec.finish == "none":
        return ids
    if run.spec.finish == "greedy":
        drawn = _prediction(run, ids, last).argmax(-1)
    else:
        drawn = run.draw(_posterior(run, ids, last, torch.ones_like(last)))
    return run.step(ids, run.begin.hold(drawn))


def _prediction(run: DenseRun, ids: Tensor, alpha: Tensor) -> Tensor:
    logits = run.logits(ids, -alpha.log())
    run.clean = any_log_probs(logits, run.spec.temperature, run.spec.top_p)
    return run.clean


def _posterior(run: DenseRun, ids: Tensor, alpha_t: Tensor, alpha_s: Tensor) -> Tensor:
    clean = _prediction(run, ids, alpha_t).to(run.dtype).exp()
    ratio, classes = alpha_t / alpha_s, clean.shape[-1]
    one_hot = torch.zeros(clean.shape, device=ids.device).scatter_(-1, ids[..., None], 1.0)
    own_prob = clean.gather(-1, ids[..., None])
    return (
        alpha_t * classes * clean * one_hot
        + (ratio - alpha_t) * one_hot
        + (alpha_s - alpha_t) * clean
        + (1 - ratio) * (1 - alpha_s) / classes
    ) / (alpha_t * classes * own_prob + (1 - alpha_t))


@lockstep
def fast(run: LockstepRun) -> Tensor:
    """The law of `ancestral`: a network call only where, and a head only at what, may change."""
    grid = neighbouring(run.grid)
    everywhere = np.nonzero(run.begin.open)
    first = _anything(run, run.uniform(everywhere[0], 0, everywhere[1], START))
    tokens = run.begin.ids(0).numpy()
    tokens[everywhere] = first
    run.trace.begin(everywhere, first)
    ids = run.upload(tokens.copy())
    times = [*zip(grid.t, alpha_of(grid.s), strict=True), (grid.last, torch.ones(()))]
    for k, (t, after) in enumerate(times):
        alpha_t, alpha_s = alpha_of(t), float(after)
        if k < grid.updates or run.spec.finish == "draw":
            _update(run, ids, tokens, k, -alpha_t.log(), float(alpha_t), alpha_s)
        elif run.spec.finish == "greedy":
            _best(run, ids, tokens, k, -alpha_t.log())
    return ids


def _update(
    run: LockstepRun,
    ids: Tensor,
    tokens: Numbers,
    k: int,
    sigma: Tensor,
    alpha_t: float,
    alpha_s: float,
) -> None:
    """`tokens` are the ids as the host knows them."""
    drawn, noise = alpha_s - alpha_t, (1 - alpha_t / alpha_s) * (1 - alpha_s)
    bound = min(1.0, (drawn + noise) / (1 - alpha_t))
    slot, position = np.nonzero(run.begin.open)
    chosen = np.flatnonzero(run.uniform(slot, k, position, NOMINATE) < bound)
    if not chosen.size:
        return
    slot, position = slot[chosen], position[chosen]
    slots, where = np.unique(slot, return_inverse=True)
    hidden = run.hidden(ids, slots, sigma)
    after = tokens[slot, position]
    before = run.upload(tokens[slot, position])
    chance = []
    for part, logits in run.rows(hidden, where, position):
        log_probs = any_log_probs(logits, run.spec.temperature, run.spec.top_p)
        address = slot[part], k, position[part]
        of_token = log_probs.gather(-1, before[part, None])[:, 0].double()
        own_prob = of_token.exp().cpu().numpy()  # waits
        accept = (1 - alpha_t) / (alpha_t * run.denoiser.vocab_size * own_prob + 1 - alpha_t)
        moves = run.uniform(*address, ACCEPT) < accept
        predicted = run.uniform(*address, ORIGIN) * (drawn + noise) < drawn
        u = run.uniform(*address, TOKEN)
        after[part][moves & ~predicted] = _anything(run, u[moves & ~predicted])
        rows = np.flatnonzero(moves & predicted)
        if rows.size:
            token = invert(log_probs[run.upload(rows)], run.upload(u[rows]))
            after[part][rows] = token.cpu().numpy()  # waits
        chance.append(log_share(log_probs, run.upload(after[part].copy())))
    _move(run, ids, tokens, k, slot, position, after, torch.cat(chance))


def _move(
    run: LockstepRun,
    ids: Tensor,
    tokens: Numbers,
    k: int,
    slot: Numbers,
    position: Numbers,
    after: Numbers,
    chance: Tensor,
) -> None:
    """Write what is no longer as it was."""
    moved = np.flatnonzero(tokens[slot, position] != after)
    tokens[slot, position] = after
    run.put(ids, slot[moved], position[moved], after[moved])
    run.note(k, slot[moved], position[moved], after[moved])
    run.know(slot[moved], position[moved], chance[run.upload(moved)])


def _anything(run: LockstepRun, u: np.ndarray) -> Numbers:
    classes = run.denoiser.vocab_size
    return np.minimum((u * classes).astype(np.int64), classes - 1)


def _best(run: LockstepRun, ids: Tensor, tokens: Numbers, k: int, sigma: Tensor) -> None:
    """The best clean token everywhere, whatever is there."""
    hidden = run.hidden(ids, np.arange(len(ids)), sigma)
    slot, position = np.nonzero(run.begin.open)
    after, chance = np.empty(len(slot), np.int64), []
    for part, logits in run.rows(hidden, slot, position):
        best = logits.argmax(-1)
        after[part] = best.cpu().numpy()  # waits
        law = any_log_probs(logits, run.spec.temperature, run.spec.top_p)
        chance.append(log_share(law, best))
    _move(run, ids, tokens, k, slot, position, after, torch.cat(chance))
