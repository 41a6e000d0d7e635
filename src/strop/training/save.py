"""Loadable checkpoints: the hub layout for diffusion, transformers' own for causal models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from strop.checkpoints.config import DiTShape
from strop.disk import write

__all__ = ["save_causal", "save_diffusion"]


def save_diffusion(
    directory: Path,
    shape: DiTShape,
    tensors: Mapping[str, Tensor],
    tokenizer: bytes,
    *,
    dtype: torch.dtype = torch.float32,
) -> None:
    """config.json, model.safetensors with the hub's keys, tokenizer.json."""
    config = {("model_length" if k == "length" else k): v for k, v in asdict(shape).items()}
    stored = {f"backbone.{key}": value for key, value in tensors.items()}
    _write_all(directory, config, stored, tokenizer, dtype)


def save_causal(
    directory: Path,
    config: Any,
    tensors: Mapping[str, Tensor],
    tokenizer: bytes,
    *,
    dtype: torch.dtype = torch.float32,
) -> None:
    """What `AutoModelForCausalLM` and `AutoTokenizer` read.

    The configuration says float32 whatever is stored, so that the library computes in it.
    """
    from transformers import LlamaForCausalLM

    whole = {**config.to_dict(), "architectures": [LlamaForCausalLM.__name__], "dtype": "float32"}
    whole.pop("_name_or_path", None)  # where it was read from is nobody's business
    stored = {k: v for k, v in tensors.items() if k != "lm_head.weight"}  # tied to the embedding
    _write_all(directory, whole, stored, tokenizer, dtype)
    end = "<|endoftext|>"
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config.max_position_embeddings,
        "bos_token": end,
        "eos_token": end,
        "clean_up_tokenization_spaces": False,
    }
    write(directory / "tokenizer_config.json", _json(settings))


def _write_all(
    directory: Path,
    config: dict[str, Any],
    tensors: Mapping[str, Tensor],
    tokenizer: bytes,
    dtype: torch.dtype,
) -> None:
    stored = {k: v.detach().to("cpu", dtype).contiguous() for k, v in tensors.items()}
    write(directory / "config.json", _json(config))
    write(directory / "tokenizer.json", tokenizer)
    write(directory / "model.safetensors", save(stored, metadata={"format": "pt"}))


def _json(document: Any) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()
