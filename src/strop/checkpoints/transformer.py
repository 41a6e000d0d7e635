"""Checkpoints of plain transformers (LLaDA, Dream): shape, configuration, stored sizes.

Everything is compared before a network is made, from the configuration and the headers of the
weight files alone: a wrong number costs a message, not the memory it asks for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from strop.checkpoints.checkpoint import damaged
from strop.checkpoints.config import Sizes, tensor_differences
from strop.checkpoints.files import opening
from strop.errors import UserError


@dataclass(frozen=True)
class TransformerShape:
    """Everything that fixes the network's tensors and what it computes."""

    vocab_size: int
    """Rows of the embedding, the mask and reserved ids included."""
    length: int
    """The longest sequence that the configuration allows."""
    width: int
    n_blocks: int
    n_heads: int
    n_kv_heads: int
    """Heads of keys and values; several query heads may share one."""
    mlp_width: int
    norm_eps: float
    rope_theta: float
    mask_id: int
    tied: bool = False
    """Whether the output head is the embedding."""


@dataclass(frozen=True)
class BlockShape(TransformerShape):
    """The shape of a network that reads in blocks, with or without a mixture of experts."""

    head_dim: int = 0
    block_length: int = 1
    """The block that it was trained with."""
    n_experts: int = 0
    """In a layer; 0: none has any."""
    experts_used: int = 0
    expert_width: int = 0
    norm_topk: bool = True
    """Whether the weights of the experts that are used are made to sum to one."""

    @classmethod
    def of(cls, shape: TransformerShape, block_length: int) -> BlockShape:
        """A plain network in blocks."""
        plain = {name: getattr(shape, name) for name in TransformerShape.__dataclass_fields__}
        return cls(**plain, head_dim=shape.width // shape.n_heads, block_length=block_length)


FIELDS = {
    "vocab_size": "vocab_size",
    "length": "max_position_embeddings",
    "width": "hidden_size",
    "n_blocks": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "mlp_width": "intermediate_size",
    "norm_eps": "rms_norm_eps",
    "tied": "tie_word_embeddings",
}
"""What the configurations of transformers' decoders call the fields of a shape."""


def decoder_config(shape: TransformerShape) -> dict[str, Any]:
    """The fields of a shape under the names of transformers."""
    return {foreign_name: getattr(shape, field) for field, foreign_name in FIELDS.items()}


Shape = TypeVar("Shape", bound=TransformerShape)


class Fields:
    """The fields of one config.json, each checked for its kind when it is read."""

    def __init__(self, content: Mapping[str, Any], where: Path) -> None:
        self.content, self.where = content, where

    def count(self, name: str, default: int | None = None, most: int = 2**31) -> int:
        """A whole number from 1 to `most`; null and absent mean the default."""
        value = self._value(name, default)
        if type(value) is not int or not 1 <= value <= most:
            raise self._wrong(name, value, f"a whole number from 1 to {most}")
        return value

    def token(self, name: str, vocab_size: int) -> int:
        """An id of the vocabulary."""
        value = self._value(name, None)
        if type(value) is not int or not 0 <= value < vocab_size:
            raise self._wrong(name, value, f"a token id from 0 to {vocab_size - 1}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A field that is a positive number."""
        value = self._value(name, default)
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not good or not (math.isfinite(value) and value > 0):
            raise self._wrong(name, value, "a positive number")
        return float(value)

    def flag(self, name: str) -> bool:
        """True or false; absent is false."""
        value = self._value(name, False)
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def only(self, allowed: Mapping[str, Any]) -> None:
        """Refuse unsupported variants of the architecture; an absent field is fine."""
        for name, value in allowed.items():
            stored = self.content.get(name)
            if stored is not None and stored != value:
                raise self._wrong(name, stored, f"{value!r}, the variant that was released")

    def _value(self, name: str, default: Any) -> Any:
        value = self.content.get(name)
        return default if value is None else value

    def _wrong(self, name: str, value: Any, expected: str) -> UserError:
        return UserError(
            f"The configuration's {name!r} is missing."
            if value is None
            else f"The configuration's {name!r} has a value that cannot be used.",
            where=self.where,
            got=None if value is None else repr(value)[:80],
            expected=expected,
            fix="put the configuration that belongs to the weights beside them",
        )


def checked_shape(shape: Shape, where: Path) -> Shape:
    """Refuse heads and experts that do not fit; block networks set the size of a head."""
    head = shape.head_dim if isinstance(shape, BlockShape) else shape.width / shape.n_heads
    if head % 2 or shape.n_heads % shape.n_kv_heads:
        raise UserError(
            "The attention heads do not fit the network.",
            where=where,
            got=f"{shape.n_heads} heads of {head:g}, {shape.n_kv_heads} of keys and values, "
            f"width {shape.width}",
            expected="heads of an even size that split evenly over those of keys and values",
            fix="correct config.json",
        )
    if isinstance(shape, BlockShape) and shape.experts_used > shape.n_experts:
        raise UserError(
            "The configuration uses more experts than there are.",
            where=where,
            got=f"{shape.experts_used} of {shape.n_experts}",
            fix="correct config.json",
        )
    return shape


def stored_sizes(files: Iterable[Path]) -> Sizes:
    """Every tensor's size, from the headers of the weight files."""
    from safetensors import SafetensorError, safe_open

    sizes: Sizes = {}
    for file in files:
        with opening(file), file.open("rb"):
            try:
                with safe_open(file, framework="pt") as stored:
                    for key in stored.keys():  # noqa: SIM118, it is no mapping
                        sizes[key] = tuple(stored.get_slice(key).get_shape())
            except SafetensorError as error:
                raise damaged(file, error) from error
    return sizes


def check_sizes(stored: Sizes, expected: Sizes, where: Path) -> None:
    """Refuse weights whose tensors are not those that the configuration asks for."""
    different = tensor_differences(stored, expected)
    if different:
        raise UserError(
            "The checkpoint's tensors are not those that its configuration asks for.",
            where=where,
            got=different,
            expected=f"{len(expected)} tensors",
            fix="check that all files are there and that config.json belongs to them",
        )
