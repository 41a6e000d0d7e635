"""Rows of different lengths in one batch, for networks that can tell padding from text."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from strop.denoisers.base import Denoiser
from strop.denoisers.device import on_host
from strop.errors import UserError


@runtime_checkable
class PaddingDenoiser(Denoiser, Protocol):
    """A denoiser whose rows may begin at different columns."""

    def padded(self, ids: Tensor, starts: Tensor) -> Tensor:
        """States [B, L, ...] of left-padded rows: row b's text is ids[b, starts[b]:].

        What stands before it has no part in anything. `logits` of these states at
        (b, starts[b] + i) are those of the row alone at i, up to rounding; at the padding itself
        they mean nothing.
        """
        ...


def checked_starts(ids: Tensor, starts: Tensor) -> Tensor:
    """The columns where rows begin, on the ids' device, if every row has a token left."""
    known = on_host(starts := torch.as_tensor(starts))
    starts = starts.to(ids.device).long()
    good = starts.shape == ids.shape[:1]
    if not good or bool(((known < 0) | (known >= ids.shape[1])).any()):
        raise UserError(
            "The rows' first columns do not fit the batch.",
            where="`starts`",
            got=str(known.tolist())[:120],
            expected=f"{len(ids)} columns from 0 to {ids.shape[1] - 1}",
        )
    return starts
