"""How an evaluator is loaded, for processes that have not loaded it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EvaluatorRecipe:
    """How an evaluator was loaded, so that another process can load it too: all but the device."""

    name: str
    """A whole path, a hub id, `embedded:NAME`."""
    revision: str | None
    dtype: str
