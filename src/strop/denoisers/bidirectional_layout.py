"""LLaDA's and Dream's public layouts, for writing tiny checkpoints: sizes, tokenizer, template."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from strop.assets import CHECKPOINT, embedded_path
from strop.checkpoints.config import DiTShape
from strop.checkpoints.layout import Layout
from strop.checkpoints.transformer import TransformerShape, checked_shape
from strop.denoisers.bidirectional_load import Release
from strop.denoisers.tokenizer import TextCodec

END = "<|endoftext|>"
BEGIN, MASK = 0, 2
"""Where these stand among a family's special tokens."""


def transformer_layout(
    shape: DiTShape,
    release: Release,
    config: Callable[[TransformerShape, int], dict[str, Any]],
    special: Sequence[str],
    chat_template: str,
) -> Layout:
    """The embedded model's tokenizer with a family's special tokens, and a network of that size.

    With a vocabulary too small for the tokenizer there are ids only.
    """
    content, specials = _tokenizer(special)
    known = len(content["model"]["vocab"]) + len(specials) - 1
    texts = shape.vocab_size >= known
    heads = shape.n_heads
    qwen = release.architecture == "Qwen2"
    sized = checked_shape(
        TransformerShape(
            vocab_size=shape.vocab_size,
            length=shape.length,
            width=shape.hidden_dim,
            n_blocks=shape.n_blocks,
            n_heads=heads,
            n_kv_heads=heads // 2 if qwen and heads % 2 == 0 else heads,
            mlp_width=3 * shape.hidden_dim,
            norm_eps=1e-6 if qwen else 1e-5,
            rope_theta=1e6 if qwen else 5e5,
            mask_id=specials[special[MASK]] if texts else shape.mask_id,
        ),
        Path("config.json"),
    )
    sizes = release.sizes(sized)
    return Layout(
        config(sized, specials[END] if texts else 0),
        sizes,
        texts=_files(content, special, chat_template, one_file=not qwen) if texts else {},
        # A trained model never predicts the mask. The head is the last of the file's matrices.
        silent={list(sizes)[-1]: sized.mask_id},
    )


def _tokenizer(special: Sequence[str]) -> tuple[dict[str, Any], dict[str, int]]:
    """The embedded tokenizer with special tokens, and the ids of those."""
    content = json.loads(TextCodec.from_directory(embedded_path(CHECKPOINT)).to_json())
    vocabulary = content["model"]["vocab"]
    specials = {END: vocabulary[END]}
    for token in special:
        specials.setdefault(token, len(vocabulary) + len(specials) - 1)
    common = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    content["added_tokens"] = [
        {"id": number, "content": token, **common, "special": True}
        for token, number in sorted(specials.items(), key=lambda item: item[1])
    ]
    return content, specials


def _files(
    content: dict[str, Any], special: Sequence[str], chat_template: str, *, one_file: bool
) -> dict[str, str]:
    """The tokenizer in the files of the family's release: one file, or Qwen2's pairs."""
    added = content["added_tokens"]
    said = {
        "added_tokens_decoder": {str(one["id"]): dict(list(one.items())[1:]) for one in added},
        "bos_token": special[BEGIN],
        "eos_token": END,
        "pad_token": END,
        "chat_template": chat_template,
        "clean_up_tokenization_spaces": False,
    }
    if one_file:
        config = {**said, "tokenizer_class": "PreTrainedTokenizerFast"}
        files = {"tokenizer.json": json.dumps(content, ensure_ascii=False)}
    else:
        config = {**said, "mask_token": special[MASK], "tokenizer_class": "Qwen2Tokenizer"}
        pairs = [" ".join(p) if isinstance(p, list) else p for p in content["model"]["merges"]]
        files = {
            "vocab.json": json.dumps(content["model"]["vocab"], ensure_ascii=False),
            "merges.txt": "\n".join(["#version: 0.2", *pairs]) + "\n",
        }
    return {**files, "tokenizer_config.json": json.dumps(config, indent=2)}
