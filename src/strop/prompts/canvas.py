"""Prompts as a model meets them: rows of token ids with open positions."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Protocol

from strop.errors import UserError, whole_number
from strop.prompts.rows import Prompt, PromptSet, Template
from strop.runtime import MOST_LENGTH
from strop.spec.generator import PromptSpec


class Codec(Protocol):
    """A tokenizer, as `strop.denoisers.tokenizer.TextCodec` is one."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text, special tokens written in it recognised, none added."""
        ...

    def decode(self, ids: list[int]) -> str:
        """The text of ids, special tokens included."""
        ...


@dataclass(frozen=True)
class PromptReader:
    """What prompts need to know about a model."""

    vocab_size: int
    mask_id: int | None = None
    """No given token may be it; None for a model without one."""
    room: int | None = None
    """The most positions the model reads; None if nothing limits them."""
    codec: Codec | None = None
    """None: the model has no tokenizer and takes ids only."""
    opening: tuple[int, ...] = ()
    """What the tokenizer's own post-processor puts before a text."""
    bos_id: int | None = None
    """The tokenizer's beginning-of-text token, for a template that always wants it."""


@dataclass(frozen=True)
class Canvas:
    """One prompt: what stands, and where tokens are to come."""

    id: str
    given: tuple[int | None, ...]
    """Token ids, None at open positions."""
    reference: str | None = None

    @cached_property
    def open(self) -> tuple[int, ...]:
        """The positions of the response, from left to right."""
        return tuple(i for i, token in enumerate(self.given) if token is None)

    @property
    def stretches(self) -> list[list[int | None]]:
        """Given tokens and gaps in turn: each stretch is one or the other, whole."""
        runs = groupby(self.given, key=lambda token: token is None)
        return [list(run) for _, run in runs]

    @property
    def is_prefix(self) -> bool:
        """Whether the response follows everything that is given."""
        return self.open == tuple(range(len(self.given) - len(self.open), len(self.given)))

    def filled(self, response: Sequence[int]) -> tuple[int, ...]:
        """The whole text with a response in the open positions."""
        if len(response) != len(self.open):
            raise UserError(
                "The response does not fit the prompt's open positions.",
                where=f"prompt {self.id!r}",
                got=f"{len(response)} tokens",
                expected=f"{len(self.open)} tokens",
            )
        tokens = iter(response)
        return tuple(int(next(tokens)) if token is None else token for token in self.given)


@dataclass(frozen=True)
class Canvases:
    """All prompts of a cell, in the order that decides which output answers which."""

    prompts: tuple[Canvas, ...]

    @cached_property
    def spec(self) -> PromptSpec:
        """Their identity: nothing but the ids, the open positions and the order."""
        content = json.dumps([canvas.given for canvas in self.prompts], separators=(",", ":"))
        prefix = all(canvas.is_prefix for canvas in self.prompts)
        return PromptSpec(
            sha256=hashlib.sha256(content.encode()).hexdigest(),
            count=len(self.prompts),
            form="prefix" if prefix else "gaps",
        )

    @property
    def length(self) -> int:
        """The most open positions that one of them has."""
        return max(len(canvas.open) for canvas in self.prompts)

    @property
    def positions(self) -> int:
        """The most positions, given and open, that one of them has."""
        return max(len(canvas.given) for canvas in self.prompts)

    def prompt_of(self, output: int) -> Canvas:
        """What output number i answers: prompt i mod P, however many outputs there are."""
        return self.prompts[output % len(self.prompts)]

    def outputs(self, per_prompt: int) -> int:
        """How many outputs make `per_prompt` for each; a larger number adds to a smaller one's."""
        return whole_number("per_prompt", per_prompt, 1, 2**32) * len(self.prompts)


def resolve(
    prompts: PromptSet,
    reader: PromptReader,
    template: Template | None = None,
    length: int | None = None,
) -> Canvases:
    """Turn prompts into canvases.

    `length` is how many open positions follow a prompt that has no gaps of its own; without it
    every prompt must have gaps. A `length` that counts for no prompt is refused.
    """
    if length is not None:
        length = whole_number("length", length, 1, MOST_LENGTH + 1)
    template = Template() if template is None else template
    counted = [_canvas(prompt, reader, template, length) for prompt in prompts.prompts]
    if length is not None and counted and all(gaps for _, gaps in counted):
        raise UserError(
            "Every prompt has gaps, but a length for a response after it is given too.",
            where=prompts.prompts[0].where,
            got=f"{counted[0][1]} open positions in the prompt, and `length` {length}",
            expected="one of the two; `length` is for prompts without gaps",
            fix="leave `length` out, or write \\[[...]] for a mark that belongs to the text (null "
            "in ids is always a gap)",
        )
    return Canvases(tuple(canvas for canvas, _ in counted))


def _canvas(
    prompt: Prompt, reader: PromptReader, template: Template, length: int | None
) -> tuple[Canvas, int]:
    """One prompt, and how many open positions it has of its own."""
    if prompt.text is None:
        if template.name != "plain":
            raise UserError(
                f"The template {template.name!r} needs a text, but the row has ids.",
                where=prompt.where,
                expected="a row with a text",
                fix="use the plain template, which leaves ids as they are",
            )
        tokens = list(prompt.ids or ())
        gaps, positions, pieces = tokens.count(None), len(tokens), ()
    else:
        pieces = template.pieces(prompt.text, prompt.where)
        gaps = positions = sum(piece for piece in pieces if isinstance(piece, int))
        tokens = []
    if not gaps and length is None:
        raise UserError(
            "The prompt leaves nothing to generate.",
            where=prompt.where,
            expected="gaps such as [[12]] in every prompt, or a length",
            fix="give `length`, the number of tokens after each prompt",
        )
    # Before the positions are made: a gap may be larger than any model.
    _check_room(positions, f"{positions} positions, {gaps} of them open", reader, prompt.where)
    if prompt.text is not None:
        tokens = list(_opening(reader, template))
        for piece in pieces:
            gap = isinstance(piece, int)
            tokens += [None] * piece if gap else _ids(piece, reader, prompt.where)
    _check_tokens(tokens, reader, prompt.where)
    canvas = tuple(tokens) if gaps else (*tokens, *[None] * (length or 0))
    empty = canvas.count(None)
    counts = f"{len(canvas) - empty} given + {empty} open positions"
    _check_room(len(canvas), counts, reader, prompt.where)
    return Canvas(prompt.id, canvas, prompt.reference), gaps


def _opening(reader: PromptReader, template: Template) -> tuple[int, ...]:
    if template.chat is not None or template.bos == "never":
        return ()
    if template.bos == "tokenizer":
        return reader.opening
    if reader.bos_id is None:
        raise UserError(
            "The tokenizer names no beginning-of-text token.",
            where="Template.bos",
            got="always",
            expected="a tokenizer_config.json with 'bos_token' beside the tokenizer",
            fix="use `bos=tokenizer`",
        )
    return (reader.bos_id,)


def _ids(text: str, reader: PromptReader, where: str) -> list[int]:
    if reader.codec is None:
        raise UserError(
            "The model has no tokenizer, and the prompt is a text.",
            where=where,
            expected='{"ids": [...]}',
            fix="give token ids, or put the model's tokenizer beside its weights",
        )
    try:
        ids = reader.codec.encode(text)
    except UserError as error:  # it does not know which row this is
        raise error.at(where) from error
    again = reader.codec.decode(ids)
    if _letters(again) != _letters(text):
        shorter = min(len(text), len(again))
        at = next((i for i in range(shorter) if text[i] != again[i]), shorter)
        raise UserError(
            "The tokenizer cannot write this prompt: it loses part of the text.",
            where=where,
            got=f"{text[at : at + 30]!r} comes back as {again[at : at + 30]!r}",
            fix="leave out what the model's vocabulary does not have, or give token ids",
        )
    return ids


def _letters(text: str) -> str:
    """What a tokenizer must keep: not blanks, case, accents or ligatures, which some normalise."""
    folded = unicodedata.normalize("NFKD", text).casefold()
    return "".join(c for c in folded if unicodedata.category(c) not in ("Mn", "Cc", "Cf", "Zs"))


def _check_tokens(tokens: Sequence[int | None], reader: PromptReader, where: str) -> None:
    for position, token in enumerate(tokens):
        if token is not None and not 0 <= token < reader.vocab_size:
            raise UserError(
                "The prompt holds a token that the model does not have.",
                where=where,
                got=f"id {token} at position {position}",
                expected=f"ids from 0 to {reader.vocab_size - 1}",
            )
        if token is not None and token == reader.mask_id:
            raise UserError(
                "The prompt gives the mask as a token.",
                where=where,
                got=f"id {token} at position {position}",
                expected="other tokens; masks are for the model to fill",
                fix="write [[1]] in a text, or null in ids, for a position to be filled in",
            )


def _check_room(positions: int, counts: str, reader: PromptReader, where: str) -> None:
    most = MOST_LENGTH if reader.room is None else reader.room
    if positions > most:
        raise UserError(
            "The prompt and its response do not fit into the model's length.",
            where=where,
            got=counts,
            expected=f"at most {most} positions",
            fix="shorten the prompt, its gaps, or `length`",
        )
