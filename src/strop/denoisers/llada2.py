"""LLaDA 2.0 and 2.1: GLM-4's mixture of experts under names of its own, read in blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from strop.checkpoints.checkpoint import Located
from strop.checkpoints.config import Sizes
from strop.checkpoints.transformer import BlockShape, Fields, TransformerShape
from strop.denoisers.bidirectional import BlockCausal
from strop.denoisers.bidirectional_load import Release
from strop.denoisers.load import Loading
from strop.denoisers.qwen import block_fields, mlp_sizes, written
from strop.errors import UserError

MASK, END, BLOCK = 156895, 156892, 32
"""Of the release, where a configuration does not say them."""
SPECIAL = ("<|startoftext|>", "<|endoftext|>", "<|mask|>", "<role>", "</role>", "<|role_end|>")
"""Tokens beyond those of text; the second ends a text, the third is the mask."""
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% set role = 'HUMAN' if message['role'] == 'user' else message['role'] | upper %}"
    "{{ '<role>' + role + '</role>' + message['content'] + '<|role_end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<role>ASSISTANT</role>' }}{% endif %}"
)
"""Turns for tiny checkpoints; a release brings its own."""
# Variants that the configuration could ask for, none of which was released.
_RELEASED = {
    "hidden_act": "silu",
    "moe_router_enable_expert_bias": True,
    "norm_head": False,
    "rope_scaling": None,
    "score_function": "sigmoid",
    "use_bias": False,
    "use_qk_norm": True,
    "use_qkv_bias": False,
    "use_sliding_window": False,
}
_TYPE = "llada2_moe"
_ATTENTION = r"^model\.layers\.(\d+)\.attention\."
_RENAMING = {
    r"^model\.word_embeddings\.": "model.embed_tokens.",
    rf"{_ATTENTION}dense\.": r"model.layers.\1.self_attn.o_proj.",
    rf"{_ATTENTION}query_layernorm\.": r"model.layers.\1.self_attn.q_norm.",
    rf"{_ATTENTION}key_layernorm\.": r"model.layers.\1.self_attn.k_norm.",
    rf"{_ATTENTION}query_key_value\.": r"model.layers.\1.self_attn.query_key_value.",
    r"\.mlp\.gate\.expert_bias$": ".mlp.gate.e_score_correction_bias",
}


class LLaDA2(BlockCausal):
    """A LLaDA 2 checkpoint as a `BlockDenoiser`."""


@dataclass(frozen=True)
class LLaDA2Shape(BlockShape):
    """What its mixture of experts needs beside."""

    n_groups: int = 1
    groups_used: int = 1
    shared_experts: int = 1
    dense_blocks: int = 1
    """The first layers, which have one MLP instead."""
    scaling: float = 1.0
    rotary: float = 0.5
    """The share of a head that is rotated."""


def load_llada2(located: Located, loading: Loading) -> LLaDA2:
    """Load the LLaDA 2 checkpoint at `found`."""
    if "llada2.2" in located.source.lower():
        raise UserError(
            "LLaDA 2.2 is not covered: it edits by inserting and deleting.",
            where=located.source,
            expected="LLaDA 2.0 or 2.1",
        )
    return RELEASE.load(located, loading)


def _grown(shape: TransformerShape) -> LLaDA2Shape:
    plain = vars(BlockShape.of(shape, BLOCK))
    experts = {"n_experts": 4, "experts_used": 2, "expert_width": shape.width // 2}
    return LLaDA2Shape(**{**plain, **experts}, n_groups=2, groups_used=1, scaling=2.5)


def _config(shape: TransformerShape, eos_id: int) -> dict[str, Any]:
    """A checkpoint's config.json as LLaDA 2 writes it; the mask it leaves to its code."""
    grown = _grown(shape)
    return {
        **written(shape, eos_id),
        "first_k_dense_replace": grown.dense_blocks,
        "head_dim": grown.head_dim,
        "moe_intermediate_size": grown.expert_width,
        "n_group": grown.n_groups,
        "norm_topk_prob": True,
        "num_experts": grown.n_experts,
        "num_experts_per_tok": grown.experts_used,
        "num_shared_experts": grown.shared_experts,
        "partial_rotary_factor": grown.rotary,
        "routed_scaling_factor": grown.scaling,
        "topk_group": grown.groups_used,
    }


def _shape(fields: Fields) -> LLaDA2Shape:
    return LLaDA2Shape(
        **block_fields(fields),
        block_length=fields.count("block_length", BLOCK),
        n_experts=fields.count("num_experts"),
        experts_used=fields.count("num_experts_per_tok"),
        expert_width=fields.count("moe_intermediate_size"),
        norm_topk=fields.content.get("norm_topk_prob") is not False,
        n_groups=fields.count("n_group", 1),
        groups_used=fields.count("topk_group", 1),
        shared_experts=fields.count("num_shared_experts", 1),
        dense_blocks=fields.content.get("first_k_dense_replace") or 0,
        scaling=fields.number("routed_scaling_factor", 1.0),
        rotary=fields.number("partial_rotary_factor", 0.5),
    )


def _sizes(shape: LLaDA2Shape) -> Sizes:
    width, head = shape.width, shape.head_dim
    sizes: Sizes = {"model.word_embeddings.weight": (shape.vocab_size, width)}
    for i in range(shape.n_blocks):
        block, attention = f"model.layers.{i}.", f"model.layers.{i}.attention."
        rows = (shape.n_heads + 2 * shape.n_kv_heads) * head
        sizes |= {
            f"{block}input_layernorm.weight": (width,),
            f"{attention}query_key_value.weight": (rows, width),
            f"{attention}query_layernorm.weight": (head,),
            f"{attention}key_layernorm.weight": (head,),
            f"{attention}dense.weight": (width, shape.n_heads * head),
            f"{block}post_attention_layernorm.weight": (width,),
        }
        if i < shape.dense_blocks:
            sizes |= mlp_sizes(f"{block}mlp.", width, shape.mlp_width)
            continue
        sizes |= {
            f"{block}mlp.gate.weight": (shape.n_experts, width),
            f"{block}mlp.gate.expert_bias": (shape.n_experts,),
        }
        for expert in range(shape.n_experts):
            sizes |= mlp_sizes(f"{block}mlp.experts.{expert}.", width, shape.expert_width)
        shared = shape.shared_experts * shape.expert_width
        sizes |= mlp_sizes(f"{block}mlp.shared_experts.", width, shared)
    last = {} if shape.tied else {"lm_head.weight": (shape.vocab_size, width)}
    return sizes | {"model.norm.weight": (width,)} | last


def _network(shape: LLaDA2Shape) -> dict[str, Any]:
    """Glm4Moe's configuration. Its type is ours, so that its tensors are converted as ours are."""
    _register()
    theta = {"rope_type": "default", "rope_theta": shape.rope_theta}
    return {
        "model_type": _TYPE,
        "head_dim": shape.head_dim,
        "attention_bias": False,
        "use_qk_norm": True,
        "rope_parameters": {**theta, "partial_rotary_factor": shape.rotary},
        "n_routed_experts": shape.n_experts,
        "n_shared_experts": shape.shared_experts,
        "num_experts_per_tok": shape.experts_used,
        "moe_intermediate_size": shape.expert_width,
        "first_k_dense_replace": shape.dense_blocks,
        "n_group": shape.n_groups,
        "topk_group": shape.groups_used,
        "routed_scaling_factor": shape.scaling,
        "norm_topk_prob": shape.norm_topk,
    }


def _register() -> None:
    """Tell transformers how the fused queries, keys and values come apart, and experts together."""
    from transformers.conversion_mapping import (
        get_checkpoint_conversion_mapping,
        register_checkpoint_conversion_mapping,
    )
    from transformers.core_model_loading import Split, WeightConverter

    fused = "self_attn.query_key_value.weight"
    apart = [f"self_attn.{name}_proj.weight" for name in "qkv"]
    mapping = [
        WeightConverter(fused, apart, operations=[Split(dim=0)]),
        *(get_checkpoint_conversion_mapping("glm4_moe") or []),
    ]
    register_checkpoint_conversion_mapping(_TYPE, mapping, overwrite=True)


RELEASE = Release(
    family="llada2",
    model_type=_TYPE,
    architectures=("LLaDA2MoeModelLM",),
    architecture="Glm4Moe",
    denoiser=LLaDA2,
    shape=_shape,
    sizes=_sizes,
    config=_config,
    variants=_RELEASED,
    defaults={"mask_token_id": MASK},
    special=SPECIAL,
    chat_template=CHAT_TEMPLATE,
    renaming=_RENAMING,
    network=_network,
    grown=_grown,
    ends=(END,),
)
"""LLaDA 2's public layout."""
layout = RELEASE.layout
