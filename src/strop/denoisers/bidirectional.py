"""A decoder network of transformers that sees both directions, as a `Denoiser`.

The classes are transformers' own Llama and Qwen2 with `is_causal=False`; the families differ in
the names of their tensors, and in which state predicts which token.

`BlockCausal` reads a text block by block instead: each block sees itself and everything before it.
A finished block never changes, so its keys and values are kept and the result is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from strop.denoisers.base import Keep, Timeless, checked_starts
from strop.denoisers.tokenizer import TextCodec, stop_ids
from strop.errors import UserError, unknown_name
from strop.spec.generator import CheckpointSpec

if TYPE_CHECKING:
    from strop.denoisers.slots import Slots


DEFAULT_LENGTH = 256
"""Generated positions when none are asked for: what the comparisons use, not the context's end."""


@dataclass(frozen=True)
class KeysAndValues:
    """The keys and values of one pass over a canvas."""

    slots: Slots
    """One slot per layer and column."""
    shape: tuple[int, int]
    """Rows and columns of the canvas."""
    starts: Tensor | None
    """The column at which each left-padded row begins."""


class TransformerDenoiser(Timeless):
    """States of the network, head only on the rows asked for."""

    def __init__(
        self,
        network: Any,
        spec: CheckpointSpec,
        *,
        source: str,
        codec: TextCodec | None,
        device: torch.device,
        eos_id: int | None = None,
    ) -> None:
        self.network = network.eval().requires_grad_(False)
        self.spec, self.source, self.codec, self.device = spec, source, codec, device
        self.vocab_size = int(spec.shape["vocab_size"])
        self.mask_id = int(spec.shape["mask_id"])
        self.length = int(spec.shape["length"])
        self.eos_id = eos_id
        """The token that ends a text, where the configuration says it."""
        self.stop_ids = stop_ids([eos_id], codec)
        """The tokens that end a text and a turn, the text's first; none where nothing says them."""
        self.default_length = min(self.length, DEFAULT_LENGTH)

    @torch.no_grad()
    def logits(self, hidden: Tensor, sequence: Tensor, position: Tensor) -> Tensor:
        """The head at the rows asked for, in float32."""
        rows = hidden[sequence, self._predicting(position)]
        scores = self.network.get_output_embeddings()(rows)
        return scores.to(device=hidden.device, dtype=torch.float32, copy=True)

    def _predicting(self, position: Tensor) -> Tensor:
        """The state that scores the token at a position: its own."""
        return position


class Bidirectional(TransformerDenoiser):
    """Every state sees every token; also a `PaddingDenoiser` and a `CachingDenoiser`."""

    @torch.no_grad()
    def hidden(self, ids: Tensor, sigma: Tensor | None) -> Tensor:  # noqa: ARG002
        """The normed states of the last layer; the noise level is not seen."""
        return self._states(ids)

    @torch.no_grad()
    def padded(self, ids: Tensor, starts: Tensor) -> Tensor:
        """States of left-padded rows; see `PaddingDenoiser`."""
        starts = checked_starts(ids, starts)
        return self._unpadded(self._states(ids, starts=starts), starts)

    @torch.no_grad()
    def remember(self, ids: Tensor, starts: Tensor | None = None) -> tuple[Tensor, KeysAndValues]:
        """A full pass that keeps its keys and values; see `CachingDenoiser`."""
        from strop.denoisers.slots import Slots

        slots = Slots()
        if starts is not None:
            starts = checked_starts(ids, starts)
        states = self._states(ids, starts=starts, slots=slots)
        if starts is not None:
            states = self._unpadded(states, starts)
        return states, KeysAndValues(slots, (ids.shape[0], ids.shape[1]), starts)

    @torch.no_grad()
    def window(self, ids: Tensor, start: int, memory: KeysAndValues, keep: Keep) -> Tensor:
        """States of a part of the canvas against the memory; see `CachingDenoiser`."""
        _check_window(ids, start, memory, keep)
        memory.slots.place(start, ids.shape[1], cut=keep == "prefix")
        return self._states(ids, start, memory.starts, memory.slots)

    def _unpadded(self, states: Tensor, starts: Tensor) -> Tensor:  # noqa: ARG002
        """States of which `logits` may ask at every column of the text."""
        return states

    def _states(
        self, ids: Tensor, first: int = 0, starts: Tensor | None = None, slots: Slots | None = None
    ) -> Tensor:
        """One call of the network on the columns from `first` on.

        Positions count from each row's first token, so that a padded row has the angles of the
        row alone. Those of padding are negative, which is as good as any: nothing reads them.
        """
        columns = torch.arange(first, first + ids.shape[1], device=ids.device)
        position, mask = columns[None], None
        if starts is not None:
            position = columns - starts[:, None]
            seen = first + ids.shape[1] if slots is None else slots.reach or ids.shape[1]
            mask = (torch.arange(seen, device=ids.device) >= starts[:, None]).long()
        output = self.network.base_model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=position,
            past_key_values=slots,
            use_cache=slots is not None,
        )
        return output.last_hidden_state.to(ids.device)


def _check_window(ids: Tensor, start: int, memory: KeysAndValues, keep: Keep) -> None:
    """Refuse a window that does not lie in the canvas that is remembered."""
    if keep not in ("prefix", "dual"):
        raise unknown_name("kind of memory", str(keep), ["prefix", "dual"], where="`keep`")
    (rows, columns), end = memory.shape, start + ids.shape[1]
    inside = start >= 0 and ids.shape[0] == rows and end <= columns
    if not inside or (keep == "prefix" and end != columns):
        raise UserError(
            "The window does not fit the cached canvas.",
            where="`ids`",
            got=f"{ids.shape[0]} rows, columns {start} to {end}",
            expected=f"{rows} rows, columns within 0 to {columns}"
            + (", to its end" if keep == "prefix" else ""),
        )


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
            # A query that sees nothing would give NaN; let it see itself, since nothing reads it.
            diagonal = columns[first:, None] == columns
            mask = mask | (diagonal & ~mask.any(-1, keepdim=True))
        mask = mask.expand(len(ids), -1, -1, -1)
        if self.network.config._attn_implementation == "eager":  # adds, where sdpa selects
            dtype = self.network.get_input_embeddings().weight.dtype
            added = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
            mask = added.masked_fill(~mask, torch.finfo(dtype).min)
        output = self.network.base_model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=columns[None, first:],
            past_key_values=slots,
            use_cache=slots is not None,
        )
        if slots is not None:
            slots.done()
        return output.last_hidden_state.to(ids.device), slots
