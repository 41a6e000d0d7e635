"""What a long loop tells while it works: a progress bar, a log, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from strop.spec import CellSpec


class Progress(Protocol):
    """Told what happens."""

    def expect(self, cells: Sequence[tuple[CellSpec | None, int]], what: str = "") -> None:
        """These cells come, with so many outputs to make of each; each will `start`."""

    def start(self, cell: CellSpec | None, total: int, done: int, what: str = "") -> None:
        """Work on a cell, or on a file of texts, begins; `done` of its `total` are on disk."""

    def advance(self, outputs: int, tokens: int) -> None:
        """Some outputs were finished."""

    def waiting(self, cell: CellSpec) -> None:
        """Another process is at work on a cell, and this one waits for it."""


class Silent(Progress):
    """No progress."""
