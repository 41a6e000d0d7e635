"""The m-path bound of a denoiser on data: how likely its finite-step sampler makes a text.

log (1/m) sum_j Q^{S_j}(x) over m reveal paths S_j is, in the mean, below log pi(x); it rises to
it as m grows. Q^S(x) is a product over the path's rounds, so one network call per round that
reveals anything gives it for every temperature. The small targets of the theory, a known language
and a trained checkpoint all come through here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from strop.denoisers.base import Denoiser
from strop.samplers.machinery.grid import sigma_of
from strop.theory.mpath import PathScores, draw_paths

Ints = NDArray[np.int64]
NETWORK_TOKENS = 8192
"""Tokens in one network call."""


@torch.no_grad()
def path_scores(
    denoiser: Denoiser,
    ids: Ints,
    masses: ArrayLike,
    *,
    paths: int,
    lams: ArrayLike,
    seed: int,
    told: Callable[[int], None] = lambda _: None,
) -> PathScores:
    """log Q_lambda^S(x) of every sequence [n, L] along `paths` independent paths."""
    delta = np.asarray(masses, dtype=float)
    visible = np.append(0.0, np.cumsum(delta))
    found = PathScores(lams, len(ids), paths)
    length, keep = ids.shape[1], np.arange(denoiser.vocab_size) != denoiser.mask_id
    batch = max(1, NETWORK_TOKENS // length)
    for sequence, clean in enumerate(ids):
        rng = np.random.default_rng([seed, sequence])
        every = list(_rounds(draw_paths(delta, length, paths, rng)))
        for start in range(0, len(every), batch):
            some = every[start : start + batch]
            seen = torch.from_numpy(np.stack([rounds < k for _, k, rounds in some]))
            tokens = torch.from_numpy(clean)[None]
            canvas = torch.where(seen, tokens, denoiser.mask_id).to(denoiser.device)
            level = torch.tensor([1 - visible[k] for _, k, _ in some], dtype=torch.float64)
            hidden = denoiser.hidden(canvas, sigma_of(level).float().to(denoiser.device))
            for place, (path, k, rounds) in enumerate(some):
                (at,) = np.nonzero(rounds == k)
                position = torch.from_numpy(at).to(denoiser.device)
                row = torch.full_like(position, place)
                logits = denoiser.logits(hidden, row, position).double().cpu().numpy()
                mine = clean[at] - (clean[at] > denoiser.mask_id)
                found.add(sequence, path, logits[:, keep], mine)
        told(1)
    return found


def _rounds(drawn: Ints) -> Iterator[tuple[int, int, Ints]]:
    """Path, round and the path's rounds, for every round that reveals anything."""
    for path, rounds in enumerate(drawn):
        for k in np.unique(rounds):
            yield path, int(k), rounds
