"""Keys and values by column, behind the interface of transformers' caches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache


class Slots(Cache):
    """Keys and values of every layer for the columns of one canvas.

    The first pass fills the slots. Later passes write theirs over those of the window that
    `place` names; the network then reads all slots, or those up to the window's end. Keys are kept
    after their rotation by absolute positions, which is the same as rotating them when read.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._start: int | None = None
        self._cut = False
        self.reach: int | None = None
        """How many columns the next pass can see; None before the first one."""

    def place(self, start: int, width: int, *, cut: bool) -> None:
        """The next pass is a window at `start`.

        A `cut` memory ends where the window begins and is left as it is; the window's own keys
        and values follow it.
        """
        self._start, self._cut = start, cut
        self.reach = start + width if cut else self._keys[0].shape[-2]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Take a layer's new keys and values [B, H, w, D]; return what its queries see."""
        if self._start is None:
            self._keys.append(key_states)
            self._values.append(value_states)
            return key_states, value_states
        keys, values = self._keys[layer_idx], self._values[layer_idx]
        start = self._start
        if self._cut:
            return (
                torch.cat([keys[..., :start, :], key_states], dim=-2),
                torch.cat([values[..., :start, :], value_states], dim=-2),
            )
        end = start + key_states.shape[-2]
        keys[..., start:end, :] = key_states
        values[..., start:end, :] = value_states
        return keys, values

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        """Columns before the window; positions are given, so nothing counts from here."""
        return self._start or 0

    def get_query_offset(self, layer_idx: int = 0) -> int:
        """The column of the window's first query."""
        return self.get_seq_length(layer_idx)

    def get_mask_sizes(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """How many columns a mask covers, and its first."""
        if self.reach is None:
            length = args[0] if args else next(iter(kwargs.values()))
            # A number, or in older releases the columns themselves.
            return (length if isinstance(length, int) else int(length.shape[0])), 0
        return self.reach, 0


class GrowingSlots(Cache):
    """Keys and values of the columns that are finished, followed by those of one pass.

    `keep` columns of both are kept for the next pass. The memory that it began with stays as it is.
    """

    def __init__(self, before: GrowingSlots | None, keep: int) -> None:
        super().__init__(layers=[])
        self._before, self._keep = before, keep
        self._kept: list[tuple[Tensor, ...]] = []
        self.columns = keep
        """How many columns are kept."""

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Take a layer's new keys and values [B, H, n, D]; return what its queries see."""
        new: tuple[Tensor, ...] = (key_states, value_states)
        old = None
        if self._before is not None and self._before.columns:
            old = self._before._kept[layer_idx]
            new = tuple(torch.cat(pair, dim=-2) for pair in zip(old, new, strict=True))
        if old is not None and self._keep == old[0].shape[-2]:
            self._kept.append(old)
        else:
            self._kept.append(tuple(states[..., : self._keep, :] for states in new))
        return new[0], new[1]

    def of(self, rows: Tensor) -> GrowingSlots:
        """The memory of some of the sequences."""
        slots = GrowingSlots(None, self.columns)
        slots._kept = [
            tuple(states[rows.to(states.device)] for states in pair) for pair in self._kept
        ]
        return slots

    def done(self) -> None:
        """Let go of what the pass began with."""
        self._before = None

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        """Columns before the pass; positions and masks are given, so nothing counts from here."""
        return 0 if self._before is None else self._before.columns
