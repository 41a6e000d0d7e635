"""What a family's loader is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

__all__ = ["Loading"]


@dataclass(frozen=True)
class Loading:
    """How a checkpoint is to be loaded, checked as far as that goes without its files."""

    weights: Literal["ema", "raw"] | None
    """Averaged or raw weights of a training file."""
    family: str | None
    """As the user says; None: as the files say."""
    device: torch.device
    dtype: str
    """Of the matrix products."""
    load: Mapping[str, Any] = field(default_factory=dict)
    """Options that are handed to transformers, where the family is loaded by it."""
