"""What families on Qwen's networks share: fields of config.json, and the sizes of tensors."""

from __future__ import annotations

from typing import Any

from strop.checkpoints.config import Sizes
from strop.checkpoints.transformer import Fields, TransformerShape

VARIANTS = {"hidden_act": "silu", "use_sliding_window": False, "rope_scaling": None}
"""What configurations could ask for otherwise, and no release does."""

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""Turns as Qwen's chat models know them."""


def shape_fields(said: Fields) -> dict[str, Any]:
    """The fields of a `TransformerShape` as Qwen's configurations name them."""
    heads, vocabulary = said.count("num_attention_heads"), said.count("vocab_size")
    return {
        "vocab_size": vocabulary,
        "length": said.count("max_position_embeddings"),
        "width": said.count("hidden_size"),
        "n_blocks": said.count("num_hidden_layers", most=4096),
        "n_heads": heads,
        "n_kv_heads": said.count("num_key_value_heads", heads),
        "mlp_width": said.count("intermediate_size"),
        "norm_eps": said.number("rms_norm_eps", 1e-6),
        "rope_theta": said.number("rope_theta"),
        "mask_id": said.token("mask_token_id", vocabulary),
        "tied": said.flag("tie_word_embeddings"),
    }


def written(shape: TransformerShape, eos_id: int) -> dict[str, Any]:
    """The same fields, to write."""
    return {
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
        "rope_theta": shape.rope_theta,
        "tie_word_embeddings": shape.tied,
        "vocab_size": shape.vocab_size,
    }


def decoder_sizes(
    shape: TransformerShape,
    head: int,
    *,
    bias: bool = False,
    norms: bool = False,
    experts: tuple[int, int] = (0, 0),
) -> Sizes:
    """Every tensor of a decoder whose heads have `head` numbers.

    With `bias` queries, keys and values have one, with `norms` queries and keys are normed;
    `experts` are how many there are in a layer, and their width.
    """
    width, mlp = shape.width, shape.mlp_width
    query, shared = head * shape.n_heads, head * shape.n_kv_heads
    sizes: Sizes = {"model.embed_tokens.weight": (shape.vocab_size, width)}
    for i in range(shape.n_blocks):
        block = f"model.layers.{i}."
        sizes |= {f"{block}input_layernorm.weight": (width,)}
        for name, rows in (("q", query), ("k", shared), ("v", shared)):
            sizes |= {f"{block}self_attn.{name}_proj.weight": (rows, width)}
            if bias:
                sizes |= {f"{block}self_attn.{name}_proj.bias": (rows,)}
        if norms:
            sizes |= {f"{block}self_attn.{name}_norm.weight": (head,) for name in "qk"}
        sizes |= {
            f"{block}self_attn.o_proj.weight": (width, query),
            f"{block}post_attention_layernorm.weight": (width,),
        }
        if experts[0]:
            sizes |= {f"{block}mlp.gate.weight": (experts[0], width)}
            for expert in range(experts[0]):
                sizes |= mlp_sizes(f"{block}mlp.experts.{expert}.", width, experts[1])
        else:
            sizes |= mlp_sizes(f"{block}mlp.", width, mlp)
    last = {} if shape.tied else {"lm_head.weight": (shape.vocab_size, width)}
    return sizes | {"model.norm.weight": (width,)} | last


def mlp_sizes(prefix: str, width: int, inner: int) -> Sizes:
    """A gated MLP."""
    return {
        f"{prefix}gate_proj.weight": (inner, width),
        f"{prefix}up_proj.weight": (inner, width),
        f"{prefix}down_proj.weight": (width, inner),
    }
