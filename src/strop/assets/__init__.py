"""What ships with the package: tokenizers, embedded models, held-out texts, frozen profiles."""

from __future__ import annotations

from pathlib import Path

from strop.errors import unknown_name

__all__ = ["EMBEDDED", "HELD_OUT", "MODELS", "embedded_model", "embedded_names"]

ROOT = Path(__file__).parent

MODELS = ROOT / "models"
"""The embedded models, one directory each."""

HELD_OUT = ROOT / "heldout" / "tales.jsonl"
"""Rows that the embedded models never saw: JSON lines with `text` and `ids`."""

EMBEDDED = "embedded:"
"""How the name of a model that ships with the package begins."""


def embedded_names(root: Path = MODELS) -> list[str]:
    """The names that `embedded:NAME` knows."""
    if not root.is_dir():
        return []
    return sorted(p.name for p in root.iterdir() if p.is_dir() and p.name[0] not in "._")


def embedded_model(name: str, root: Path = MODELS) -> Path:
    """The directory of an embedded model, by its name without `embedded:`."""
    # Only names from the list: a name with a path in it finds nothing.
    if name not in embedded_names(root):
        raise unknown_name("embedded model", name, embedded_names(root))
    return root / name
