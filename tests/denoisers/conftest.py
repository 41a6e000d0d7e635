"""Small checkpoints, written fresh for each test."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from strop.denoisers.config import DiTShape, expected_tensors

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


@pytest.fixture
def hub_dir(tmp_path: Path) -> Callable[..., Path]:
    """Write a directory in the hub layout; `config=None` leaves the configuration out."""

    def write(
        tensors: dict[str, Tensor] | None = None,
        config: Any = FLAT,
        name: str = "model",
        weights: str = "model.safetensors",
    ) -> Path:
        directory = tmp_path / name
        directory.mkdir(parents=True)
        save_file(
            random_tensors(prefix="backbone.") if tensors is None else tensors, directory / weights
        )
        if config is not None:
            (directory / "config.json").write_text(json.dumps(config))
        return directory

    return write
