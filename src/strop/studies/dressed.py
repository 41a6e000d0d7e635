"""The embedded model in the other families' public layouts, so that their studies run anywhere.

The network is `embedded:tales`, changed only so that each family's sampler gets what it reads:

    sedd   time-blind, logits shifted by a constant so that the scores sum to about what they should
    didi   time-blind, the mask ruled out; the discriminator has random weights
    duo    time-blind, without the mask's row: it was never shown uniform noise and writes nonsense
    ar     `embedded:tales-ar` as it is

They exercise loaders, samplers and studies end to end. Their quality says nothing of the families.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from strop.assets import CHECKPOINT, HELD_OUT, embedded_path
from strop.denoisers import load_denoiser
from strop.denoisers.config import TIME_FEATURES, DiTShape
from strop.denoisers.discriminator import Discriminator
from strop.disk import write

__all__ = ["DRESSED", "dressed"]

DRESSED = ("sedd", "duo", "didi")
ROWS = 32
"""Held-out rows over which SEDD's shift is averaged."""
NEVER = -30.0
"""The mask's logit in the dressed student."""


def dressed(directory: Path) -> dict[str, str]:
    """Write the checkpoints that are not there yet; their paths by family."""
    found = {family: directory / family for family in DRESSED}
    missing = [family for family, path in found.items() if not (path / "config.json").exists()]
    if missing:
        source = embedded_path(CHECKPOINT)
        tensors = {
            key.removeprefix("backbone."): value.float()
            for key, value in load_file(source / "model.safetensors").items()
        }
        shape = DiTShape(**_shape(source))
        _forget_time(tensors)
        tokenizer = (source / "tokenizer.json").read_bytes()
        for family in missing:
            path = found[family]
            path.mkdir(parents=True, exist_ok=True)
            write(path / "tokenizer.json", tokenizer)
            _LAYOUTS[family](path, dict(tensors), shape)
    return {family: str(path) for family, path in found.items()}


def _shape(source: Path) -> dict[str, Any]:
    said = json.loads((source / "config.json").read_bytes())
    said["length"] = said["model_length"]
    return {name: said[name] for name in DiTShape.__dataclass_fields__}


def _forget_time(tensors: dict[str, Tensor]) -> None:
    """Freeze the condition at noise zero, the only one that the embedded network has seen."""
    weight = tensors["sigma_map.mlp.0.weight"]
    features = torch.zeros(TIME_FEATURES)
    features[: TIME_FEATURES // 2] = 1.0  # the cosines of zero; the sines are zero
    tensors["sigma_map.mlp.0.bias"] = tensors["sigma_map.mlp.0.bias"] + weight @ features
    tensors["sigma_map.mlp.0.weight"] = torch.zeros_like(weight)


def _sedd(path: Path, tensors: dict[str, Tensor], shape: DiTShape) -> None:
    """Scores should sum to 1/(e^sigma - 1): logits to V - 1, on average over held-out contexts."""
    bias = tensors["output_layer.linear.bias"]
    level = math.log(shape.vocab_size - 1) - _log_total()
    tensors["output_layer.linear.bias"] = bias + level
    model = {
        "hidden_size": shape.hidden_dim,
        "cond_dim": shape.cond_dim,
        "length": shape.length,
        "n_blocks": shape.n_blocks,
        "n_heads": shape.n_heads,
        "scale_by_sigma": True,
    }
    config = {
        "tokens": shape.vocab_size - 1,
        "graph": {"type": "absorb"},
        "noise": {"type": "loglinear"},
        "model": model,
    }
    _save(path, config, tensors)


@torch.no_grad()
def _log_total() -> float:
    """The mean logarithm of the summed exponentials of the logits, half of each row hidden."""
    denoiser = load_denoiser(CHECKPOINT, device="cpu")
    rows = [json.loads(line)["ids"] for line in HELD_OUT.read_text().splitlines()[:ROWS]]
    ids = torch.tensor(rows)
    hidden = torch.rand(ids.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    sequence, position = hidden.nonzero(as_tuple=True)
    state = denoiser.hidden(torch.where(hidden, denoiser.mask_id, ids), None)
    logits = denoiser.logits(state, sequence, position)
    logits[:, denoiser.mask_id] = -torch.inf
    return float(logits.logsumexp(-1).mean())


def _duo(path: Path, tensors: dict[str, Tensor], shape: DiTShape) -> None:
    for key in ("vocab_embed.embedding", "output_layer.linear.weight", "output_layer.linear.bias"):
        tensors[key] = tensors[key][: shape.mask_id]
    config = {**_flat(shape), "model_type": "DUO", "vocab_size": shape.mask_id}
    _save(path, config, {f"backbone.{key}": value for key, value in tensors.items()})


def _didi(path: Path, tensors: dict[str, Tensor], shape: DiTShape) -> None:
    bias = tensors["output_layer.linear.bias"].clone()
    weight = tensors["output_layer.linear.weight"].clone()
    bias[shape.mask_id], weight[shape.mask_id] = NEVER, 0.0
    tensors |= {"output_layer.linear.bias": bias, "output_layer.linear.weight": weight}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        judge = Discriminator(shape)
    stored = {key: value.contiguous() for key, value in judge.state_dict().items()}
    write(path / "discriminator.safetensors", save(stored))
    _save(path, {**_flat(shape), "time_conditioning": False}, tensors)


def _flat(shape: DiTShape) -> dict[str, Any]:
    """The hub's flat names, without what a family has no field for."""
    fields = ("vocab_size", "hidden_dim", "cond_dim", "n_blocks", "n_heads", "dropout")
    return {name: getattr(shape, name) for name in fields} | {"model_length": shape.length}


def _save(path: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """The configuration last: its presence means that the checkpoint is complete."""
    stored = {key: value.contiguous() for key, value in tensors.items()}
    write(path / "model.safetensors", save(stored, metadata={"format": "pt"}))
    write(path / "config.json", (json.dumps(config, indent=2) + "\n").encode())


_LAYOUTS = {"sedd": _sedd, "duo": _duo, "didi": _didi}
