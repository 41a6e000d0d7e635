"""Checkpoints that answer the sums: the causal one that ships, a worse one, and a random LLaDA."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

from strop.assets import MODELS

CAUSAL = "embedded:sums-ar"


def worse(directory: Path, noise: float = 0.25) -> Path:
    """The causal model with noise in its weights: some of its answers are wrong."""
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(MODELS / "sums-ar", directory)
    path = directory / "model.safetensors"
    generator = torch.Generator().manual_seed(0)
    tensors = {
        key: value + noise * value.float().std() * torch.randn(value.shape, generator=generator)
        if value.ndim == 2
        else value
        for key, value in load_file(path).items()
    }
    save_file({k: v.to(torch.float16).contiguous() for k, v in tensors.items()}, path)
    return directory


def random_llada(directory: Path) -> Path:
    """A LLaDA of two layers that nobody trained, with the tokenizer of the sums."""
    from strop.checkpoints.config import SHAPES
    from strop.checkpoints.layout import write_random
    from strop.records import FAMILIES
    from strop.registry import resolve
    from sums_words import tokenizer

    layout = FAMILIES["llada"].layout
    assert layout is not None
    size = {"hidden_dim": 16, "n_blocks": 2, "n_heads": 2, "length": 128}
    vocabulary = {"vocab_size": 158, "mask_id": 157}
    write_random(directory, resolve(layout)(replace(SHAPES["tiny"], **size, **vocabulary)), 0)
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer()))
    return directory
