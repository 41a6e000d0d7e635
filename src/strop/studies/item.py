"""What a table or figure of the paper needs to be run: an `Item`, its `Setup`, its `Outcome`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strop.progress import Progress

__all__ = ["Item", "Outcome", "Setup"]


@dataclass(frozen=True)
class Setup:
    """What a study is run with; an item fills in what the user leaves open."""

    checkpoints: tuple[str, ...]
    """Empty for a smoke run of a study that makes its own."""
    evaluator: str
    steps: tuple[int, ...]
    n: int
    out: Path
    seed: int = 0
    device: str = "auto"
    progress: Progress | None = None


@dataclass(frozen=True)
class Outcome:
    """Paper and measured side by side."""

    keys: tuple[str, ...]
    """The columns that name a row."""
    rows: list[dict[str, Any]]
    """With the keys, `paper` and `measured`; either may be None."""
    unit: str
    document: dict[str, Any]
    """Everything that was measured."""
    protocol: Sequence[str] = ()
    """What differs from the paper's protocol, or may."""


@dataclass(frozen=True)
class Item:
    """One table or figure."""

    tables: tuple[str, ...]
    """Its names in `assets/paper`."""
    what: str
    needs: str
    """What a full run takes."""
    checkpoints: tuple[str | None, ...]
    """Default sources; None where the paper's checkpoint was never released."""
    smoke_checkpoints: tuple[str, ...]
    """Empty where the study makes its own."""
    evaluator: str
    steps: tuple[int, ...]
    n: int
    run: Callable[[Setup], Outcome]
    smoke_steps: tuple[int, ...] = (4, 16, 64)
    smoke_n: int = 32
