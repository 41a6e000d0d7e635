"""Figures of studies, rendered once for each kind: most of a small study's time is its figure's.

The second and later figures of a kind are put together from their data as ever, which is what can
go wrong with other data, and get the files of the first. Whoever looks into the file of a figure
calls `strop.figures.write_figure` itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib

from strop import figures
from strop.disk import write

_rendered: dict[str, bytes] = {}
"""By the file's name, which is the study's and the kind of file."""


@contextlib.contextmanager
def rendered_once() -> Iterator[None]:
    """For a while, only the first figure of every kind is rendered."""
    write_figure = figures.write_figure

    def write_first(draw: Callable[[], Any], files: Sequence[Path]) -> None:
        if all(file.name in _rendered for file in files):
            with matplotlib.rc_context(figures.STYLE):
                draw()
            for file in files:
                write(file, _rendered[file.name])
        else:
            write_figure(draw, files)
            _rendered.update({file.name: file.read_bytes() for file in files})

    figures.write_figure = write_first
    try:
        yield
    finally:
        figures.write_figure = write_figure
