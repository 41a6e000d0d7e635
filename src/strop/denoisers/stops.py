"""The tokens that end a text or a turn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from strop.checkpoints.files import read_json_object
from strop.denoisers.base import Model
from strop.denoisers.tokenizer import TextCodec
from strop.prompts.chat import special_tokens

ENDS_OF_TURN = ("<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<turn|>")
"""What chat templates close a turn with: LLaDA's and Llama's, Dream's and Qwen's, Gemma's."""
ENDS = ("<|endoftext|>", *ENDS_OF_TURN, "<|end_of_text|>", "<eos>", "</s>")
"""Tokens that end a text or a turn wherever a vocabulary has them."""
CONFIGS = ("config.json", "generation_config.json")
SPECIAL = re.compile(r"<.+>|\[.+\]")


def stop_ids(ends: Iterable[int | None], codec: TextCodec | None) -> tuple[int, ...]:
    """The ends of a text that a configuration names, then those of a turn, each once."""
    known = [] if codec is None else [codec.id_of(token) for token in ENDS_OF_TURN]
    return tuple(dict.fromkeys(one for one in (*ends, *known) if one is not None))


def end_ids(model: Model) -> tuple[int, ...]:
    """The tokens after which nothing belongs to a response, as files and vocabulary tell them."""
    codec = model.codec
    if codec is None:
        return ()
    found: list[Any] = [*getattr(model, "stop_ids", ())]
    names = ENDS
    if (directory := codec.directory) is not None:
        names = (*(v for k, v in special_tokens(directory).items() if k == "eos_token"), *ENDS)
        for path in (directory / name for name in CONFIGS):
            said = read_json_object(path).get("eos_token_id") if path.is_file() else None
            found += said if isinstance(said, list) else [said]
    found += [codec.id_of(name) for name in names]
    known = [one for one in found if type(one) is int and 0 <= one < model.vocab_size]
    # A response may be cut where the token's text stands, so a word of the language will not do.
    return tuple(one for one in dict.fromkeys(known) if SPECIAL.fullmatch(codec.decode([one])))


def up_to_end(ids: Sequence[int], ends: Iterable[int]) -> list[int]:
    """A response before the first token that ends it; models here write on after it."""
    stops = frozenset(ends)
    end = next((place for place, token in enumerate(ids) if token in stops), len(ids))
    return [int(token) for token in ids[:end]]
