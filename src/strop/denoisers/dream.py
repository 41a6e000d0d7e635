"""Dream: a Qwen2 that looks both ways. The state at i predicts token i + 1."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from strop.checkpoints.files import has_tokenizer, sha256_of_all
from strop.checkpoints.foreign import load_foreign
from strop.checkpoints.transformer import TransformerShape
from strop.denoisers.bidirectional import Bidirectional
from strop.denoisers.bidirectional_load import Release
from strop.denoisers.pretrained import first_line
from strop.denoisers.qwen import CHATML, VARIANTS, decoder_sizes, shape_fields, written
from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError

CHAT_TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}"
    "{% endif %}" + CHATML
)
"""Turns as the Instruct model knows them."""

SPECIAL = ("<|beginoftext|>", "<|endoftext|>", "<|mask|>", "<|im_start|>", "<|im_end|>")
"""Tokens beyond those of text; the second ends a text, the third is the mask."""


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


def _codec(directory: Path, vocab_size: int) -> TextCodec | None:
    """The tokenizer as Dream ships it: Qwen2's pairs, special tokens in tokenizer_config.json."""
    if not has_tokenizer(directory):
        return None
    names = ("vocab.json", "merges.txt", "tokenizer_config.json")
    files = [directory / name for name in names if (directory / name).is_file()]
    fingerprint = sha256_of_all(files)
    try:
        tokenizer = load_foreign("Qwen2Tokenizer", directory)
    except UserError:
        raise
    except Exception as error:  # the library raises bare exceptions for damaged files
        raise UserError(
            "The tokenizer cannot be read.",
            where=files[0],
            got=first_line(error),
            fix="download the tokenizer's files again",
        ) from error
    return TextCodec(tokenizer.backend_tokenizer, fingerprint, files[0]).fitting(
        vocab_size, directory
    )


RELEASE = Release(
    family="dream",
    model_type="Dream",
    architectures=("DreamModel",),
    architecture="Qwen2",
    denoiser=Dream,
    shape=lambda fields: TransformerShape(**shape_fields(fields)),
    sizes=lambda shape: decoder_sizes(shape, shape.width // shape.n_heads, bias=True),
    config=written,
    variants={**VARIANTS, "use_mrope": False},
    special=SPECIAL,
    chat_template=CHAT_TEMPLATE,
    codec=_codec,
)
"""Dream's public layout."""
load, layout = RELEASE.load, RELEASE.layout
