"""The checkpoints that are known by name: what they are, and what was checked about them."""

from __future__ import annotations

import json
from dataclasses import dataclass

from strop.assets import ROOT


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
    return [KnownModel(**one) for one in content]


def known_source(name: str) -> str | None:
    """The source that a short name stands for, in whatever case it is written."""
    name, at, revision = name.partition("@")
    found = [one.source for one in known_models() if name.casefold() == one.alias.casefold()]
    return found[0] + at + revision if name and found else None
