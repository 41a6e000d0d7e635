"""The theory figures, each as SVG and PNG, legible at the width of a paper's column."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from strop.disk import disk
from strop.figures import write_figure
from strop.theory.figures import beyond, paper

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
    with disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for name, draw in FIGURES.items():
        mine = [folder / f"{name}.{kind}" for kind in ("svg", "png")]
        write_figure(partial(draw, seed), mine)
        files += mine
    return files
