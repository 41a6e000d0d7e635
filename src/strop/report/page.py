"""A report as one HTML file that opens from disk and asks the network for nothing."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from strop.report.content import context
from strop.report.data import Report
from strop.report.drawing import Drawing
from strop.report.figures import drawings
from strop.report.pack import pack
from strop.report.plain import visible
from strop.report.svg import as_file

__all__ = ["MOST_BYTES", "Page", "render", "write"]

MOST_BYTES = 8_000_000
"""What a page may weigh; beyond it, it holds fewer outputs and says so."""


@dataclass(frozen=True)
class Page:
    """A page and the figures that go beside it."""

    html: str
    drawings: list[Drawing]
    outputs: int
    """Outputs of each generator that the page holds, at most."""


def render(report: Report, outputs: int | None = None, most_bytes: int = MOST_BYTES) -> Page:
    """The page of a report, with the first `outputs` of each generator (None: all that fit)."""
    drawn = drawings(report)
    words = context(report, drawn)
    have = max((len(cell.outputs) for model in report.models for cell in model.cells), default=0)
    keep = have if outputs is None else min(outputs, have)
    while True:
        html = _html(report, words, keep)
        size = len(html.encode())
        if outputs is not None or keep == 0 or size <= most_bytes:
            return Page(html, drawn, keep)
        keep = min(keep - 1, int(keep * most_bytes / size))


def write(page: Page, path: Path) -> list[Path]:
    """Write the page, and its figures as SVG and PNG into `figures/<name of the page>/` beside it.

    Figures first: a page that is there has its figures.
    """
    from strop import disk

    folder = path.parent / "figures" / path.stem
    with disk.disk(folder):
        (folder if page.drawings else path.parent).mkdir(parents=True, exist_ok=True)
    files = []
    for drawing in page.drawings:
        for kind in ("svg", "png"):
            file = folder / f"{drawing.name}.{kind}"
            disk.write(file, as_file(drawing.figure, kind))
            files.append(file)
    disk.write(path, page.html.encode())
    return [path, *files]


def _html(report: Report, words: dict[str, Any], keep: int) -> str:
    cells = [cell for model in report.models for cell in model.cells]
    script = _source("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template("page.html")
        .render(
            **words,
            packs=[Markup(pack(cell.outputs[:keep])) for cell in cells],
            script=Markup(script),
            script_hash=f"sha256-{digest}",
            style=Markup(_source("page.css")),
        )
    )


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("strop.report"),
        autoescape=True,
        finalize=_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _visible(value: Any) -> Any:
    """Applied to all that the templates print, before it is escaped."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _source(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")
