"""Write a checkpoint with random weights in the hub layout, to try commands without a download.

    python scripts/random-checkpoint.py DIR [--shape tiny|small|medium] [--width W --blocks N ...]

Nothing was trained: what it generates is noise. The output bias falls like a Zipf law, so that
token frequencies at least look like those of a language.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file

from strop.denoisers.config import SHAPES, DiTShape, expected_tensors

HUB_NAMES = {"length": "model_length"}


def random_tensors(shape: DiTShape, seed: int) -> dict[str, torch.Tensor]:
    """Weights of a moderate size for every parameter of the shape, under the hub's keys."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for key, size in expected_tensors(shape).items():
        if "norm" in key:
            value = torch.ones(size)
        elif key == "output_layer.linear.bias":
            rank = torch.randperm(shape.vocab_size, generator=generator).float()
            value = -(rank + 2).log()
        else:
            value = torch.randn(size, generator=generator) * (0.5 if len(size) == 1 else 1.0)
            value = value / (size[-1] ** 0.5 if len(size) == 2 else 10.0)
        tensors[f"backbone.{key}"] = value
    return tensors


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Write a checkpoint with random weights in the hub layout."
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--vocab-size", type=int)
    parser.add_argument("--length", type=int)
    parser.add_argument("--width", dest="hidden_dim", type=int)
    parser.add_argument("--blocks", dest="n_blocks", type=int)
    parser.add_argument("--heads", dest="n_heads", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = vars(parser.parse_args())
    directory, seed = options.pop("directory"), options.pop("seed")
    shape = replace(
        SHAPES[options.pop("shape")], **{k: v for k, v in options.items() if v is not None}
    )
    shape = replace(shape, mask_id=shape.vocab_size - 1)

    directory.mkdir(parents=True, exist_ok=True)
    save_file(random_tensors(shape, seed), directory / "model.safetensors")
    config = {HUB_NAMES.get(name, name): value for name, value in vars(shape).items()}
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    print(f"wrote {directory}")


if __name__ == "__main__":
    main()
