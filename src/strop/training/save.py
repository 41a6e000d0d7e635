"""Loadable checkpoints: the hub layout for MDLM, LLaDA's own, transformers' for causal models."""

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
from strop.checkpoints.transformer import TransformerShape
from strop.denoisers.llada import config_of, stored_name
from strop.disk import write
from strop.training.model import BothWays, Diffusion, Trainable


def save_network(
    directory: Path,
    module: Trainable,
    tensors: Mapping[str, Tensor],
    tokenizer: bytes,
    end_of_text: int,
    *,
    dtype: torch.dtype = torch.float32,
) -> None:
    """The weights `tensors` of a module's network in the layout of its family."""
    if isinstance(module, Diffusion):
        save_diffusion(directory, module.network.shape, tensors, tokenizer, dtype=dtype)
    elif isinstance(module, BothWays):
        shape = _shape(module)
        save_llada(directory, shape, tensors, tokenizer, end_of_text, dtype=dtype)
    else:
        save_causal(directory, module.network.config, tensors, tokenizer, dtype=dtype)


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


def save_llada(
    directory: Path,
    shape: TransformerShape,
    tensors: Mapping[str, Tensor],
    tokenizer: bytes,
    end_of_text: int,
    *,
    dtype: torch.dtype = torch.float32,
) -> None:
    """What the LLaDA family reads: its configuration, its names, tokenizer.json."""
    stored = {stored_name(key): value for key, value in tensors.items()}
    _write_all(directory, config_of(shape, end_of_text), stored, tokenizer, dtype)


def _shape(module: BothWays) -> TransformerShape:
    config = module.network.config
    return TransformerShape(
        vocab_size=config.vocab_size,
        length=config.max_position_embeddings,
        width=config.hidden_size,
        n_blocks=config.num_hidden_layers,
        n_heads=config.num_attention_heads,
        n_kv_heads=config.num_key_value_heads,
        mlp_width=config.intermediate_size,
        norm_eps=config.rms_norm_eps,
        rope_theta=float(config.rope_parameters["rope_theta"]),
        mask_id=module.mask_id,
    )


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
