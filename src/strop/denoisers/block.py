"""A network that reads a text block by block: each block sees itself and all before it.

So what a finished block computed never changes: its keys and values are kept, and nothing is lost.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from strop.denoisers.base import Denoiser
from strop.denoisers.bidirectional import TransformerDenoiser


@runtime_checkable
class BlockDenoiser(Denoiser, Protocol):
    """A denoiser whose finished blocks can be remembered exactly."""

    @property
    def block_length(self) -> int:
        """The block that it was trained with."""
        ...

    @property
    def shifted(self) -> bool:
        """Whether the state before a position scores it; else its own does."""
        ...

    def advance(
        self, ids: Tensor, memory: Any, *, block: int, keep: int, seen: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """States [B, n, ...] of the columns `ids` [B, n] that follow what `memory` holds.

        `memory` is None before the first call; `memory.columns` says how many it holds, and
        `memory.of(rows)` is that of some of the sequences. Column q sees column k if
        q // block >= k // block. The memory that comes back holds the first `keep` columns; the
        old one is not changed. `seen` [B, columns] rules keys out. `logits` take positions within
        `ids`.
        """
        ...


class BlockCausal(TransformerDenoiser):
    """A decoder network of transformers under a block-causal mask, as a `BlockDenoiser`."""

    shifted = False

    @property
    def block_length(self) -> int:
        """The block that it was trained with."""
        return int(self.spec.shape["block_length"])

    def hidden(self, ids: Tensor, sigma: Tensor | None) -> Tensor:  # noqa: ARG002
        """The normed states of the last layer, in blocks as trained."""
        return self.advance(ids, None, block=self.block_length, keep=0)[0]

    @torch.no_grad()
    def advance(
        self, ids: Tensor, memory: Any, *, block: int, keep: int, seen: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """One call of the network; see `BlockDenoiser`."""
        from strop.denoisers.slots import GrowingSlots

        first = 0 if memory is None else memory.columns
        slots = GrowingSlots(memory, keep) if memory is not None or keep else None
        end = first + ids.shape[1]
        columns = torch.arange(end, device=ids.device)
        mask = (columns[first:, None] // block >= columns // block)[None, None]
        if seen is not None:
            mask = mask & seen[:, None, None, :end]
            # A query that sees nothing would be no number; nobody sees what it computes.
            own = columns[first:, None] == columns
            mask = mask | (own & ~mask.any(-1, keepdim=True))
        found = self.network.base_model(
            input_ids=ids,
            attention_mask=self._usable(mask.expand(len(ids), -1, -1, -1)),
            position_ids=columns[None, first:],
            past_key_values=slots,
            use_cache=slots is not None,
        )
        if slots is not None:
            slots.done()
        return found.last_hidden_state.to(ids.device), slots

    def _usable(self, mask: Tensor) -> Tensor:
        """The mask as the attention kernel takes it: eager attention adds, sdpa selects."""
        if self.network.config._attn_implementation != "eager":
            return mask
        dtype = self.network.get_input_embeddings().weight.dtype
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(
            ~mask, torch.finfo(dtype).min
        )


class ShiftedBlockCausal(BlockCausal):
    """The state at i scores token i + 1, as a causal model's does.

    The first column of a call has no state before it there and reads its own, as in the public
    code; what is drawn there needs a call that begins further left.
    """

    shifted = True

    def _predicting(self, position: Tensor) -> Tensor:
        return (position - 1).clamp(min=0)
