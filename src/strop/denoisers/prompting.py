"""Prompts before a model: what its tokenizer says of them, and its canvases."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from strop.denoisers.base import Model
from strop.errors import UserError
from strop.prompts.canvas import Canvases, PromptReader, resolve
from strop.prompts.chat import ChatTemplate
from strop.prompts.rows import Bos, PromptSet, Shots, Template

Prompts = PromptSet | Canvases | str | os.PathLike[str] | Sequence[str | Mapping[str, Any]]
"""Prompts as callers may give them: a file, a set, texts or rows, or ready canvases."""


def reader_of(model: Model) -> PromptReader:
    """What prompts need to know about a model."""
    codec = model.codec
    return PromptReader(
        vocab_size=model.vocab_size,
        mask_id=model.mask_id,
        room=model.length,
        codec=codec,
        opening=() if codec is None else codec.opening,
        bos_id=None if codec is None else codec.bos_id,
    )


def canvases_of(
    model: Model,
    prompts: Prompts,
    *,
    length: int | None = None,
    chat: bool = False,
    shots: PromptSet | str | os.PathLike[str] | None = None,
    bos: Bos = "tokenizer",
) -> Canvases:
    """Prompts as this model meets them; see `strop.prompts.resolve`."""
    if isinstance(prompts, Canvases):
        _check_ready(prompts, model, length, plain=not chat and shots is None)
        return prompts
    codec = model.codec
    template = Template(
        shots=None if shots is None else Shots.of(_read(shots)),
        chat=ChatTemplate.beside(None if codec is None else codec.directory)
        if chat and model.spec.family != "served"  # a server has a template of its own
        else None,
        bos=bos,
    )
    return resolve(_read(prompts), reader_of(model), template, length)


def pieces_of(model: Model, canvases: Canvases) -> list[list[str | int] | None]:
    """Per prompt the texts of what is given, with the sizes of the gaps between them.

    None where no tokenizer is known.
    """
    codec = model.codec
    if codec is None:
        return [None] * len(canvases.prompts)
    return [
        [
            len(part) if part[0] is None else codec.decode([t for t in part if t is not None])
            for part in canvas.stretches
        ]
        for canvas in canvases.prompts
    ]


def _read(prompts: Any) -> PromptSet:
    if isinstance(prompts, PromptSet):
        return prompts
    if isinstance(prompts, (str, os.PathLike)):
        return PromptSet.read(Path(prompts))
    return PromptSet.of(prompts)


def _check_ready(canvases: Canvases, model: Model, length: int | None, *, plain: bool) -> None:
    """Canvases came from a reader already: what can differ is the model and the length."""
    if not plain or (length is not None and length != canvases.length):
        raise UserError(
            "The prompts are canvases already: nothing is added to them.",
            where="`prompts`",
            got=f"canvases of at most {canvases.length} open positions",
            fix="leave out `length`, `chat` and `shots`, or pass the prompts themselves",
        )
    most = max(t for canvas in canvases.prompts for t in canvas.given if t is not None)
    if canvases.positions > model.length or most >= model.vocab_size:
        raise UserError(
            "The canvases do not fit the model.",
            where=model.source,
            got=f"{canvases.positions} positions, ids up to {most}",
            expected=f"at most {model.length} positions, ids below {model.vocab_size}",
        )
