"""Matplotlib figures for a page: SVG that takes its colours and type from the page's style.

A figure is drawn once in the colours below. Inside the page each becomes a CSS variable, so that
the same drawing serves light and dark; beside the page it is saved as it was drawn, on white.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import matplotlib
from markupsafe import escape
from matplotlib.figure import Figure
from matplotlib.mathtext import MathTextParser
from matplotlib.text import Text

from strop.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, STYLE
from strop.page.marks import Chart, ChartMark, chart

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
    # What a study's own figure may have drawn without asking for a colour.
    "#000000": "--ink",
    "#ffffff": "--paper",
}

STUDY_STYLE: Any = {
    **STYLE,
    "text.color": INK,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.titlelocation": "left",
}
"""For the figures of studies; the report's own hold names from outside and read no formulas."""
STYLES: Any = {"svg": {**STUDY_STYLE, "svg.fonttype": "none"}, "png": STUDY_STYLE}


@dataclass(frozen=True)
class Drawing:
    """A figure and what the page says about it."""

    name: str
    title: str
    caption: str
    figure: Figure
    part: str = ""
    """The part of the page that it belongs to: `group-1`, `study-1`, `series-1`, `why`."""

    @property
    def width(self) -> float:
        """In inches; the page gives wide figures more room."""
        return float(self.figure.get_figwidth())


def mended(figure: Figure, displayed: Callable[[str], str]) -> Figure:
    """A figure whose texts are harmless: as `displayed` gives each, and never a broken formula."""
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        words = displayed(text.get_text())
        if words != text.get_text():
            text.set_text(words)
        if "$" in words and text.get_parse_math():
            try:
                for line in words.split("\n"):  # as matplotlib does
                    MathTextParser("path").parse(line)
            except ValueError:
                text.set_parse_math(False)
    return figure


def inline(
    figure: Figure,
    name: str,
    label: str,
    cells: Mapping[str, Iterable[float]] = {},
    displayed: Callable[[str], str] = str,
    *,
    bare: bool = False,
) -> tuple[str, Chart]:
    """The figure as an `<svg>` element, and what it shows as plain values.

    `name` keeps its ids apart from those of other figures. Over every value lies a mark that
    answers to pointer and keyboard; marks of `cells` lead to their outputs. A `bare` one has no
    legend: a figure before it has the same.
    """
    text = _bare(figure) if bare else _saved(figure, STYLES["svg"], "svg").decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)  # it would reach the whole page
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(url\(|href=")#', rf"\1#{name}-", text)
    text = re.sub(r"font-family: [^;\"]*", "font-family: var(--sans)", text)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    plotted = chart(figure, cells)
    marks = "".join(
        _mark(i, mark, displayed(plotted.words(mark))) for i, mark in enumerate(plotted.marks)
    )
    text = text.replace("</svg>", f'<g class="marks">{marks}</g></svg>')
    # The attribute is ours, not the text's: quotes and angle brackets are escaped.
    role = "group" if plotted.marks else "img"
    text = text.replace("<svg", f'<svg role="{role}" aria-label="{escape(label)}"', 1)
    # What the page's script draws beside the marks has their colours, in the dark as well.
    marked = (replace(mark, colour=_variable(mark.colour)) for mark in plotted.marks)
    return text, replace(plotted, marks=tuple(marked))


def _variable(colour: str) -> str:
    return f"var({VARIABLES[colour]})" if colour in VARIABLES else colour


def _bare(figure: Figure) -> str:
    """As SVG without the legend above, and without its room."""
    with matplotlib.rc_context(STYLES["svg"]), any_script():
        figure.draw_without_rendering()  # laid out with its legend, as its files are
    figure.set_layout_engine(None)
    for legend in figure.legends:
        legend.set_visible(False)
    text = _saved(figure, STYLES["svg"], "svg").decode()
    for legend in figure.legends:
        legend.set_visible(True)
    top = min(panel.box[3] for panel in chart(figure).panels) - 8
    _, _, wide, high = map(float, re.findall(r"[\d.]+", text[text.index('viewBox="') :])[:4])
    return re.sub(r'viewBox="[^"]*"', f'viewBox="0 {top:.2f} {wide:g} {high - top:.2f}"', text)


def _mark(i: int, mark: ChartMark, words: str) -> str:
    cell = f' data-cell="{escape(mark.cell)}"' if mark.cell else ""
    role = "button" if mark.cell else "img"
    return (
        f'<circle class="value" cx="{mark.left:.1f}" cy="{mark.top:.1f}" r="5" role="{role}" '
        f'tabindex="{-1 if i else 0}" aria-label="{escape(words)}"{cell}>'
        f"<title>{escape(words)}</title></circle>"
    )


def as_file(figure: Figure, kind: str) -> bytes:
    """The figure as the content of a `svg`, `png` or `pdf` file, on white; of `csv` its values."""
    if kind == "csv":
        return chart(figure).table("").csv()
    return _saved(figure, STUDY_STYLE, kind, facecolor="white")


@contextmanager
def any_script() -> Iterator[None]:
    """A name in a script that the font lacks is drawn as boxes; that is no news to anyone."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def _saved(figure: Figure, style: Any, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    # No date and no version in the file: the same numbers give the same bytes.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {"Software": None})
    with matplotlib.rc_context(style), any_script():
        figure.savefig(buffer, format=kind, metadata=metadata, **options)
    figure.set_layout_engine(None)  # laid out once for the page and for both files
    return buffer.getvalue()
