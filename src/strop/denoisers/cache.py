"""Keys and values kept from an earlier pass: an approximation that saves most of the network.

In a bidirectional network every state depends on every token, so keys and values that were
computed before some tokens changed are stale. Fast-dLLM uses them all the same, and refreshes them
once per block.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor

from strop.denoisers.base import Denoiser

Keep = Literal["prefix", "dual"]
"""What a window may still read: what lies left of it, or everything around it."""


@runtime_checkable
class CachingDenoiser(Denoiser, Protocol):
    """A denoiser that can read a part of a canvas against its memory of the rest."""

    def remember(self, ids: Tensor, starts: Tensor | None = None) -> tuple[Tensor, Any]:
        """The states of a whole canvas [B, L], and the memory of its keys and values.

        `starts` are the columns at which left-padded rows begin; windows heed them too.
        """
        ...

    def window(self, ids: Tensor, start: int, memory: Any, keep: Keep) -> Tensor:
        """States [B, w, ...] of `ids` = canvas[:, start : start + w], the rest being remembered.

        `prefix`: only the memory of [0, start) is read, and the window reaches to the canvas' end.
        `dual`: the window's slots of the memory are overwritten, in place; all others stay as
        they were remembered. `logits` take positions within the window.
        """
        ...
