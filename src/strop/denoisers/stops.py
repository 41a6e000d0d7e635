"""The tokens that end a text or a turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from strop.denoisers.base import Model
from strop.denoisers.tokenizer import TextCodec

__all__ = ["ENDS_OF_TURN", "stop_ids", "up_to_stop"]

ENDS_OF_TURN = ("<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<turn|>")
"""What chat templates close a turn with: LLaDA's and Llama's, Dream's and Qwen's, Gemma's."""


def stop_ids(ends: Iterable[int | None], codec: TextCodec | None) -> tuple[int, ...]:
    """The ends of a text that a configuration names, then those of a turn, each once."""
    known = [] if codec is None else [codec.id_of(token) for token in ENDS_OF_TURN]
    return tuple(dict.fromkeys(one for one in (*ends, *known) if one is not None))


def up_to_stop(model: Model, ids: Sequence[int]) -> list[int]:
    """A response before the first token that ends it; models here write on after it."""
    stops = frozenset(getattr(model, "stop_ids", ()))
    end = next((place for place, token in enumerate(ids) if token in stops), len(ids))
    return [int(token) for token in ids[:end]]
