"""The posterior loss that a sampler's own rounds see: J_N / L, measured on held-out sequences.

A position that is revealed in round k sees every other position with probability a_{k-1}, so

    J_N / L = E[-log q(X_I | X_A, a_{K-1})]

with K drawn from the reveal masses, I uniform, and A a random set without I.

Two estimates come from one such context, in nats per token:

- `target`: the loss at I alone, which is the paper's estimator;
- `masked`: the mean loss over all positions that the context hides. Given the hidden set, each of
  its members is equally likely to have been I, so this is the conditional mean of the first:
  unbiased as well, and never of higher variance.

All temperatures read one set of logits. At tau = 1 the derivative by lambda = 1/tau is the loss
minus the entropy of the prediction. Random numbers have addresses (seed, sequence, budget, draw),
so every checkpoint and temperature sees the same contexts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.denoisers.base import Denoiser
from strop.errors import UserError
from strop.rng import Stream
from strop.samplers.machinery.categorical import clean_log_probs
from strop.samplers.machinery.grid import reveal_grid, sigma_of
from strop.spec import SamplerSpec

TEMPERATURES = (0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1)
"""Those of the paper's sweeps; it does not print the grid of its posterior losses."""

NETWORK_TOKENS = 8192
"""Tokens in one network call: eight sequences of 1,024."""
HEAD_ENTRIES = 2**23
"""Numbers in one block of logits: 32 MB in float32, whatever the length and the batch."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Contexts:
    """Partly hidden sequences, one per row, each with a target that is always hidden."""

    sequence: Ints
    """Which held-out sequence."""
    round: Ints
    """Which reveal round, or level, from 0."""
    level: Floats
    """The probability a with which every position but the target is visible."""
    target: Ints
    """Position of the target."""
    hidden: NDArray[np.bool_]
    """[N, L]: what the denoiser does not see."""

    def __len__(self) -> int:
        return len(self.sequence)

    def __getitem__(self, rows: slice) -> Contexts:
        return Contexts(
            self.sequence[rows],
            self.round[rows],
            self.level[rows],
            self.target[rows],
            self.hidden[rows],
        )


@dataclass(frozen=True, eq=False)
class Losses:
    """What a denoiser loses in some contexts, nats per token; temperatures in the last axis."""

    target: Floats
    """[N, T]: at the target."""
    masked: Floats
    """[N, T]: mean over all hidden positions."""
    target_slope: Floats
    """[N]: derivative of `target` by lambda = 1/tau at 1."""
    masked_slope: Floats
    """[N]: the same of `masked`."""


def deployed_contexts(
    steps: int, *, seed: int, sequences: Ints, length: int, draw: int = 0
) -> Contexts:
    """One context per sequence with the masses of M updates and the finish behind them."""
    masses = reveal_grid(SamplerSpec(steps=steps)).masses
    edges = np.cumsum(masses)
    u = Stream(seed, "posterior-round").uniform(sequences, steps, 0, draw)
    # The last edge may be rounded below one: the finish is the last round, whatever its edge says.
    rounds = np.minimum(np.searchsorted(edges, u, side="right"), steps)
    levels = np.append(0.0, edges)[rounds]
    return forced_contexts(
        seed, sequences, rounds, levels, length=length, address=steps, draw=draw, kind="deployed"
    )


def level_contexts(
    level: int, levels: int, *, seed: int, sequences: Ints, length: int, draw: int = 0
) -> Contexts:
    """One context per sequence at the visible probability level / levels."""
    rounds = np.full(len(sequences), level)
    return forced_contexts(
        seed,
        sequences,
        rounds,
        rounds / levels,
        length=length,
        address=level,
        draw=draw,
        kind=f"profile-{levels}",
    )


def forced_contexts(
    seed: int,
    sequences: Ints,
    rounds: Ints,
    levels: Floats,
    *,
    length: int,
    address: int,
    draw: int,
    kind: str,
) -> Contexts:
    """Hide a uniform target, and every other position with probability 1 - level."""
    place = Stream(seed, f"posterior-target-{kind}").uniform(sequences, address, 0, draw)
    target = np.minimum((place * length).astype(np.int64), length - 1)
    seen = Stream(seed, f"posterior-seen-{kind}").uniform(
        sequences[:, None], address, np.arange(length), draw
    )
    hidden = seen >= levels[:, None]
    hidden[np.arange(len(sequences)), target] = True
    return Contexts(sequences, rounds, levels, target, hidden)


def measure(
    denoiser: Denoiser,
    ids: Ints,
    contexts: Contexts,
    temperatures: Sequence[float] = TEMPERATURES,
) -> Losses:
    """Both estimates in every context; `ids[n]` is the clean sequence of context n."""
    check_temperatures(temperatures)
    batch = max(1, NETWORK_TOKENS // ids.shape[1])
    parts = [
        _batch(denoiser, ids[start : start + batch], contexts[start : start + batch], temperatures)
        for start in range(0, len(contexts), batch)
    ]
    target, masked = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Losses(target[:, :-1], masked[:, :-1], target[:, -1], masked[:, -1])


def check_temperatures(temperatures: Sequence[float]) -> None:
    """Positive ones, and 1 among them: everything is compared with it."""
    if 1.0 not in temperatures or not all(0 < tau < np.inf for tau in temperatures):
        raise UserError(
            "The temperatures of the posterior loss must be positive, and 1 must be one of them.",
            where="`temperature`",
            got=", ".join(f"{tau:g}" for tau in temperatures) or "none",
            expected="e.g. 0.9,1.0,1.1 (at 0 the loss is infinite)",
        )


@torch.no_grad()
def _batch(
    denoiser: Denoiser, ids: Ints, contexts: Contexts, temperatures: Sequence[float]
) -> tuple[Floats, Floats]:
    """Losses at all temperatures, then the slope, as columns: at the target, and in the mean."""
    clean = torch.from_numpy(np.ascontiguousarray(ids)).to(denoiser.device)
    hide = torch.from_numpy(contexts.hidden).to(denoiser.device)
    sigma = sigma_of(torch.from_numpy(1 - contexts.level)).float().to(denoiser.device)
    hidden = denoiser.hidden(torch.where(hide, denoiser.mask_id, clean), sigma)
    sequence, position = torch.nonzero(hide, as_tuple=True)
    rows = max(1, HEAD_ENTRIES // denoiser.vocab_size)
    values = torch.cat(
        [
            _rows(denoiser, hidden, clean, some, at, temperatures)
            for some, at in zip(sequence.split(rows), position.split(rows), strict=True)
        ]
    )
    total = torch.zeros((len(ids), values.shape[1]), dtype=torch.float64, device=values.device)
    total.index_add_(0, sequence, values)
    mean = total / hide.sum(1, keepdim=True)
    target = torch.from_numpy(contexts.target).to(denoiser.device)
    return values[position == target[sequence]].cpu().numpy(), mean.cpu().numpy()


def _rows(
    denoiser: Denoiser,
    hidden: Tensor,
    clean: Tensor,
    sequence: Tensor,
    position: Tensor,
    temperatures: Sequence[float],
) -> Tensor:
    """[R, T + 1] in float64: the head is asked once, for these rows only."""
    logits = denoiser.logits(hidden, sequence, position)
    truth = clean[sequence, position][:, None]
    losses: list[Tensor] = []
    slope = None
    for temperature in temperatures:
        log_probs = clean_log_probs(logits.clone(), denoiser.mask_id, temperature, 1.0)
        losses.append(-log_probs.gather(1, truth)[:, 0].double())
        if temperature == 1:
            entropy = torch.special.entr(log_probs.exp_()).sum(1, dtype=torch.float64)
            slope = losses[-1] - entropy
    assert slope is not None, "`measure` has seen to it"
    return torch.stack([*losses, slope], dim=1)
