"""Fast-dLLM v2: a Qwen2.5 that reads in blocks. The state at i scores token i + 1."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strop.checkpoints.transformer import BlockShape, Fields, TransformerShape, block_shape
from strop.denoisers.bidirectional_load import Release
from strop.denoisers.block import ShiftedBlockCausal
from strop.denoisers.qwen import CHATML, VARIANTS, decoder_sizes, shape_fields, written

MASK, END, BLOCK = 151665, 151645, 32
"""Of the release, whose configuration does not say them."""
SPECIAL = ("<|im_start|>", "<|endoftext|>", "|<MASK>|", "<|im_end|>")
"""Tokens beyond those of text; the second ends a text, the third is the mask."""


class FastDLLMv2(ShiftedBlockCausal):
    """A Fast-dLLM v2 checkpoint as a `BlockDenoiser`."""


def _config(shape: TransformerShape, eos_id: int) -> dict[str, Any]:
    """A checkpoint's config.json as Fast-dLLM v2 writes it; its ids are in its code."""
    return {**VARIANTS, **written(shape, eos_id), "bd_size": BLOCK}


def _shape(config: Mapping[str, Any], where: Path) -> BlockShape:
    said = Fields({"mask_token_id": MASK, **config}, where)
    said.only(VARIANTS)
    fields = shape_fields(said)
    head = said.count("head_dim", fields["width"] // fields["n_heads"])
    block = said.count("bd_size", BLOCK)
    return block_shape(BlockShape(**fields, head_dim=head, block_length=block), where)


RELEASE = Release(
    family="fast-dllm-v2",
    model_type="Fast_dLLM_Qwen",
    architectures=("Fast_dLLM_QwenForCausalLM",),
    architecture="Qwen2",
    denoiser=FastDLLMv2,
    shape=_shape,
    sizes=lambda shape: decoder_sizes(shape, shape.head_dim, bias=True),
    config=_config,
    special=SPECIAL,
    chat_template=CHATML,
    grown=lambda shape: BlockShape.of(shape, BLOCK),
    ends=(END,),
)
"""The public layout."""
load, layout = RELEASE.load, RELEASE.layout
