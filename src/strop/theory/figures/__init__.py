"""The theory figures, each as SVG and PNG, legible at the width of a paper's column."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from strop.errors import UserError
from strop.theory.figures import beyond, paper
from strop.theory.figures.style import STYLE

__all__ = ["FIGURES", "draw_all"]

FIGURES: dict[str, Callable[[int], Figure]] = {
    "mixture": lambda _seed: paper.mixture(),
    "loss-against-error": lambda _seed: paper.loss_against_error(),
    "best-temperature": paper.best_temperatures,
    "removed-error": beyond.removed_error,
    "path-bound": beyond.path_bound,
    "counterexamples": lambda _seed: beyond.counterexamples(),
}
"""Name of the file -> how it is drawn from a seed."""


def draw_all(folder: Path, seed: int = 0) -> list[Path]:
    """Write every figure into the folder and return the files."""
    files: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, draw in FIGURES.items():
            with matplotlib.rc_context(STYLE):
                figure = draw(seed)
                for kind in ("svg", "png"):
                    path = folder / f"{name}.{kind}"
                    # No date in the file: the same numbers give the same bytes.
                    metadata = {"Date": None} if kind == "svg" else None
                    figure.savefig(path, metadata=metadata)
                    files.append(path)
    except OSError as error:
        raise UserError(
            "The figures cannot be written.", where=folder, got=error.strerror
        ) from None
    return files
