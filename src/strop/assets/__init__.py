"""What ships with the package: tokenizers, embedded models, held-out text, frozen profiles.

Nothing here needs the network, and finding it does not need torch.
"""

from __future__ import annotations

import json
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
