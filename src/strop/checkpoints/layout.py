"""A family's public layout, for writing small checkpoints that its users could have published."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from strop.checkpoints.config import DiTShape, Sizes
from strop.disk import write


@dataclass(frozen=True)
class Layout:
    """What lies in the directory of a released checkpoint."""

    config: dict[str, Any]
    """The content of config.json."""
    sizes: Sizes
    """The tensors of model.safetensors, under the keys of the network itself."""
    prefix: str = ""
    """What the file puts before these keys."""
    beside: dict[str, Sizes] = field(default_factory=dict)
    """Further networks, by file name."""
    texts: dict[str, str] = field(default_factory=dict)
    """Files of words, such as a tokenizer's, by name."""
    silent: dict[str, int] = field(default_factory=dict)
    """Rows of tensors that are zero in random weights."""


def flat_names(shape: DiTShape, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """The hub's flat configuration of a diffusion transformer."""
    names = {"length": "model_length"}
    return {names.get(k, k): v for k, v in vars(shape).items() if k not in without}


def write_checkpoint(
    path: Path,
    layout: Layout,
    tensors: Mapping[str, Tensor],
    beside: Mapping[str, Mapping[str, Tensor]] | None = None,
) -> None:
    """A checkpoint in its layout; the configuration comes last and means that it is complete."""
    from safetensors.torch import save

    path.mkdir(parents=True, exist_ok=True)
    for name, others in (beside or {}).items():
        write(path / name, save({key: value.contiguous() for key, value in others.items()}))
    for name, text in layout.texts.items():
        write(path / name, text.encode())
    stored = {layout.prefix + key: value.contiguous() for key, value in tensors.items()}
    write(path / "model.safetensors", save(stored, metadata={"format": "pt"}))
    write(path / "config.json", (json.dumps(layout.config, indent=2) + "\n").encode())


def write_random(path: Path, layout: Layout, seed: int) -> None:
    """An untrained checkpoint in its layout: the same for the same seed."""
    beside = {
        name: _random_tensors(sizes, seed + 1 + i)
        for i, (name, sizes) in enumerate(layout.beside.items())
    }
    tensors = _random_tensors(layout.sizes, seed)
    for key, row in layout.silent.items():
        tensors[key][row] = 0.0
    write_checkpoint(path, layout, tensors, beside)


def _random_tensors(sizes: Sizes, seed: int) -> dict[str, Tensor]:
    """Weights of a moderate size for every tensor."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for key, size in sizes.items():
        if "norm" in key or "ln_f" in key:
            value = torch.ones(size)
        elif key == "output_layer.linear.bias":
            rank = torch.randperm(size[0], generator=generator).float()
            value = -(rank + 2).log()
        else:
            value = torch.randn(size, generator=generator) * (0.5 if len(size) == 1 else 1.0)
            value = value / (size[-1] ** 0.5 if len(size) == 2 else 10.0)
        tensors[key] = value
    for key in [k for k in tensors if k.endswith("weight_orig")]:
        left, scale, right = torch.linalg.svd(tensors[key], full_matrices=False)
        tensors[key.replace("_orig", "_u")] = left[:, 0].contiguous()
        tensors[key.replace("_orig", "_v")] = right[0].contiguous()
        tensors[key] = tensors[key] / scale[0]
    return tensors
