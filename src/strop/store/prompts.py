"""The prompts that a run's outputs answer, kept once: nobody needs the file they came from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from strop.disk import disk, write
from strop.errors import UserError
from strop.prompts.canvas import Canvas, Canvases
from strop.spec.generator import PromptSpec
from strop.store.folder import FORMAT, PROMPTS, damaged, read_json

Pieces = Sequence[str | int]
"""Texts of what is given, and sizes of the gaps between them, in order."""


@dataclass(frozen=True)
class KeptPrompts:
    """Canvases, and the texts of what they give."""

    canvases: Canvases
    pieces: Sequence[Pieces | None]
    """Per prompt; None where no tokenizer was known."""

    def pieces_of(self, output: int) -> Pieces | None:
        """Of the prompt that an output answers."""
        return self.pieces[output % len(self.pieces)]


def keep_prompts(
    run: Path, canvases: Canvases, pieces: Sequence[Sequence[str | int] | None]
) -> KeptPrompts:
    """Keep prompts in a run directory; what is there already, with its names, stays."""
    path = _path(run, canvases.spec)
    with disk(path):
        there = path.exists()
    if not there:
        rows = [
            {"id": one.id, "ids": one.given, "pieces": texts, "reference": one.reference}
            for one, texts in zip(canvases.prompts, pieces, strict=True)
        ]
        with disk(path):
            path.parent.mkdir(exist_ok=True)
        content = {"format": FORMAT, "sha256": canvases.spec.sha256, "prompts": rows}
        # Compact: a line per id would be a long file.
        write(path, (json.dumps(content, separators=(",", ":")) + "\n").encode())
    return read_prompts(run, canvases.spec)


def read_prompts(run: Path, spec: PromptSpec) -> KeptPrompts:
    """The prompts of a cell, if they are those that its spec names."""
    path = _path(run, spec)
    try:
        rows = read_json(path, "prompts", list)["prompts"]
        prompts = tuple(Canvas(row["id"], tuple(row["ids"]), row["reference"]) for row in rows)
        kept = KeptPrompts(Canvases(prompts), [row["pieces"] for row in rows])
        same = kept.canvases.spec == spec
    except UserError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, error) from None
    if not same:
        raise damaged(path, "its prompts are not those of the cells")
    return kept


def _path(run: Path, spec: PromptSpec) -> Path:
    return run / PROMPTS / f"{spec.sha256[:16]}.json"
