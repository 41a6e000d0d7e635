"""What a generator produced: its outputs, and everything they depend on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.spec import CellSpec

__all__ = ["Pool"]


@dataclass(frozen=True)
class Pool:
    """The outputs of one generator under one seed, in the order of their index."""

    spec: CellSpec
    """Checkpoint, sampler, seed: output i is a function of this and i."""
    ids: NDArray[np.int64]
    """Token ids [n, L]."""
    texts: list[str] | None
    """Decoded outputs; None where no tokenizer is known."""
    nfe: NDArray[np.int64]
    """Per output, the network calls it took part in (dense: those of its batch)."""
    seconds: NDArray[np.float64]
    """Per output, its share of the wall time."""
    leftover_masks: NDArray[np.int64]
    """Per output, positions that are still masked."""
    provenance: list[dict[str, Any]] = field(default_factory=list, compare=False)
    """One entry per session that drew outputs: when, where, with which packages."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def index(self) -> NDArray[np.int64]:
        """The outputs' indices: 0 .. n - 1."""
        return np.arange(len(self.ids))
