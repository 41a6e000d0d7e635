"""A small shape, its random tensors and its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from strop.checkpoints.checkpoint import Checkpoint
from strop.checkpoints.config import DiTShape, expected_tensors

SMALL = DiTShape(
    vocab_size=13,
    length=8,
    hidden_dim=16,
    cond_dim=6,
    n_blocks=2,
    n_heads=2,
    dropout=0.1,
    time_conditioning=False,
    mask_id=12,
)
FLAT = {
    "vocab_size": 13,
    "model_length": 8,
    "hidden_dim": 16,
    "cond_dim": 6,
    "n_blocks": 2,
    "n_heads": 2,
    "dropout": 0.1,
    "time_conditioning": False,
}


def random_tensors(shape: DiTShape = SMALL, seed: int = 0, prefix: str = "") -> dict[str, Tensor]:
    """Random parameters in the order of the averaged weights."""
    generator = torch.Generator().manual_seed(seed)
    return {
        prefix + key: torch.randn(size, generator=generator)
        for key, size in expected_tensors(shape).items()
    }


def with_buffer(tensors: dict[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    """The rotary buffer where the public state dict has it: after the conditioning MLP."""
    items = list(tensors.items())
    at = 1 + max(i for i, (key, _) in enumerate(items) if "sigma_map" in key)
    frequencies = 10000.0 ** -(torch.arange(0, 8, 2) / 8)
    items.insert(at, (prefix + "rotary_emb.inv_freq", frequencies))
    return dict(items)


def made(tensors: dict[str, Tensor] | None = None, config: Any = FLAT) -> Checkpoint:
    return Checkpoint(
        source="here",
        path=Path("here/model.safetensors"),
        tensors=random_tensors() if tensors is None else tensors,
        config=config,
        sha256="",
        weights="released",
        tokenizer_dir=None,
        revision=None,
    )
