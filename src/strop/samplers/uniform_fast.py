"""DUO's ancestral sampler at a fraction of the cost, with the law of `uniform_state`.

The posterior of a position is a mixture: it stays, is drawn from the prediction p, or is drawn
uniformly, with weights a V p(x) + r - a, b - a and (1 - r)(1 - b) over D = a V p(x) + 1 - a (names
as in `uniform_state`). D is at least 1 - a, so the chance of any change is at most

    c = (b - a + (1 - r)(1 - b)) / (1 - a),

which is known without the network. A coin of chance c nominates positions; only they get a head,
and a nomination is accepted with chance (1 - a) / D. The product is the posterior's own chance.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from strop.samplers.duo import neighbouring
from strop.samplers.machinery.categorical import any_log_probs, invert
from strop.samplers.machinery.grid import alpha_of
from strop.samplers.machinery.lockstep import LockstepRun, Numbers

__all__ = ["ancestral"]

START, NOMINATE, ACCEPT, ORIGIN, TOKEN = range(5)
"""Numbers of the random draws at a position in an update."""


def ancestral(run: LockstepRun) -> Tensor:
    """A uniform start, then one network call an update and one at the finish."""
    grid = neighbouring(run.grid)
    classes = run.denoiser.vocab_size
    everywhere = np.nonzero(np.ones((len(run.outputs), run.length), bool))
    first = run.uniform(everywhere[0], 0, everywhere[1], START) * classes
    ids = torch.from_numpy(np.minimum(first.astype(np.int64), classes - 1))
    ids = ids.view(-1, run.length).to(run.denoiser.device)
    times = [*zip(grid.t, alpha_of(grid.s), strict=True), (grid.last, torch.ones(()))]
    for k, (t, after) in enumerate(times):
        alpha_t, alpha_s = alpha_of(t), float(after)
        if k < grid.updates or run.spec.finish == "draw":
            _update(run, ids, k, -alpha_t.log(), float(alpha_t), alpha_s)
        elif run.spec.finish == "greedy":
            _best(run, ids, -alpha_t.log())
    return ids


def _update(
    run: LockstepRun, ids: Tensor, k: int, sigma: Tensor, alpha_t: float, alpha_s: float
) -> None:
    drawn, noise = alpha_s - alpha_t, (1 - alpha_t / alpha_s) * (1 - alpha_s)
    bound = min(1.0, (drawn + noise) / (1 - alpha_t))
    slot, position = np.nonzero(np.ones(ids.shape, bool))
    chosen = np.flatnonzero(run.uniform(slot, k, position, NOMINATE) < bound)
    if not chosen.size:
        return
    slot, position = slot[chosen], position[chosen]
    slots, where = np.unique(slot, return_inverse=True)
    hidden = run.hidden(ids, slots, sigma)
    before = ids[torch.from_numpy(slot).to(ids.device), torch.from_numpy(position).to(ids.device)]
    after = before.cpu().numpy().copy()
    for part, logits in run.rows(hidden, where, position):
        log_probs = any_log_probs(logits, run.spec.temperature, run.spec.top_p)
        here = slot[part], k, position[part]
        own = log_probs.gather(-1, before[part, None])[:, 0].double().exp().cpu().numpy()
        accept = (1 - alpha_t) / (alpha_t * run.denoiser.vocab_size * own + 1 - alpha_t)
        moves = run.uniform(*here, ACCEPT) < accept
        predicted = run.uniform(*here, ORIGIN) * (drawn + noise) < drawn
        u = run.uniform(*here, TOKEN)
        after[part][moves & ~predicted] = _anything(run, u[moves & ~predicted])
        rows = np.flatnonzero(moves & predicted)
        if rows.size:
            law = log_probs[torch.from_numpy(rows).to(log_probs.device)]
            token = invert(law, torch.from_numpy(u[rows]).to(law.device))
            after[part][rows] = token.cpu().numpy()
    run.put(ids, slot, position, after)


def _anything(run: LockstepRun, u: np.ndarray) -> Numbers:
    classes = run.denoiser.vocab_size
    return np.minimum((u * classes).astype(np.int64), classes - 1)


def _best(run: LockstepRun, ids: Tensor, sigma: Tensor) -> None:
    """The best clean token everywhere, whatever is there."""
    hidden = run.hidden(ids, np.arange(len(ids)), sigma)
    slot, position = np.nonzero(np.ones(ids.shape, bool))
    for part, logits in run.rows(hidden, slot, position):
        run.put(ids, slot[part], position[part], logits.argmax(-1).cpu().numpy())
