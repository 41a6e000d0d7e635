"""Dream: a Qwen2 that looks both ways. The state at i predicts token i + 1."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from strop.checkpoints.checkpoint import Located, has_tokenizer
from strop.checkpoints.config import DiTShape
from strop.checkpoints.files import sha256_of_all
from strop.checkpoints.foreign import load_foreign
from strop.checkpoints.layout import Layout
from strop.checkpoints.transformer import Fields, TransformerShape, checked_shape
from strop.denoisers.bidirectional import Bidirectional
from strop.denoisers.bidirectional_load import Release, load_bidirectional, transformer_layout
from strop.denoisers.load import Loading
from strop.denoisers.pretrained import first_line
from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError

CHAT_TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}"
    "{% endif %}"
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""Turns as the Instruct model knows them."""

SPECIAL = ("<|beginoftext|>", "<|endoftext|>", "<|mask|>", "<|im_start|>", "<|im_end|>")
"""Tokens beyond those of text; the second ends a text, the third is the mask."""

# Variants that the configuration could ask for, none of which was released.
_RELEASED = {"hidden_act": "silu", "use_mrope": False, "use_sliding_window": False}


class Dream(Bidirectional):
    """A Dream checkpoint as a `Denoiser`: its scores are moved to the token they predict.

    The first position has no state before it and reads its own, as in the public code; what it
    says there means nothing, so sequences begin with a given token.
    """

    def _predicting(self, position: Tensor) -> Tensor:
        return (position - 1).clamp(min=0)

    def _unpadded(self, states: Tensor, starts: Tensor) -> Tensor:
        """A padded row's first token reads its own state too: a copy lies before it."""
        row, states = torch.arange(len(starts), device=states.device), states.clone()
        states[row, (starts - 1).clamp(min=0)] = states[row, starts]  # nothing, without padding
        return states


def load_dream(found: Located, loading: Loading) -> Bidirectional:
    """Load the Dream checkpoint at `found`; see `load_bidirectional`."""
    return load_bidirectional(found, RELEASE, loading)


def layout(shape: DiTShape) -> Layout:
    """The public layout of a network about as large as `shape` says, with a tokenizer."""
    return transformer_layout(shape, RELEASE, _config, SPECIAL, CHAT_TEMPLATE)


def _config(shape: TransformerShape, eos_id: int) -> dict[str, Any]:
    """A checkpoint's config.json as Dream writes it."""
    return {
        "architectures": list(RELEASE.architectures),
        "model_type": RELEASE.model_type,
        **_RELEASED,
        "bos_token_id": eos_id,
        "eos_token_id": eos_id,
        "hidden_size": shape.width,
        "intermediate_size": shape.mlp_width,
        "mask_token_id": shape.mask_id,
        "max_position_embeddings": shape.length,
        "num_attention_heads": shape.n_heads,
        "num_hidden_layers": shape.n_blocks,
        "num_key_value_heads": shape.n_kv_heads,
        "pad_token_id": eos_id,
        "rms_norm_eps": shape.norm_eps,
        "rope_scaling": None,
        "rope_theta": shape.rope_theta,
        "tie_word_embeddings": shape.tied,
        "vocab_size": shape.vocab_size,
    }


def _shape(config: Mapping[str, Any], where: Path) -> TransformerShape:
    said = Fields(config, where)
    said.only({**_RELEASED, "rope_scaling": None})
    heads, vocabulary = said.count("num_attention_heads"), said.count("vocab_size")
    return checked_shape(
        TransformerShape(
            vocab_size=vocabulary,
            length=said.count("max_position_embeddings"),
            width=said.count("hidden_size"),
            n_blocks=said.count("num_hidden_layers", most=4096),
            n_heads=heads,
            n_kv_heads=said.count("num_key_value_heads", heads),
            mlp_width=said.count("intermediate_size"),
            norm_eps=said.number("rms_norm_eps", 1e-6),
            rope_theta=said.number("rope_theta"),
            mask_id=said.token("mask_token_id", vocabulary),
            tied=said.flag("tie_word_embeddings"),
        ),
        where,
    )


def _sizes(shape: TransformerShape) -> dict[str, tuple[int, ...]]:
    width, mlp = shape.width, shape.mlp_width
    shared = width // shape.n_heads * shape.n_kv_heads
    sizes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (shape.vocab_size, width)}
    for i in range(shape.n_blocks):
        block = f"model.layers.{i}."
        sizes |= {f"{block}input_layernorm.weight": (width,)}
        for name, rows in (("q", width), ("k", shared), ("v", shared)):
            sizes |= {
                f"{block}self_attn.{name}_proj.weight": (rows, width),
                f"{block}self_attn.{name}_proj.bias": (rows,),
            }
        sizes |= {
            f"{block}self_attn.o_proj.weight": (width, width),
            f"{block}post_attention_layernorm.weight": (width,),
            f"{block}mlp.gate_proj.weight": (mlp, width),
            f"{block}mlp.up_proj.weight": (mlp, width),
            f"{block}mlp.down_proj.weight": (width, mlp),
        }
    head = {} if shape.tied else {"lm_head.weight": (shape.vocab_size, width)}
    return sizes | {"model.norm.weight": (width,)} | head


def _codec(directory: Path, vocab_size: int) -> TextCodec | None:
    """The tokenizer as Dream ships it: Qwen2's pairs, special tokens in tokenizer_config.json."""
    if not has_tokenizer(directory):
        return None
    names = ("vocab.json", "merges.txt", "tokenizer_config.json")
    files = [directory / name for name in names if (directory / name).is_file()]
    fingerprint = sha256_of_all(files)
    try:
        found = load_foreign("Qwen2Tokenizer", directory)
    except UserError:
        raise
    except Exception as error:  # the library raises bare exceptions for damaged files
        raise UserError(
            "The tokenizer cannot be read.",
            where=files[0],
            got=first_line(error),
            fix="download the tokenizer's files again",
        ) from error
    return TextCodec(found.backend_tokenizer, fingerprint, files[0]).fitting(vocab_size, directory)


RELEASE = Release(
    family="dream",
    model_type="Dream",
    architectures=("DreamModel",),
    architecture="Qwen2",
    denoiser=Dream,
    shape=_shape,
    sizes=_sizes,
    codec=_codec,
)
"""The public layout."""
