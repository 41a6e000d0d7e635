"""Write a checkpoint with random weights in a public layout, to try commands without a download.

    python scripts/random-checkpoint.py DIR [--family mdlm|sedd|duo|didi]
        [--shape tiny|small|medium] [--width W --blocks N ...]

Nothing was trained: what it generates is noise. The output bias falls like a Zipf law, so that
token frequencies at least look like those of a language.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from strop.checkpoints.config import SHAPES, DiTShape, expected_tensors
from strop.denoisers.discriminator import discriminator_tensors
from strop.facts import DIFFUSION

HUB_NAMES = {"length": "model_length"}


def random_tensors(
    sizes: dict[str, tuple[int, ...]], seed: int, prefix: str
) -> dict[str, torch.Tensor]:
    """Weights of a moderate size for every tensor, under the layout's keys."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for key, size in sizes.items():
        if "norm" in key:
            value = torch.ones(size)
        elif key == "output_layer.linear.bias":
            rank = torch.randperm(size[0], generator=generator).float()
            value = -(rank + 2).log()
        else:
            value = torch.randn(size, generator=generator) * (0.5 if len(size) == 1 else 1.0)
            value = value / (size[-1] ** 0.5 if len(size) == 2 else 10.0)
        tensors[prefix + key] = value
    for key in [k for k in tensors if k.endswith("weight_orig")]:
        left, scale, right = torch.linalg.svd(tensors[key], full_matrices=False)
        tensors[key.replace("_orig", "_u")] = left[:, 0].contiguous()
        tensors[key.replace("_orig", "_v")] = right[0].contiguous()
        tensors[key] = tensors[key] / scale[0]
    return tensors


def configuration(family: str, shape: DiTShape) -> dict[str, Any]:
    """config.json as the family's release has it."""
    flat = {HUB_NAMES.get(name, name): value for name, value in vars(shape).items()}
    if family == "sedd":
        names = ("cond_dim", "length", "n_blocks", "n_heads", "dropout")
        model = {"name": "random", "type": "ddit", "hidden_size": shape.hidden_dim}
        model |= {name: getattr(shape, name) for name in names} | {"scale_by_sigma": True}
        graph, noise = {"type": "absorb"}, {"type": "loglinear"}
        return {"tokens": shape.vocab_size - 1, "graph": graph, "noise": noise, "model": model}
    if family == "duo":
        kept = {k: v for k, v in flat.items() if k not in ("mask_id", "time_conditioning")}
        return {"model_type": "duo", **kept, "causal": False, "var_min": True}
    return flat


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Write a checkpoint with random weights in a public layout."
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--family", choices=DIFFUSION, default="mdlm")
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--vocab-size", type=int)
    parser.add_argument("--length", type=int)
    parser.add_argument("--width", dest="hidden_dim", type=int)
    parser.add_argument("--blocks", dest="n_blocks", type=int)
    parser.add_argument("--heads", dest="n_heads", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = vars(parser.parse_args())
    directory, seed, family = (options.pop(name) for name in ("directory", "seed", "family"))
    shape = replace(
        SHAPES[options.pop("shape")], **{k: v for k, v in options.items() if v is not None}
    )
    shape = replace(shape, mask_id=shape.vocab_size - 1)

    directory.mkdir(parents=True, exist_ok=True)
    prefix = "" if family in ("sedd", "didi") else "backbone."
    save_file(
        random_tensors(expected_tensors(shape), seed, prefix), directory / "model.safetensors"
    )
    if family == "didi":
        judge = random_tensors(discriminator_tensors(shape), seed + 1, "")
        save_file(judge, directory / "discriminator.safetensors")
    config = configuration(family, shape)
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    print(f"wrote {directory}")


if __name__ == "__main__":
    main()
