"""The shape of the transformer: presets, the tensors it needs, and what a checkpoint says.

The network is a transformer with adaptive layer norms: embedding [V, D], a conditioning MLP of
width C, N blocks of width D with H heads, and an output head back to V. Notation of the
docstrings: V vocabulary with the mask, D `hidden_dim`, C `cond_dim`, N `n_blocks`, H `n_heads`.

Files differ in the prefixes of their tensors' names, and some hold several networks
(DiDi-Instruct's student, its discriminator, the network that was trained). Here each network's
tensors get bare names.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from strop.errors import UserError
from strop.records.record import FAMILIES

if TYPE_CHECKING:
    from strop.checkpoints.checkpoint import Checkpoint


Modules = dict[str, dict[str, Tensor]]
"""Networks by name, their tensors by bare key."""

DISCRIMINATOR = "discriminator"
BASE = "base"
"""The network that was trained, of which the student is the average."""


def didi_modules(
    tensors: dict[str, Tensor], where: Path, weights: Literal["ema", "raw"]
) -> tuple[dict[str, Tensor], Modules]:
    """The student (averaged, or as trained) of a whole state dict, and the networks besides."""
    networks: Modules = {}
    for key, tensor in tensors.items():
        network, dot, name_within = key.partition(".")
        if dot:  # a single tensor beside them, such as a running mean, is no network
            networks.setdefault(network, {})[name_within] = tensor
    name = "student_ema" if weights == "ema" else "backbone"
    if name not in networks:
        other = "backbone" if weights == "ema" else "student_ema"
        choice = "raw" if weights == "ema" else "ema"
        raise UserError(
            "The checkpoint holds no averaged (EMA) student."
            if weights == "ema"
            else "The checkpoint holds no student as it was trained, only its average.",
            where=where,
            got=f"the networks {few(list(networks))}",
            expected=f"keys that start with '{name}.'",
            fix=f"ask for `weights={choice}`" if other in networks else "check that it is complete",
        )
    places = {DISCRIMINATOR: "discriminator", BASE: "backbone"}
    return networks[name], {
        k: networks[network] for k, network in places.items() if network in networks
    }


BUFFER = "rotary_emb.inv_freq"
"""The rotary frequencies: a buffer, optional in a file, and never among the averaged weights."""

# Students that started from a hub model wrap the wrapped network: two prefixes.
_PREFIXES = ("backbone.backbone.", "backbone.")


def backbone_only(tensors: dict[str, Tensor], where: Path, *, bare: bool) -> dict[str, Tensor]:
    """The backbone's tensors with bare keys, in the file's order.

    `bare` says whether a file without any prefix is taken as a backbone as it is. Tensors outside
    the prefix are other modules (a discriminator, a noise schedule): left out, with a warning.
    """
    prefix = next((p for p in _PREFIXES if any(k.startswith(p) for k in tensors)), "")
    if not prefix and not bare:
        raise UserError(
            "The checkpoint has no backbone.",
            where=where,
            got=f"keys {few(list(tensors))}" if tensors else "no tensors",
            expected="keys that start with 'backbone.'",
        )
    others = [key for key in tensors if not key.startswith(prefix)]
    if others:
        warnings.warn(
            f"{where}: {len(others)} tensors outside {prefix[:-1]!r} are not used: {few(others)}",
            UserWarning,
            stacklevel=2,
        )
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


Sizes = dict[str, tuple[int, ...]]
"""Every tensor's key and shape."""


def tensor_differences(
    stored: Sizes, expected: Sizes, others: Mapping[str, list[str]] | None = None
) -> str:
    """How the tensors of a file differ from the expected ones, as text; empty where they agree."""
    parts = {
        "missing": [key for key in expected if key not in stored],
        "unexpected": [key for key in stored if key not in expected],
        "wrong shape": [
            f"{key} {stored[key]} instead of {size}"
            for key, size in expected.items()
            if stored.get(key, size) != size
        ],
        **(others or {}),
    }
    return "; ".join(f"{label}: {few(names)}" for label, names in parts.items() if names)


def few(names: list[str], count: int = 4) -> str:
    """The first few names of a list, and how many more there are."""
    # Names come from the file: no control characters reach the terminal, and no endless ones.
    first = [(n if n.isprintable() else repr(n))[:120] for n in names[:count]]
    more = f" and {len(names) - count} more" if len(names) > count else ""
    return ", ".join(first) + more


TIME_FEATURES = 256
"""Sinusoidal features of sigma that enter the conditioning MLP."""

_HEADS_OF_WIDTH = {256: 8, 512: 8, 768: 12, 1024: 16, 1280: 20}


@dataclass(frozen=True)
class DiTShape:
    """Everything that fixes the network's tensors and its behaviour."""

    vocab_size: int
    """Tokens, the mask included (V)."""
    length: int
    """The longest sequence the model was trained on (L)."""
    hidden_dim: int
    """Width of the residual stream (D)."""
    cond_dim: int
    """Width of the conditioning vector (C)."""
    n_blocks: int
    """Transformer blocks (N)."""
    n_heads: int
    """Attention heads (H); the width is a multiple of it."""
    dropout: float
    """Probability used in training; sampling has none."""
    time_conditioning: bool
    """Whether the network sees sigma; where False it sees zero."""
    mask_id: int
    """The id of the mask token."""


def _public(hidden_dim: int, n_blocks: int, n_heads: int) -> DiTShape:
    """A shape of the public releases: GPT-2's vocabulary and one mask, 1,024 tokens."""
    return DiTShape(
        vocab_size=50258,
        length=1024,
        hidden_dim=hidden_dim,
        cond_dim=128,
        n_blocks=n_blocks,
        n_heads=n_heads,
        dropout=0.1,
        time_conditioning=False,
        mask_id=50257,
    )


SHAPES = {
    "tiny": _public(256, 8, 8),
    "small": _public(768, 12, 12),
    "medium": _public(1024, 24, 16),
}
"""Named shapes: 34M, 170M and 424M parameters."""


def expected_tensors(shape: DiTShape) -> Sizes:
    """Every parameter's key and shape, in the order of the averaged weights.

    The buffer `rotary_emb.inv_freq` is not among them: files may hold it or leave it out.
    """
    V, D, C = shape.vocab_size, shape.hidden_dim, shape.cond_dim
    sizes: Sizes = {
        "vocab_embed.embedding": (V, D),
        "sigma_map.mlp.0.weight": (C, TIME_FEATURES),
        "sigma_map.mlp.0.bias": (C,),
        "sigma_map.mlp.2.weight": (C, C),
        "sigma_map.mlp.2.bias": (C,),
    }
    for i in range(shape.n_blocks):
        sizes |= {
            f"blocks.{i}.norm1.weight": (D,),
            f"blocks.{i}.attn_qkv.weight": (3 * D, D),
            f"blocks.{i}.attn_out.weight": (D, D),
            f"blocks.{i}.norm2.weight": (D,),
            f"blocks.{i}.mlp.0.weight": (4 * D, D),
            f"blocks.{i}.mlp.0.bias": (4 * D,),
            f"blocks.{i}.mlp.2.weight": (D, 4 * D),
            f"blocks.{i}.mlp.2.bias": (D,),
            f"blocks.{i}.adaLN_modulation.weight": (6 * D, C),
            f"blocks.{i}.adaLN_modulation.bias": (6 * D,),
        }
    return sizes | {
        "output_layer.norm_final.weight": (D,),
        "output_layer.linear.weight": (V, D),
        "output_layer.linear.bias": (V,),
        "output_layer.adaLN_modulation.weight": (2 * D, C),
        "output_layer.adaLN_modulation.bias": (2 * D,),
    }


def parameter_count(shape: DiTShape) -> int:
    """How many numbers are trained."""
    return sum(math.prod(size) for size in expected_tensors(shape).values())


def infer_shape(checkpoint: Checkpoint, family: str = "mdlm") -> DiTShape:
    """The network's shape: from the tensors, and from the configuration what they do not say.

    Where the two disagree the tensors win, with one warning that names each disagreement. The
    family's record says whether the network always sees the noise level, and whether it has a mask;
    without one the mask's id is one past the vocabulary.
    """
    config, record = checkpoint.config, FAMILIES[family]
    shape = _shape_from_widths(checkpoint)
    if record.time_conditioned is not None:
        shape = replace(shape, time_conditioning=record.time_conditioned)
    if record.noise != "mask":
        shape = replace(shape, mask_id=shape.vocab_size)
    heads = _heads_from_buffer(checkpoint, shape.hidden_dim)
    widths = ("vocab_size", "hidden_dim", "cond_dim", "n_blocks")
    seen = {name: getattr(shape, name) for name in widths} | ({"n_heads": heads} if heads else {})
    wrong = [
        f"{k} is {v}, not {config[k]}" for k, v in seen.items() if k in config and config[k] != v
    ]
    if wrong:
        _warn(
            checkpoint,
            "its tensors contradict its configuration and are used: " + "; ".join(wrong),
        )
    shape = replace(shape, n_heads=heads or _heads_from_config(checkpoint, shape.hidden_dim))
    if "model_length" not in config:
        _warn(checkpoint, f"its files give no sequence length; assuming {shape.length}")
    if record.noise == "mask":
        _check_mask(checkpoint, shape)
    _check_vocabulary(checkpoint, shape)
    check_tensors(checkpoint.tensors, expected_tensors(shape), checkpoint.path, shape)
    return shape


def _shape_from_widths(checkpoint: Checkpoint) -> DiTShape:
    """Read V, D, C and N off two matrices and the blocks' numbers; H stays open (0)."""
    tensors, config = checkpoint.tensors, checkpoint.config
    anchors = ("vocab_embed.embedding", "sigma_map.mlp.0.weight")
    missing = [key for key in anchors if key not in tensors or tensors[key].ndim != 2]
    numbers = [int(m[1]) for key in tensors if (m := re.match(r"blocks\.(\d{1,4})\.", key))]
    if missing or not numbers:
        missing += [] if numbers else ["blocks.0.norm1.weight"]
        raise UserError(
            "The checkpoint is not a diffusion transformer.",
            where=checkpoint.path,
            got=f"keys {few(list(tensors))}" if tensors else "no tensors",
            expected="matrices and blocks such as " + ", ".join(missing),
            fix="pass a masked diffusion checkpoint; autoregressive variants have no sigma_map",
        )
    vocab_size, hidden_dim = tensors[anchors[0]].shape
    return DiTShape(
        vocab_size=vocab_size,
        length=config.get("model_length", 1024),
        hidden_dim=hidden_dim,
        cond_dim=tensors[anchors[1]].shape[0],
        n_blocks=max(numbers) + 1,
        n_heads=0,
        dropout=float(config.get("dropout", 0.1)),
        time_conditioning=config.get("time_conditioning", False),
        mask_id=config.get("mask_id", vocab_size - 1),
    )


def _heads_from_buffer(checkpoint: Checkpoint, hidden_dim: int) -> int | None:
    """The rotary table has one frequency per pair of a head's dimensions."""
    buffer = checkpoint.tensors.get(BUFFER)
    if buffer is None:
        return None
    head_dim = 2 * buffer.numel()
    if buffer.ndim != 1 or not head_dim or hidden_dim % head_dim:
        raise UserError(
            "The rotary table does not fit the network's width.",
            where=f"{checkpoint.path}: {BUFFER}",
            got=f"shape {tuple(buffer.shape)}, width {hidden_dim}",
            expected="half a head's dimensions, with the width a multiple of a head's",
        )
    return hidden_dim // head_dim


def _heads_from_config(checkpoint: Checkpoint, hidden_dim: int) -> int:
    heads = checkpoint.config.get("n_heads") or _HEADS_OF_WIDTH.get(hidden_dim)
    if heads is None:
        raise UserError(
            "The number of attention heads is unknown.",
            where=checkpoint.path,
            got=f"width {hidden_dim}, no {BUFFER}, no n_heads in the configuration",
            fix='write {"n_heads": ...} into a config.json beside the weights',
        )
    if hidden_dim % heads or (hidden_dim // heads) % 2:
        raise UserError(
            "The number of attention heads does not fit the network's width.",
            where=checkpoint.path,
            got=f"{heads} heads, width {hidden_dim}",
            expected="a width that splits into heads of an even size",
            fix="correct n_heads in config.json",
        )
    return heads


def _warn(checkpoint: Checkpoint, text: str) -> None:
    warnings.warn(f"{checkpoint.source}: {text}", UserWarning, stacklevel=3)


def _check_mask(checkpoint: Checkpoint, shape: DiTShape) -> None:
    if not 0 <= shape.mask_id < shape.vocab_size:
        raise UserError(
            "The vocabulary has no mask: the mask's id lies outside it.",
            where=checkpoint.path,
            got=f"mask id {shape.mask_id}",
            expected=f"an id from 0 to {shape.vocab_size - 1}",
            fix="correct mask_id in config.json; left out, it is the last id",
        )


def _check_vocabulary(checkpoint: Checkpoint, shape: DiTShape) -> None:
    """SEDD's configuration counts tokens without the mask, and nothing else says what is what."""
    tokens = checkpoint.config.get("tokens")
    if tokens is not None and tokens + 1 != shape.vocab_size:
        raise UserError(
            "The vocabulary of the weights is not that of the configuration.",
            where=checkpoint.path,
            got=f"{shape.vocab_size} classes for {tokens} tokens",
            expected=f"{tokens + 1}: the tokens and the mask",
            fix="put the configuration that belongs to the weights beside them",
        )


def check_tensors(
    tensors: dict[str, Tensor], expected: Sizes, where: Path, shape: DiTShape
) -> None:
    """Refuse a network whose tensors are not the wanted ones, or not finite numbers."""
    sizes = {key: tuple(tensor.shape) for key, tensor in tensors.items() if key != BUFFER}
    not_floating = [f"{k} ({t.dtype})" for k, t in tensors.items() if not t.is_floating_point()]
    different = tensor_differences(sizes, expected, {"not floating point": not_floating})
    if different:
        raise UserError(
            "The checkpoint's tensors are not those of a diffusion transformer of this shape.",
            where=where,
            got=different,
            expected=f"{len(expected)} tensors for {shape.n_blocks} blocks of width "
            f"{shape.hidden_dim} and a vocabulary of {shape.vocab_size}",
            fix="check that the file is complete and of the family it is taken for",
        )
    bad = [k for k, t in tensors.items() if not bool(torch.isfinite(t).all())]
    if bad:
        raise UserError(
            "The checkpoint holds weights that are not finite numbers.",
            where=where,
            got=few(bad),
            fix="download the file again; if that does not help, the training run has diverged",
        )
