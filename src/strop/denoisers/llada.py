"""LLaDA: a Llama that looks both ways, under names of its own. Position i predicts token i."""

from __future__ import annotations

from typing import Any

from strop.checkpoints.config import Sizes
from strop.checkpoints.transformer import Fields, TransformerShape
from strop.denoisers.bidirectional import Bidirectional
from strop.denoisers.bidirectional_load import Release
from strop.denoisers.qwen import decoder_sizes

CHAT_TEMPLATE = (
    "{{ '<|startoftext|>' }}"
    "{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}"
    "{{ message['content'] | trim + '<|eot_id|>' }}"
    "{% endfor %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
)
"""Turns as the Instruct model knows them; an answer is always opened."""

SPECIAL = (
    "<|startoftext|>",
    "<|endoftext|>",
    "<|mdm_mask|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
)
"""Tokens beyond those of text; the second ends a text, the third is the mask."""

# Variants that the configuration could ask for, none of which was released.
_RELEASED = {
    "activation_type": "silu",
    "alibi": False,
    "attention_layer_norm": False,
    "bias_for_layer_norm": False,
    "block_group_size": 1,
    "block_type": "llama",
    "include_bias": False,
    "include_qkv_bias": False,
    "input_emb_norm": False,
    "layer_norm_type": "rms",
    "layer_norm_with_affine": True,
    "multi_query_attention": False,
    "rope": True,
    "scale_logits": False,
}
_ENDS = {"wte": "model.embed_tokens", "ln_f": "model.norm", "ff_out": "lm_head"}
_PARTS = {
    "attn_norm": "input_layernorm",
    "ff_norm": "post_attention_layernorm",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ff_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "ff_out": "mlp.down_proj",
}
_ROOT = "model.transformer."


class LLaDA(Bidirectional):
    """A LLaDA checkpoint as a `Denoiser`."""


def stored_name(name: str) -> str:
    """What LLaDA's files call a tensor of transformers' Llama."""
    for old, new in _ENDS.items():
        if name == f"{new}.weight":
            return f"{_ROOT}{old}.weight"
    layer, part = name.removeprefix("model.layers.").removesuffix(".weight").split(".", 1)
    old = next(old for old, new in _PARTS.items() if new == part)
    return f"{_ROOT}blocks.{layer}.{old}.weight"


def _config(shape: TransformerShape, eos_id: int) -> dict[str, Any]:
    """A checkpoint's config.json as LLaDA writes it."""
    return {
        "multi_query_attention": None,
        "d_model": shape.width,
        "embedding_size": shape.vocab_size,
        "eos_token_id": eos_id,
        "mask_token_id": shape.mask_id,
        "max_sequence_length": shape.length,
        "mlp_hidden_size": shape.mlp_width,
        "n_heads": shape.n_heads,
        "n_kv_heads": shape.n_kv_heads,
        "n_layers": shape.n_blocks,
        "pad_token_id": eos_id,
        "rms_norm_eps": shape.norm_eps,
        "rope_full_precision": True,
        "rope_theta": shape.rope_theta,
        "vocab_size": shape.vocab_size,
        "weight_tying": shape.tied,
    }


def _shape(fields: Fields) -> TransformerShape:
    width, heads = fields.count("d_model"), fields.count("n_heads")
    vocabulary = fields.count("vocab_size")
    # The embedding may be padded beyond the vocabulary; the padded rows are scored, too.
    vocabulary = fields.count("embedding_size", vocabulary)
    return TransformerShape(
        vocab_size=vocabulary,
        length=fields.count("max_sequence_length"),
        width=width,
        n_blocks=fields.count("n_layers", most=4096),
        n_heads=heads,
        n_kv_heads=fields.count("n_kv_heads", heads),
        mlp_width=fields.count("mlp_hidden_size", fields.count("mlp_ratio", 4) * width),
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        rope_theta=fields.number("rope_theta"),
        mask_id=fields.token("mask_token_id", vocabulary),
        tied=fields.flag("weight_tying"),
    )


def _sizes(shape: TransformerShape) -> Sizes:
    """Those of transformers' Llama, in its order, under the names of LLaDA's files."""
    sizes = decoder_sizes(shape, shape.width // shape.n_heads)
    return {stored_name(name): size for name, size in sizes.items()}


_START = r"^model\.transformer\."
_RENAMING = {rf"{_START}{old}\.": f"{new}." for old, new in _ENDS.items()} | {
    rf"{_START}blocks\.(\d+)\.{old}\.": rf"model.layers.\1.{new}." for old, new in _PARTS.items()
}

RELEASE = Release(
    family="llada",
    model_type="llada",
    architectures=("LLaDAModelLM",),
    architecture="Llama",
    denoiser=LLaDA,
    shape=_shape,
    sizes=_sizes,
    config=_config,
    variants=_RELEASED,
    special=SPECIAL,
    chat_template=CHAT_TEMPLATE,
    renaming=_RENAMING,
)
"""LLaDA's public layout."""
load, layout = RELEASE.load, RELEASE.layout
