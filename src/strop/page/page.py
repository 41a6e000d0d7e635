"""A report as one HTML file that opens from disk and asks the network for nothing.

Outputs are held as JSON, deflated, as base64, one block per generator: base64 has no character that
HTML reads, so nothing an output holds can end its block.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from strop.measure.guard import MARKS
from strop.page.data import AuditPart, Report, Shown, StudyPart, encodable, replaced, visible
from strop.page.figures import drawings, study_drawings
from strop.page.hero import hero, hints, summary
from strop.page.player import PLAYED
from strop.page.svg import Drawing, as_file, inline, mended
from strop.page.tables import (
    OutputColumn,
    corner_tables,
    facts,
    output_columns,
    pool_table,
    rows_of,
)
from strop.pool import TRACED
from strop.spec.generator import OperatingPoint
from strop.stats.interval import value_of
from strop.table import Table
from strop.version import __version__

MOST_BYTES = 8_000_000
"""What a page may weigh; beyond it, it holds fewer outputs and says so."""
SOME = 16
"""Outputs of each generator that tell how much room outputs take."""
STYLES = ("page.css", "live.css")
SCRIPTS = ("base.js", "charts.js", "player.js", "outputs.js", "evidence.js", "theory.js")
"""Of both forms of the page: held inside a file, or served beside it."""
LIVE = "live.js"
"""What a page that is served has besides."""
LONG = 40
"""Lines of a study's table from which on it is folded."""


@dataclass(frozen=True)
class Page:
    """A page and the figures that go beside it."""

    html: str
    drawings: list[Drawing]
    outputs: int
    """Outputs of each generator that the page holds, at most."""


def render(
    report: Report,
    outputs: int | None = None,
    most_bytes: int = MOST_BYTES,
    *,
    live: Mapping[str, Any] | None = None,
) -> Page:
    """The page of a report, with the first `outputs` of each generator (None: all that fit).

    `live` says what is served with it: such a page holds no outputs, style or script, and asks
    for them beside its address.
    """

    def displayed(text: str) -> str:
        return visible(replaced(text, report.private))

    drawn = drawings(report)
    studies = [study_drawings(i, part, report) for i, part in enumerate(report.studies, 1)]
    drawn += [drawing for part_drawings, _ in studies for drawing in part_drawings]
    for drawing in drawn:
        mended(drawing.figure, displayed)
    words = _words(report, drawn, [beside for _, beside in studies], displayed)
    words["plays"] = []
    if live is not None:
        return Page(_html(report, words, 0, displayed, live), drawn, 0)
    played = [cell.players(list(cell.texts)[:PLAYED]) for cell in report.cells]
    words["plays"] = [packed(playback) if playback else "" for playback in played]
    have = max((len(cell.texts) for cell in report.cells), default=0)
    keep = min(have, _fitting(report, most_bytes)) if outputs is None else min(outputs, have)
    while True:
        html = _html(report, words, keep, displayed, None)
        size = len(html.encode())
        if outputs is not None or keep == 0 or size <= most_bytes:
            return Page(html, drawn, keep)
        keep = min(keep - 1, int(keep * most_bytes / size))


def _fitting(report: Report, most_bytes: int) -> int:
    """How many outputs of each generator may fit: by the first few of them, and rather more."""
    columns = output_columns(report)
    some = [
        (len(packed(rows_of(cell, columns)[:SOME])), min(SOME, len(cell.texts)))
        for cell in report.cells
    ]
    each = sum(size / max(1, number) for size, number in some)
    return int(1.25 * most_bytes / max(1.0, each))


def write(page: Page, path: Path) -> list[Path]:
    """Write the page, and its figures as SVG, PNG, PDF and CSV into `figures/<the page's name>/`.

    Figures first: a page that is there has its figures.
    """
    from strop import disk

    folder = path.parent / "figures" / path.stem
    with disk.disk(folder):
        (folder if page.drawings else path.parent).mkdir(parents=True, exist_ok=True)
    files = []
    for drawing in page.drawings:
        for kind in ("svg", "png", "pdf", "csv"):
            file = folder / f"{drawing.name}.{kind}"
            disk.write(file, as_file(drawing.figure, kind))
            files.append(file)
    disk.write(path, page.html.encode())
    return [path, *files]


# ---------------------------------------------------------------------------- what is filled in


def _words(
    report: Report,
    drawn: Sequence[Drawing],
    beside: Sequence[Table | None],
    displayed: Callable[[str], str],
) -> dict[str, Any]:
    """Everything but the outputs, the style and the script."""

    # Markup: the SVG was escaped when it was drawn.
    def public(text: str) -> str:
        return replaced(text, report.private)

    values_by_cell = {cell.measured.id: _values(cell) for cell in report.cells}
    first = hero(report, drawn)
    svg, charts, legends = {}, {}, set[str]()
    for drawing in drawn:
        bare = drawing.part in legends and drawing is not first.figure
        svg_text, charts[drawing.name] = inline(
            drawing.figure,
            drawing.name,
            displayed(drawing.title),
            values_by_cell,
            displayed,
            bare=bare,
        )
        svg[drawing.name] = Markup(svg_text)
        if drawing is not first.figure and drawing.part.startswith("group-"):
            legends.add(drawing.part)
    return {
        "hero": first,
        "charts": charts,
        "equal": {f"study-{i}": _equal(part) for i, part in enumerate(report.studies, 1)},
        "report": report,
        "version": __version__,
        "marks": MARKS,
        "svg": svg,
        "drawn": lambda part: [drawing for drawing in drawn if drawing.part == part],
        "judgments": [packed(_every(public, judged)) for judged in report.judgments],
        "answered": [packed(_every(public, task)) for task in report.answers],
        "summary": summary(report),
        "sections": _sections(report),
        "hints": hints(report),
        "answers": [_answer(audit) for audit in report.audits],
        "corners": [corner_tables(report, group) for group in report.groups],
        "facts": [" ".join(facts(group)) for group in report.groups],
        "pools": [pool_table(report, group) for group in report.groups],
        "beside": beside,
        "left_of": _left,
        "long": LONG,
        "browser_index": _every(displayed, _browser(report)),
    }


def _values(cell: Shown) -> list[float]:
    """Numbers that are this cell's alone, as far as anyone can tell."""
    intervals = [score.interval("pooled") for score in cell.measured.perplexities]
    return [
        interval.value for interval in (*intervals, cell.measured.entropy) if interval is not None
    ]


def _equal(part: StudyPart) -> list[Any]:
    """Of a comparison, per panel of its figure: where both sides are read at equal entropy."""
    panels = part.result.facts.get("equal")
    if not isinstance(panels, Mapping):
        return []
    called = list(part.result.facts.get("called", ("A", "B")))
    return [
        {
            "called": called,
            "entropies": list(panel["entropies"]),
            "ratios": [
                [math.exp(end) for end in (band.value, *band.ends)] for band in panel["band"]
            ],
        }
        if panel is not None and "band" in panel
        else None
        for panel in panels.values()
    ]


def _sections(report: Report) -> list[tuple[str, str]]:
    """The page's parts after the answer, anchors and headings: those that hold something.

    What was given comes first: of an audit its corners, of a study the study.
    """
    studies = [
        (f"study-{i}", part.name.replace("-", " ").capitalize())
        for i, part in enumerate(report.studies, 1)
    ]
    corners = [("corners", "Settings")] if report.measured else []
    first = [*corners, *studies] if report.audits else [*studies, *corners]
    last = {
        ("groupeval", "GroupEval"): report.series,
        ("judgments", "Judgments"): report.judgments,
        ("answers", "Answers"): report.answers,
        ("unmasking", "Unmasking"): any(cell.players([0]) for cell in report.cells),
        ("outputs", "Outputs"): report.cells,
        ("why", "Why"): report.measured,
        ("provenance", "Provenance"): report.provenance,
    }
    return [*first, *(part for part, content in last.items() if content)]


def _answer(audit: AuditPart) -> dict[str, Any]:
    audit_facts = audit.result.facts
    return {
        "sentences": list(audit_facts.get("answer", ())) or ["The audit chose nothing."],
        "refusals": dict(audit_facts.get("refusals", {})),
        "gains": audit.result.more.get("gains"),
        "more": [table for name, table in audit.result.more.items() if name != "gains"],
        "notes": audit.result.notes,
        "yaml": audit.yaml,
    }


def _left(table: Table) -> list[bool]:
    """Which of a table's printed columns hold words, and stand at the left."""
    if table.pivot is not None:
        return [i < len(table.pivot.down) for i in range(len(table.header()))]
    return [
        not any(isinstance(value_of(row.get(column.name)), (int, float)) for row in table.rows)
        for column in table.columns
    ]


def _every(change: Callable[[str], str], value: Any) -> Any:
    """All texts of a document as `change` gives them."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _every(change, inner) for key, inner in value.items()}
    return [_every(change, inner) for inner in value] if isinstance(value, list) else value


# ---------------------------------------------------------------------------- the browser


def _browser(report: Report) -> dict[str, Any]:
    """What the page's scripts know of all generators before they unpack or fetch anything."""
    everywhere = [(group, cell) for group in report.groups for cell in group.cells]
    left, right = _first_pair(report)
    return {
        "columns": [_column(column) for column in output_columns(report)],
        "cells": [
            {
                "id": cell.measured.id,
                "label": cell.name + (" · token ids" if cell.as_ids else ""),
                "model": group.title,
                "n": cell.measured.outputs,
                "point": _without_temperature(cell),
                "exact": cell.measured.point.sampler.implementation == "fast",
                "guard": cell.measured.guard.threshold,
                "group": report.groups.index(group),
                "steps": cell.measured.steps,
                "standard": cell.measured.point == group.standard,
            }
            for group, cell in everywhere
        ],
        "held_out": [encodable(group.held_out) for group in report.groups],
        "left": left,
        "right": right,
    }


def _first_pair(report: Report) -> tuple[int, int]:
    """The standard sampler and the recommended one at the middle budget that has both.

    Without a recommendation the best of that line, or else whatever stands there.
    """
    if not report.cells:
        return 0, 0
    group = report.groups[0]
    places = {cell.measured.id: i for i, cell in enumerate(report.cells)}
    wanted = {OperatingPoint.of(recommended.spec) for recommended in hero(report, ()).recommended}
    rows = [row for table in corner_tables(report, group) for row in table.rows]
    best = {row["cell"] for row in rows if row.get("best")}
    pairs = []
    for steps in group.steps:
        cells = [cell for cell in group.ordered if cell.measured.steps == steps]
        plain = [cell for cell in cells if cell.measured.point == group.standard] or cells
        others = [cell for cell in cells if cell is not plain[0]]
        others.sort(
            key=lambda cell: (cell.measured.point not in wanted, cell.measured.id not in best)
        )
        if others:
            liked = others[0].measured.point in wanted
            pairs.append((liked, places[plain[0].measured.id], places[others[0].measured.id]))
    if not pairs:
        return 0, len(report.cells) - 1
    kept = [pair for pair in pairs if pair[0]] or pairs
    return kept[len(kept) // 2][1:]


def _without_temperature(cell: Shown) -> str:
    """The same for generators that differ in their temperature alone."""
    spec = cell.measured.spec
    cold = spec.generator.sampler.model_copy(update={"temperature": 1.0})
    return f"{spec.generator.checkpoint.sha256} {spec.seed} {spec.generator.length} {cold.id}"


def _column(output_column: OutputColumn) -> dict[str, Any]:
    column = output_column.column
    properties = {"label": column.heading, "help": column.help, "digits": column.digits}
    return {"name": column.name, **properties}


def packed(value: Any) -> str:
    """JSON as the page's script unpacks it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


# ---------------------------------------------------------------------------- templates


def _html(
    report: Report,
    words: dict[str, Any],
    keep: int,
    displayed: Callable[[str], str],
    live: Mapping[str, Any] | None,
) -> str:
    script = "\n".join(map(_source, SCRIPTS))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    columns = output_columns(report)

    def printed(value: Any) -> Any:
        """Applied to all that the templates print, before it is escaped."""
        return (
            displayed(value) if isinstance(value, str) and not isinstance(value, Markup) else value
        )

    environment = Environment(
        loader=PackageLoader("strop.page"),
        autoescape=True,
        finalize=printed,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        **words,
        live=live,
        traced=TRACED,
        packs=[] if live else [packed(rows_of(cell, columns)[:keep]) for cell in report.cells],
        styles=STYLES,
        scripts=(*SCRIPTS, LIVE),
        script=Markup(script),
        script_hash=f"sha256-{digest}",
        style=Markup("\n".join(map(_source, STYLES))),
    )


def _source(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")
