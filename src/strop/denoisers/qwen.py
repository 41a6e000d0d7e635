"""Families on Qwen's networks: fields of config.json, the sizes of tensors, SDAR and Fast-dLLM v2.

SDAR is a Qwen3 (or Qwen3's mixture of experts) that reads in blocks; position i scores token i.
Fast-dLLM v2 is a Qwen2.5 that does; the state at i scores token i + 1. Dream has a file of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from strop.checkpoints.checkpoint import Located
from strop.checkpoints.config import Sizes
from strop.checkpoints.files import read_json_object
from strop.checkpoints.transformer import BlockShape, Fields, TransformerShape, decoder_config
from strop.denoisers.bidirectional import BlockCausal
from strop.denoisers.bidirectional_load import Release
from strop.denoisers.load import Loading
from strop.denoisers.pretrained import CONFIG, directory_of

VARIANTS = {"hidden_act": "silu", "use_sliding_window": False, "rope_scaling": None}
"""What configurations could ask for otherwise, and no release does."""

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""Turns as Qwen's chat models know them."""


def shape_fields(config: Fields) -> dict[str, Any]:
    """The fields of a `TransformerShape` as Qwen's configurations name them."""
    heads, vocabulary = config.count("num_attention_heads"), config.count("vocab_size")
    return {
        "vocab_size": vocabulary,
        "length": config.count("max_position_embeddings"),
        "width": config.count("hidden_size"),
        "n_blocks": config.count("num_hidden_layers", most=4096),
        "n_heads": heads,
        "n_kv_heads": config.count("num_key_value_heads", heads),
        "mlp_width": config.count("intermediate_size"),
        "norm_eps": config.number("rms_norm_eps", 1e-6),
        "rope_theta": config.number("rope_theta"),
        "mask_id": config.token("mask_token_id", vocabulary),
        "tied": config.flag("tie_word_embeddings"),
    }


def block_fields(config: Fields) -> dict[str, Any]:
    """The same for a network that reads in blocks, whose heads may have a size of their own."""
    fields = shape_fields(config)
    head = config.count("head_dim", fields["width"] // fields["n_heads"])
    return {**fields, "head_dim": head}


def written(shape: TransformerShape, eos_id: int) -> dict[str, Any]:
    """The same fields as they are written to config.json."""
    ends = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), eos_id)
    extra = {"mask_token_id": shape.mask_id, "rope_theta": shape.rope_theta}
    return dict(sorted({**decoder_config(shape), **ends, **extra}.items()))


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
    """The tensors of a gated MLP."""
    return {
        f"{prefix}gate_proj.weight": (inner, width),
        f"{prefix}up_proj.weight": (inner, width),
        f"{prefix}down_proj.weight": (width, inner),
    }


SDAR_MASK, SDAR_BLOCK = 151669, 4
"""Of the release, where a configuration does not say them."""
SDAR_SPECIAL = ("<|im_start|>", "<|endoftext|>", "<|MASK|>", "<|im_end|>")
"""Tokens beyond those of text; the second ends a text, the third is the mask."""


class SDAR(BlockCausal):
    """An SDAR checkpoint as a `BlockDenoiser`."""


def load_sdar(located: Located, loading: Loading) -> SDAR:
    """Load the SDAR checkpoint at `found`."""
    sparse = _experts(read_json_object(directory_of(located) / CONFIG)) is not None
    return (SPARSE if sparse else SDAR_RELEASE).load(located, loading)


def _sdar_config(shape: TransformerShape, eos_id: int) -> dict[str, Any]:
    """A checkpoint's config.json as SDAR writes it."""
    head = shape.width // shape.n_heads
    return {**written(shape, eos_id), "block_size": SDAR_BLOCK, "head_dim": head}


def _experts(config: Mapping[str, Any]) -> Any:
    """How many, under the name of Qwen3's files or that of transformers' newer ones."""
    return config.get("num_experts", config.get("num_local_experts"))


def _sdar_shape(config: Fields) -> BlockShape:
    config = Fields({**config.content, "num_experts": _experts(config.content)}, config.where)
    fields = block_fields(config)
    block = config.count("block_size", config.count("block_length", SDAR_BLOCK))
    if _experts(config.content) is None:
        return BlockShape(**fields, block_length=block, norm_topk=False)
    return BlockShape(
        **fields,
        block_length=block,
        n_experts=config.count("num_experts"),
        experts_used=config.count("num_experts_per_tok"),
        expert_width=config.count("moe_intermediate_size"),
        norm_topk=config.flag("norm_topk_prob"),
    )


def _sdar_sizes(shape: BlockShape) -> Sizes:
    experts = (shape.n_experts, shape.expert_width)
    return decoder_sizes(shape, shape.head_dim, norms=True, experts=experts)


def _sdar_network(shape: BlockShape) -> dict[str, Any]:
    experts = {
        "num_experts": shape.n_experts,
        "num_experts_per_tok": shape.experts_used,
        "moe_intermediate_size": shape.expert_width,
        "norm_topk_prob": shape.norm_topk,
    }
    return {"head_dim": shape.head_dim, **(experts if shape.n_experts else {})}


SDAR_RELEASE = Release(
    family="sdar",
    model_type="sdar",
    architectures=("SDARForCausalLM",),
    architecture="Qwen3",
    denoiser=SDAR,
    shape=_sdar_shape,
    sizes=_sdar_sizes,
    config=_sdar_config,
    variants=VARIANTS | {"attention_bias": False, "mlp_only_layers": [], "decoder_sparse_step": 1},
    defaults={"mask_token_id": SDAR_MASK},
    special=SDAR_SPECIAL,
    chat_template=CHATML,
    network=_sdar_network,
    grown=lambda shape: BlockShape.of(shape, SDAR_BLOCK),
)
"""SDAR's public layout."""
SPARSE = replace(SDAR_RELEASE, architectures=("SDARMoeForCausalLM",), architecture="Qwen3Moe")
"""The same with a mixture of experts."""
sdar_layout = SDAR_RELEASE.layout


FAST_MASK, FAST_END, FAST_BLOCK = 151665, 151645, 32
"""Of the release, whose configuration does not say them."""
FAST_SPECIAL = ("<|im_start|>", "<|endoftext|>", "|<MASK>|", "<|im_end|>")
"""Tokens beyond those of text; the second ends a text, the third is the mask."""


class FastDLLMv2(BlockCausal):
    """A Fast-dLLM v2 checkpoint as a `BlockDenoiser`: the state at i scores token i + 1.

    The first column of a call has no state before it there and reads its own, as in the public
    code; what is drawn there needs a call that begins further left.
    """

    shifted = True

    def _predicting(self, position: Tensor) -> Tensor:
        return (position - 1).clamp(min=0)


FAST_RELEASE = Release(
    family="fast-dllm-v2",
    model_type="Fast_dLLM_Qwen",
    architectures=("Fast_dLLM_QwenForCausalLM",),
    architecture="Qwen2",
    denoiser=FastDLLMv2,
    shape=lambda config: BlockShape(
        **block_fields(config), block_length=config.count("bd_size", FAST_BLOCK)
    ),
    sizes=lambda shape: decoder_sizes(shape, shape.head_dim, bias=True),
    config=lambda shape, eos_id: {**written(shape, eos_id), "bd_size": FAST_BLOCK},
    variants=VARIANTS,
    defaults={"mask_token_id": FAST_MASK},
    special=FAST_SPECIAL,
    chat_template=CHATML,
    grown=lambda shape: BlockShape.of(shape, FAST_BLOCK),
    ends=(FAST_END,),
)
"""Fast-dLLM v2's public layout."""
load_fast_dllm_v2, fast_dllm_v2_layout = FAST_RELEASE.load, FAST_RELEASE.layout
