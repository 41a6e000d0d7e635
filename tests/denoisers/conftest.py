"""Small checkpoints, written fresh for each test."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file
from small_checkpoints import FLAT, random_tensors
from torch import Tensor


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
