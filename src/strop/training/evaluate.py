"""Held-out numbers: the negative ELBO per token, what it bounds, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.denoisers.tokenizer import TextCodec
from strop.rng import derive_seed
from strop.stats.interval import Interval
from strop.stats.resample import bootstrap, mean
from strop.training.batches import row_noise
from strop.training.objective import Noise
from strop.training.shards import ShardRows


@dataclass(frozen=True)
class HeldOutLoss:
    """Nats per token with a 95% interval from resampled rows, and what follows from it.

    Rows of one document are resampled apart, so the interval says how much another draw of rows
    would change the number, not another set of books. A loss that is not finite has no ends.
    """

    form: str
    """`any-order` (unbiased for the bound), `public` (clipped), or `causal` (exact)."""
    rows: int
    nats_per_token: Interval
    perplexity: Interval
    """exp of it: an upper bound for the diffusion forms."""
    nats_per_character: float | None


@torch.no_grad()
def held_out_losses(
    losses: Callable[[Tensor, Noise | None], Tensor],
    rows: ShardRows,
    *,
    count: int,
    form: str,
    seed: int,
    batch: int,
    block: int | None = None,
    share: tuple[int, int] = (0, 1),
) -> NDArray[np.float64]:
    """Loss per token of `count` held-out rows, each under noise that depends on seed and form.

    The rows are spread evenly over the held-out split, the noise is stratified over all of them:
    measurements of one run differ by the weights alone. `share` is (this process, of how many);
    rows of the others come back as zeros.
    """
    count = min(count, len(rows))
    numbers = np.linspace(0, len(rows) - 1, count).round().astype(np.int64)
    generator = torch.Generator().manual_seed(derive_seed(seed, "held-out"))
    # Strata follow each other along the rows; shuffled, no part of the corpus is favoured.
    order = torch.randperm(count, generator=generator)
    # Row i of the noise is for the row whose place in the order is i.
    back = order.argsort().numpy()
    noise = row_noise(rows, lambda: numbers[back], count, form, generator, block)
    noise = None if noise is None else noise.part(order)
    out = np.zeros(count)
    for first in range(share[0] * batch, count, share[1] * batch):
        part = slice(first, min(first + batch, count))
        ids = torch.from_numpy(rows[numbers[part]])
        out[part] = losses(ids, None if noise is None else noise.part(part)).double().cpu().numpy()
    return out


def summary(
    losses: NDArray[np.float64], rows: ShardRows, form: str, codec: TextCodec | None = None
) -> HeldOutLoss:
    """Mean, interval, perplexity, and nats per character where a tokenizer is given."""
    n, value = len(losses), float(losses.mean())
    found = bootstrap(mean(losses), seed=derive_seed(0, "bootstrap")) or Interval(value, n=n)
    per_character = None
    if codec is not None and rows.response is None:
        numbers = np.linspace(0, len(rows) - 1, n).round().astype(np.int64)
        characters = sum(len(codec.decode(row)) for row in rows[numbers])
        per_character = value * n * rows.length / characters
    return HeldOutLoss(form, n, found, found.exp(), per_character)
