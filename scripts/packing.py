"""A trained checkpoint as a small one: float16 storage, and a check that the loss does not mind."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strop.checkpoints.checkpoint import read_checkpoint
from strop.checkpoints.config import infer_shape
from strop.checkpoints.files import read_json_object
from strop.checkpoints.foreign import load_foreign
from strop.denoisers.dit import DiT
from strop.denoisers.llada import RELEASE
from strop.denoisers.load import load_model
from strop.denoisers.tokenizer import TextCodec
from strop.disk import disk
from strop.errors import CheckFailed
from strop.training.data import HeldOutLoss, held_out_losses, summary
from strop.training.documents import ShardRows, Shards
from strop.training.model import BothWays, Causal, Diffusion, Trainable, save_network
from strop.training.objective import Noise

TOLERANCE = 5e-4
"""Nats per token that float16 storage may change: three digits stay."""


@dataclass(frozen=True)
class PackedLoss:
    """What packing did to the held-out loss."""

    before: HeldOutLoss
    after: HeldOutLoss
    parameters: int
    bytes: int
    """Of the weights file."""

    @property
    def change(self) -> float:
        """Of the held-out loss, in nats per token, on the same rows under the same noise."""
        return self.after.nats_per_token.value - self.before.nats_per_token.value


def pack(
    checkpoint: Path, out: Path, shards: Shards, *, seed: int, rows: int = 512, batch: int = 64
) -> PackedLoss:
    """Write `checkpoint` into `out` in float16; refused if the held-out loss moves by 5e-4."""
    before = measure(checkpoint, shards, seed=seed, rows=rows, batch=batch)
    tokenizer = (checkpoint / "tokenizer.json").read_bytes()
    with disk(out):
        out.mkdir(parents=True, exist_ok=True)
    module = _module(checkpoint)
    network: Any = module.network
    weights, end = network.state_dict(), shards.end_of_text
    save_network(out, module, weights, tokenizer, end, dtype=torch.float16)
    after = measure(out, shards, seed=seed, rows=rows, batch=batch)
    parameters = sum(p.numel() for p in network.parameters())
    packed = PackedLoss(before, after, parameters, (out / "model.safetensors").stat().st_size)
    if not abs(packed.change) < TOLERANCE:
        raise CheckFailed(
            "float16 storage changes the held-out loss.",
            where=out,
            got=f"{packed.change:+.6f} nats per token",
            expected=f"less than {TOLERANCE:g} either way",
            fix="keep the float32 checkpoint",
        )
    return packed


def measure(
    checkpoint: Path, shards: Shards, *, seed: int, rows: int = 512, batch: int = 64
) -> HeldOutLoss:
    """The held-out loss of a checkpoint on disk, diffusion or causal."""
    module = _module(checkpoint).eval()
    form = "causal" if isinstance(module, Causal) else "any-order"
    losses = held_out_losses(
        _caller(module),
        shards.held_out,
        count=rows,
        form=form,
        seed=seed,
        batch=batch,
        block=module.block if isinstance(module, Diffusion) else None,
    )
    return summary(losses, shards.held_out, form, TextCodec.from_directory(checkpoint))


def held_out_texts(rows: ShardRows, codec: TextCodec, count: int) -> list[dict[str, Any]]:
    """Held-out rows as records, evenly spread, to ship beside the models."""
    numbers = np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(np.int64)
    return [{"text": codec.decode(row), "ids": row.tolist()} for row in rows[numbers]]


def _caller(module: Any) -> Callable[[Tensor, Noise | None], Tensor]:
    def losses(ids: Tensor, noise: Noise | None) -> Tensor:
        if noise is None:
            return module(ids)
        return module(ids, *noise.tensors())

    return losses


def _module(checkpoint: Path) -> Trainable:
    """The network of a checkpoint in float32, as a module with a loss."""
    kind = read_json_object(checkpoint / "config.json").get("model_type")
    if kind == RELEASE.model_type:
        model: Any = load_model(checkpoint, device="cpu", dtype="float32")
        return BothWays(model.network, model.mask_id, torch.float32)
    if kind == "bd3lm":
        model = load_model(checkpoint, device="cpu", dtype="float32")
        return Diffusion(model.network, torch.float32, model.block_length)
    if kind is not None:
        network = load_foreign("AutoModelForCausalLM", checkpoint, use_safetensors=True)
        return Causal(network, torch.float32)
    read = read_checkpoint(checkpoint)
    network = DiT(infer_shape(read))
    network.load_state_dict({k: v.float() for k, v in read.tensors.items()})
    return Diffusion(network, torch.float32)


def as_lines(records: list[dict[str, Any]]) -> bytes:
    """Records as JSON lines."""
    return "".join(json.dumps(record) + "\n" for record in records).encode()
