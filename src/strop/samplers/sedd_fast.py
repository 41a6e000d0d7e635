"""SEDD at a fraction of the cost, with the law of `sedd`.

Whether a position is revealed depends on the sum of its scores, so every masked position needs the
head in every update: that is the limit. But one number per position decides it; only where a token
comes out is a law over the vocabulary formed, and one more number draws from it.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.denoisers.sedd import log_score_shift
from strop.samplers.machinery.categorical import clean_log_probs, invert
from strop.samplers.machinery.grid import RevealGrid, sigma_of
from strop.samplers.machinery.lattice import Lattice, told
from strop.samplers.machinery.lockstep import LockstepRun, Numbers
from strop.samplers.sedd import noise_rate

__all__ = ["analytic", "euler"]


def analytic(run: LockstepRun) -> Tensor:
    """Rates e^(sigma(t) - sigma(s)) - 1."""
    return _sample(run, torch.expm1(run.grid.sigmas()[:-1] - sigma_of(run.grid.s)))


def euler(run: LockstepRun) -> Tensor:
    """Rates (t - s) dsigma/dt."""
    return _sample(run, (run.grid.t - run.grid.s) * noise_rate(run.grid.t))


def _sample(run: LockstepRun, rates: Tensor) -> Tensor:
    ids, sigmas = run.start(), run.grid.sigmas()
    masked = np.ones(ids.shape, bool)
    for k in range(_rounds(run.grid, run.spec.finish)):
        slots = np.flatnonzero(masked.any(1))
        if not slots.size:
            break
        where, position = np.nonzero(masked[slots])
        hidden = run.hidden(ids, slots, sigmas[k])
        # The finish rules the mask out, whatever the rate.
        rate = float(rates[k]) if k < len(rates) else math.inf
        for part, logits in run.rows(hidden, where, position):
            row = slots[where[part]], position[part]
            token = _draw(run, logits, k, *row, sigmas[k], rate)
            revealed = token != run.denoiser.mask_id
            masked[row[0][revealed], row[1][revealed]] = False
            run.put(ids, *row, token)
    return ids


def _rounds(grid: RevealGrid, finish: str) -> int:
    return grid.updates + (finish != "none")


def _draw(
    run: LockstepRun,
    logits: Tensor,
    k: int,
    slots: Numbers,
    position: Numbers,
    sigma: Tensor,
    rate: float,
) -> Numbers:
    """A token at every row, or the mask."""
    spec, mask_id = run.spec, run.denoiser.mask_id
    if rate == math.inf and spec.finish == "greedy":
        return clean_log_probs(logits, mask_id, 0, 1).argmax(-1).cpu().numpy()
    reveal = np.ones(len(slots))
    if rate < math.inf:
        logits[..., mask_id] = -torch.inf
        shift = float(log_score_shift(sigma)) + math.log(logits.shape[-1] - 1)
        total = (logits.logsumexp(-1).double() - shift).exp().cpu().numpy()
        reveal = np.minimum(rate * total, 1.0)
    if spec.precision == "float32":
        return _race(run, logits, k, slots, position, reveal)
    token = np.full(len(slots), mask_id)
    out = np.flatnonzero(run.uniform(slots, k, position, 0) < reveal)
    if out.size:
        clean = clean_log_probs(
            logits[torch.from_numpy(out).to(logits.device)], mask_id, spec.temperature, spec.top_p
        )
        u = torch.from_numpy(run.uniform(slots[out], k, position[out], 1))
        token[out] = invert(clean, u.to(clean.device)).cpu().numpy()
    return token


def _race(
    run: LockstepRun,
    logits: Tensor,
    k: int,
    slots: Numbers,
    position: Numbers,
    reveal: NDArray[np.float64],
) -> Numbers:
    """The float32 race between the tokens, of total weight `reveal`, and the mask, of the rest."""
    spec, mask_id = run.spec, run.denoiser.mask_id
    lattice, mass = Lattice(run.bits), reveal.astype(np.float32)
    rounds = np.full(len(slots), k)
    offers = lattice.offer(
        run.stream, run.outputs[slots], rounds, position, mass, (1 - reveal).astype(np.float32)
    )
    token = np.full(len(slots), mask_id)
    opened = np.flatnonzero(offers.open)
    if opened.size:
        rows = torch.from_numpy(opened).to(logits.device)
        clean = clean_log_probs(logits[rows], mask_id, spec.temperature, spec.top_p)
        weights = (
            clean.float().exp_().mul_(torch.from_numpy(mass[opened]).to(clean.device)[:, None])
        )
        token[opened] = told(*lattice.settle(offers[opened], weights, mask_id, run.stream))
    return token
