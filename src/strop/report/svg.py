"""Matplotlib figures for a page: SVG that takes its colours and type from the page's style.

A figure is drawn once in the colours below. Inside the page each becomes a CSS variable, so that
the same drawing serves light and dark; beside the page it is saved as it was drawn, on white.
"""

from __future__ import annotations

import io
import re
import warnings
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from strop.theory.figures.style import BLUE, GREEN, GREY, ORANGE, PURPLE, STYLE

__all__ = ["FILE_STYLE", "INK", "PAPER", "as_file", "inline"]

INK, PAPER = "#24282e", "#fffffe"
"""Not quite black and white: both must be told from what matplotlib writes by itself."""

VARIABLES = {
    INK: "--ink",
    PAPER: "--paper",
    BLUE: "--blue",
    ORANGE: "--orange",
    GREEN: "--green",
    PURPLE: "--purple",
    GREY: "--grey",
}

FILE_STYLE: Any = {
    **STYLE,
    "text.color": INK,
    "text.parse_math": False,  # labels can hold anything, a dollar sign too
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.titlelocation": "left",
}
PAGE_STYLE: Any = {**FILE_STYLE, "svg.fonttype": "none"}


def inline(figure: Figure, name: str, label: str) -> str:
    """The figure as an `<svg>` element; `name` keeps its ids apart from those of other figures."""
    text = _saved(figure, PAGE_STYLE, "svg").decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)  # it would reach the whole page
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(url\(|href=")#', rf"\1#{name}-", text)
    text = re.sub(r"font-family: [^;\"]*", "font-family: var(--sans)", text)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    # The attribute is ours, not the text's: quotes and angle brackets are escaped.
    return text.replace("<svg", f'<svg role="img" aria-label="{_attribute(label)}"', 1)


def _attribute(text: str) -> str:
    from markupsafe import escape

    return str(escape(text))


def as_file(figure: Figure, kind: str) -> bytes:
    """The figure as the content of a `svg` or `png` file, on white."""
    return _saved(figure, FILE_STYLE, kind, facecolor="white")


def _saved(figure: Figure, style: Any, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    # No date and no version in the file: the same numbers give the same bytes.
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    with matplotlib.rc_context(style), warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes; that is no news to anyone.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(buffer, format=kind, metadata=metadata, **options)
    return buffer.getvalue()
