"""SDAR: a Qwen3 (or Qwen3's mixture of experts) that reads in blocks. Position i scores token i."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from strop.checkpoints.checkpoint import Located
from strop.checkpoints.files import read_json_object
from strop.checkpoints.transformer import BlockShape, Fields, TransformerShape, block_shape
from strop.denoisers.bidirectional_load import Release
from strop.denoisers.block import BlockCausal
from strop.denoisers.load import Loading
from strop.denoisers.pretrained import CONFIG, directory_of
from strop.denoisers.qwen import CHATML, VARIANTS, decoder_sizes, shape_fields, written

MASK, BLOCK = 151669, 4
"""Of the release, where a configuration does not say them."""
SPECIAL = ("<|im_start|>", "<|endoftext|>", "<|MASK|>", "<|im_end|>")
"""Tokens beyond those of text; the second ends a text, the third is the mask."""
_RELEASED = {**VARIANTS, "attention_bias": False, "mlp_only_layers": [], "decoder_sparse_step": 1}


class SDAR(BlockCausal):
    """An SDAR checkpoint as a `BlockDenoiser`."""


def load_sdar(found: Located, loading: Loading) -> SDAR:
    """Load the SDAR checkpoint at `found`; see `load_bidirectional`."""
    sparse = _experts(read_json_object(directory_of(found) / CONFIG)) is not None
    return (SPARSE if sparse else RELEASE).load(found, loading)


def _config(shape: TransformerShape, eos_id: int) -> dict[str, Any]:
    """A checkpoint's config.json as SDAR writes it."""
    return {
        **VARIANTS,
        **written(shape, eos_id),
        "attention_bias": False,
        "block_size": BLOCK,
        "head_dim": shape.width // shape.n_heads,
    }


def _experts(config: Mapping[str, Any]) -> Any:
    """How many, under the name of Qwen3's files or that of transformers' newer ones."""
    return config.get("num_experts", config.get("num_local_experts"))


def _shape(config: Mapping[str, Any], where: Path) -> BlockShape:
    said = Fields({"mask_token_id": MASK, **config, "num_experts": _experts(config)}, where)
    said.only(_RELEASED)
    fields = shape_fields(said)
    experts = 0 if _experts(config) is None else said.count("num_experts")
    return block_shape(
        BlockShape(
            **fields,
            head_dim=said.count("head_dim", fields["width"] // fields["n_heads"]),
            block_length=said.count("block_size", said.count("block_length", BLOCK)),
            n_experts=experts,
            experts_used=said.count("num_experts_per_tok") if experts else 0,
            expert_width=said.count("moe_intermediate_size") if experts else 0,
            norm_topk=experts > 0 and said.flag("norm_topk_prob"),
        ),
        where,
    )


def _sizes(shape: BlockShape) -> dict[str, tuple[int, ...]]:
    experts = (shape.n_experts, shape.expert_width)
    return decoder_sizes(shape, shape.head_dim, norms=True, experts=experts)


def _network(shape: BlockShape) -> dict[str, Any]:
    if not shape.n_experts:
        return {"head_dim": shape.head_dim}
    return {
        "head_dim": shape.head_dim,
        "num_experts": shape.n_experts,
        "num_experts_per_tok": shape.experts_used,
        "moe_intermediate_size": shape.expert_width,
        "norm_topk_prob": shape.norm_topk,
    }


RELEASE = Release(
    family="sdar",
    model_type="sdar",
    architectures=("SDARForCausalLM",),
    architecture="Qwen3",
    denoiser=SDAR,
    shape=_shape,
    sizes=_sizes,
    config=_config,
    special=SPECIAL,
    chat_template=CHATML,
    network=_network,
    grown=lambda shape: BlockShape.of(shape, BLOCK),
)
"""The public layout."""
SPARSE = replace(RELEASE, architectures=("SDARMoeForCausalLM",), architecture="Qwen3Moe")
"""The same with a mixture of experts."""
layout = RELEASE.layout
