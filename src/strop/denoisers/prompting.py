"""Prompts before a model: what its tokenizer says of them, and its canvases.

Keys and values by column, behind the interface of transformers' caches.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from strop.denoisers.base import Model
from strop.errors import UserError
from strop.prompts.canvas import Canvases, PromptReader, resolve
from strop.prompts.chat import ChatTemplate
from strop.prompts.rows import Bos, PromptSet, Shots, Template

# ------------------------------------------------------------------------------------------ slots


class Slots(Cache):
    """Keys and values of every layer for the columns of one canvas.

    The first pass fills the slots. Later passes write theirs over those of the window that
    `place` names; the network then reads all slots, or those up to the window's end. Keys are kept
    after their rotation by absolute positions, which is the same as rotating them when read.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._start: int | None = None
        self._cut = False
        self.reach: int | None = None
        """How many columns the next pass can see; None before the first one."""

    def place(self, start: int, width: int, *, cut: bool) -> None:
        """The next pass is a window at `start`.

        A `cut` memory ends where the window begins and is left as it is; the window's own keys
        and values follow it.
        """
        self._start, self._cut = start, cut
        self.reach = start + width if cut else self._keys[0].shape[-2]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Take a layer's new keys and values [B, H, w, D]; return what its queries see."""
        if self._start is None:
            self._keys.append(key_states)
            self._values.append(value_states)
            return key_states, value_states
        keys, values = self._keys[layer_idx], self._values[layer_idx]
        start = self._start
        if self._cut:
            return (
                torch.cat([keys[..., :start, :], key_states], dim=-2),
                torch.cat([values[..., :start, :], value_states], dim=-2),
            )
        end = start + key_states.shape[-2]
        keys[..., start:end, :] = key_states
        values[..., start:end, :] = value_states
        return keys, values

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        """Columns before the window; positions are given, so nothing counts from here."""
        return self._start or 0

    def get_query_offset(self, layer_idx: int = 0) -> int:
        """The column of the window's first query."""
        return self.get_seq_length(layer_idx)

    def get_mask_sizes(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """How many columns a mask covers, and its first."""
        if self.reach is None:
            length = args[0] if args else next(iter(kwargs.values()))
            # A number, or in older releases the columns themselves.
            return (length if isinstance(length, int) else int(length.shape[0])), 0
        return self.reach, 0


class GrowingSlots(Cache):
    """Keys and values of the columns that are finished, followed by those of one pass.

    `keep` columns of both are kept for the next pass. The memory that it began with stays as it is.
    """

    def __init__(self, before: GrowingSlots | None, keep: int) -> None:
        super().__init__(layers=[])
        self._before, self._keep = before, keep
        self._kept: list[tuple[Tensor, ...]] = []
        self.columns = keep
        """How many columns are kept."""

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Take a layer's new keys and values [B, H, n, D]; return what its queries see."""
        new: tuple[Tensor, ...] = (key_states, value_states)
        old = None
        if self._before is not None and self._before.columns:
            old = self._before._kept[layer_idx]
            new = tuple(torch.cat(pair, dim=-2) for pair in zip(old, new, strict=True))
        if old is not None and self._keep == old[0].shape[-2]:
            self._kept.append(old)
        else:
            self._kept.append(tuple(one[..., : self._keep, :] for one in new))
        return new[0], new[1]

    def of(self, rows: Tensor) -> GrowingSlots:
        """The memory of some of the sequences."""
        found = GrowingSlots(None, self.columns)
        found._kept = [tuple(one[rows.to(one.device)] for one in pair) for pair in self._kept]
        return found

    def done(self) -> None:
        """Let go of what the pass began with."""
        self._before = None

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        """Columns before the pass; positions and masks are given, so nothing counts from here."""
        return 0 if self._before is None else self._before.columns


# -------------------------------------------------------------------------------------- prompting

Prompts = PromptSet | Canvases | str | os.PathLike[str] | Sequence[str | Mapping[str, Any]]
"""What callers may say: a file, a set, texts or rows, or canvases that are ready."""


def reader_of(model: Model) -> PromptReader:
    """What must be known of a model to lay prompts before it."""
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
            for part in one.stretches
        ]
        for one in canvases.prompts
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
    most = max(t for one in canvases.prompts for t in one.given if t is not None)
    if canvases.positions > model.length or most >= model.vocab_size:
        raise UserError(
            "The canvases do not fit the model.",
            where=model.source,
            got=f"{canvases.positions} positions, ids up to {most}",
            expected=f"at most {model.length} positions, ids below {model.vocab_size}",
        )
