"""What ships with the package: tokenizers, embedded models, held-out text, frozen profiles.

Nothing here needs the network, and finding it does not need torch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from strop.errors import unknown_name

__all__ = [
    "CHECKPOINT",
    "EMBEDDED",
    "EVALUATOR",
    "HELD_OUT",
    "MODELS",
    "ROOT",
    "embedded_names",
    "embedded_path",
    "embedded_vocabulary",
]

ROOT = Path(str(resources.files("strop"))) / "assets"
MODELS = ROOT / "models"
"""One directory per embedded model, in the layout of a checkpoint."""
HELD_OUT = ROOT / "heldout" / "tales.jsonl"
"""Rows of documents that no embedded model, tokenizer or filter has seen."""

EMBEDDED = "embedded:"
CHECKPOINT = EMBEDDED + "tales"
"""The checkpoint of every command that is given none."""
EVALUATOR = EMBEDDED + "tales-ar"
"""The evaluator of every command that is given none."""


def embedded_names() -> list[str]:
    """The names that `embedded:NAME` knows."""
    if not MODELS.is_dir():
        return []
    return sorted(p.name for p in MODELS.iterdir() if (p / "config.json").is_file())


def embedded_path(source: str) -> Path:
    """The directory of `embedded:NAME`."""
    name = source.removeprefix(EMBEDDED)
    # Only names from the list: a name with a path in it finds nothing.
    if name not in embedded_names():
        raise unknown_name("embedded model", name, embedded_names())
    return MODELS / name


def embedded_vocabulary() -> int | None:
    """How many tokens the embedded models' tokenizer has, the mask left out."""
    config = MODELS / EVALUATOR.removeprefix(EMBEDDED) / "config.json"
    return int(json.loads(config.read_bytes())["vocab_size"]) if config.is_file() else None


@dataclass(frozen=True)
class KnownModel:
    """One public checkpoint."""

    name: str
    family: str
    source: str
    """Its hub id."""
    parameters: int
    """Of the network that generates."""
    licence: str
    """As far as it was looked up."""
    verified: str
    """What strop was compared with, and what not."""
    alias: str = ""
    """A short name that may stand for the source."""
    needs: str = ""
    """What is particular about it: how it is prompted, which classes of transformers it has."""


def known_models() -> list[KnownModel]:
    """All of them, in the order of the file."""
    content = json.loads((ROOT / "known-models.json").read_text())
    return [KnownModel(**fields) for fields in content]


def known_source(name: str) -> str | None:
    """The source that a short name stands for, in whatever case it is written."""
    name, at, revision = name.partition("@")
    sources = [
        model.source for model in known_models() if name.casefold() == model.alias.casefold()
    ]
    return sources[0] + at + revision if name and sources else None
