"""What a family's loader is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from strop.assets import EMBEDDED
from strop.checkpoints.checkpoint import Located


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


@dataclass(frozen=True)
class LoadRecipe:
    """How a model was loaded, so that another process can load it too: all but the device."""

    said: str
    """As the user wrote it."""
    source: str
    """A whole path, a hub id, `embedded:NAME`: the same wherever a process starts."""
    revision: str | None
    """Of a hub id, the commit that was found."""
    weights: Literal["ema", "raw"] | None
    family: str | None
    dtype: str
    load: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        found: Located,
        weights: Literal["ema", "raw"] | None,
        family: str | None,
        dtype: str,
        load: Mapping[str, Any],
    ) -> LoadRecipe:
        """From where a checkpoint was found, and the arguments of `load_model`."""
        source = found.source
        if found.revision is not None:
            source = source.partition("@")[0]
        elif not source.startswith(EMBEDDED):
            source = str(found.path.resolve())
        return cls(found.source, source, found.revision, weights, family, dtype, dict(load))
