"""The tiny LLaDA and Dream of the parity vectors, as directories in the hub layout."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from strop.checkpoints.checkpoint import locate
from strop.denoisers.bidirectional import Bidirectional
from strop.denoisers.dream import load_dream
from strop.denoisers.llada import load_llada

VECTORS = Path(__file__).parents[1] / "vectors"
FAMILIES = ("llada", "dream")
LOADERS: dict[str, Callable[..., Bidirectional]] = {"llada": load_llada, "dream": load_dream}
TOLERANCE = 5e-4
"""What the vectors' authors ask for; logits reach about 35."""


def write(family: str, directory: Path, shards: int = 1, **changes: Any) -> Path:
    """The vectors' weights under the hub's names; `changes` go into config.json."""
    directory.mkdir(parents=True)
    config = json.loads((VECTORS / family / "config.json").read_text()) | changes
    (directory / "config.json").write_text(json.dumps(config))
    source = VECTORS / family / "weights.safetensors"
    if shards == 1:
        shutil.copyfile(source, directory / "model.safetensors")
        return directory
    save_shards(load_file(source), directory, shards)
    return directory


def save_shards(tensors: dict[str, Tensor], directory: Path, shards: int) -> None:
    """Weights over several files, with the index that names them."""
    places: dict[str, str] = {}
    for i in range(shards):
        name = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = {key: tensors[key] for key in list(tensors)[i::shards]}
        save_file(part, directory / name)
        places |= dict.fromkeys(part, name)
    index = {"metadata": {"total_size": 0}, "weight_map": places}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def load(family: str, directory: Path, **options: Any) -> Bidirectional:
    """The family's denoiser of a directory."""
    return LOADERS[family](locate(str(directory), None), **options)


def rows(model: Bidirectional, hidden: Tensor) -> Tensor:
    """Scores at every row of a state, [B, L, V]."""
    batch, length = hidden.shape[:2]
    sequence = torch.arange(batch).repeat_interleave(length)
    return model.logits(hidden, sequence, torch.arange(length).repeat(batch)).unflatten(
        0, (batch, length)
    )


def aligned(family: str, raw: Tensor) -> Tensor:
    """The network's raw output where column i scores token i."""
    return raw if family == "llada" else torch.cat([raw[:, :1], raw[:, :-1]], dim=1)


def expected(family: str) -> dict[str, Tensor]:
    """What the public code computed."""
    return load_file(VECTORS / family / "expected.safetensors")


def distance(left: Tensor, right: Tensor) -> float:
    """The largest difference."""
    assert left.shape == right.shape
    return float((left - right).abs().max())
