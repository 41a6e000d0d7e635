"""Figures on disk: complete or absent, and the same bytes for the same numbers."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from strop.disk import write
from strop.theory.figures.style import STYLE

__all__ = ["write_figure"]


def write_figure(draw: Callable[[], Figure], files: Sequence[Path]) -> None:
    """Draw in the house style and write every file; a file's ending is its kind."""
    with matplotlib.rc_context(STYLE):
        figure = draw()
        for path in files:
            content = io.BytesIO()
            kind = path.suffix[1:]
            # A date in the file would make equal figures differ.
            figure.savefig(content, format=kind, metadata={"Date": None} if kind == "svg" else None)
            write(path, content.getvalue())
