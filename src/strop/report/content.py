"""What the template fills in: the report's numbers as words, in the order of the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from strop.report.data import CORNERS, DAGGER, STANDARD, Cell, Model, Report
from strop.report.drawing import Drawing
from strop.report.svg import inline
from strop.report.tables import CornerTable, Entry, corner_table, interval, number
from strop.version import __version__

__all__ = ["Table", "context"]

PARTS = (
    ("corners", "Corners"),
    ("cost", "Cost"),
    ("posterior", "Posterior loss"),
    ("groupeval", "GroupEval"),
    ("outputs", "Outputs"),
    ("provenance", "Provenance"),
)


@dataclass(frozen=True)
class Table:
    """A table of text."""

    caption: str
    header: list[tuple[str, str]]
    """Title and explanation of each column."""
    rows: list[list[str]]


@dataclass(frozen=True)
class Corner:
    """An entry of the four-corner table, and the generator it leads to."""

    entry: Entry | None
    id: str


@dataclass(frozen=True)
class CornerRow:
    """A budget."""

    steps: int
    cells: list[Corner]


@dataclass(frozen=True)
class Corners:
    """The four-corner table of one model under one evaluator."""

    caption: str
    grid: CornerTable
    rows: list[CornerRow]
    scored: bool
    """Whether the entries are perplexities; else they are entropies."""


@dataclass(frozen=True)
class Picture:
    """A figure in the page."""

    title: str
    caption: str
    svg: Markup


def context(report: Report, drawn: list[Drawing]) -> dict[str, Any]:
    """Everything but the outputs, the style and the script."""
    pictures = {drawing.name: _picture(drawing) for drawing in drawn}
    return {
        "report": report,
        "version": __version__,
        "dagger": DAGGER,
        "summary": _summary(report),
        "parts_shown": PARTS,
        "models": [_model(report, i, drawn, pictures) for i in range(len(report.models))],
        "cost_measured": _cost_measured(report),
        "cost_seen": _cost_seen(report),
        "cost_drawing": pictures.get("cost"),
        "two_bits": pictures.get("two-bits"),
        "posterior": _posterior(report),
        "posterior_drawing": pictures.get("posterior"),
        "judged": _judged(report),
        "judged_drawing": pictures.get("groupeval"),
        "browser_index": _browser(report),
    }


def _picture(drawing: Drawing) -> Picture:
    # Markup: the SVG was escaped when it was drawn.
    svg = Markup(inline(drawing.figure, drawing.name, drawing.title))
    return Picture(drawing.title, drawing.caption, svg)


def _summary(report: Report) -> str:
    cells = [cell for model in report.models for cell in model.cells]
    names = list(dict.fromkeys(model.name for model in report.models))
    below = sum(cell.below_guard for cell in cells)
    words = (
        f"{_count(len(cells), 'generator')} of {_count(len(names), 'checkpoint')}, "
        f"{_count(sum(cell.n for cell in cells), 'output')}"
    )
    if report.evaluators:
        words += f"; perplexity under {' and '.join(report.evaluators)}"
    words += "."
    if below:
        words += f" {_count(below, 'generator')} below the entropy guard ({DAGGER})."
    return words


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _model(
    report: Report, i: int, drawn: list[Drawing], pictures: dict[str, Picture]
) -> dict[str, Any]:
    model = report.models[i]
    scored = [name for name in report.evaluators if any(name in c.perplexity for c in model.cells)]
    counts = sorted({cell.n for cell in model.cells})
    outputs = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    facts = f"Length {model.length:,}, seed {model.seed}, {outputs} outputs per cell."
    if model.guard is not None:
        facts += f" Guard: entropy of at least {model.guard.value:.2f} ({model.guard.source})."
    return {
        "name": model.name,
        "facts": " ".join([facts, *model.notes]),
        "tables": [_corners(model, name) for name in scored or [None]],
        "drawings": [pictures[d.name] for d in drawn if d.model == i],
        "pool": _pool(report, model),
    }


def _corners(model: Model, evaluator: str | None) -> Corners:
    grid = corner_table(model, evaluator)
    found = [[model.at(m, s) for s in model.settings()] for m in grid.steps]
    rows = [
        CornerRow(
            m,
            [Corner(e, "" if c is None else c.id) for e, c in zip(entries, cells, strict=True)],
        )
        for m, entries, cells in zip(grid.steps, grid.entries, found, strict=True)
    ]
    caption = "Entropy in nats" if evaluator is None else f"Perplexity under {evaluator}"
    return Corners(caption, grid, rows, scored=evaluator is not None)


def _in_order(model: Model) -> list[Cell]:
    order = model.settings()
    return sorted(model.cells, key=lambda cell: (cell.steps, order.index(cell.setting)))


def _pool(report: Report, model: Model) -> Table | None:
    columns = [c for c in report.pool_columns if any(c.key in cell.pool for cell in model.cells)]
    if not columns:
        return None
    rows = []
    for cell in _in_order(model):
        found = [(cell.pool.get(c.key), c.digits) for c in columns]
        rows.append(
            [
                cell.label,
                *(
                    " ".join(filter(None, [number(e.value if e else None, d), interval(e, d)]))
                    for e, d in found
                ),
            ]
        )
    header = [("generator", ""), *((c.label, c.help) for c in columns)]
    return Table(
        "What the pool as a whole shows; hover over a heading for its meaning.", header, rows
    )


def _cost_measured(report: Report) -> Table | None:
    if not report.cost:
        return None
    header = [
        ("implementation", ""),
        ("setting", ""),
        ("updates M", "configured steps"),
        ("network calls", "per sequence"),
        ("seconds", "amortised, per sequence"),
        ("peak MB", "on top of the weights"),
        ("batch", "sequences at a time"),
    ]
    rows = [
        [
            row.implementation,
            row.setting,
            f"{row.steps:,}",
            number(row.calls, 4),
            number(row.seconds),
            number(row.memory_mb, 4),
            str(row.batch),
        ]
        for row in report.cost
    ]
    return Table("Per sequence", header, rows)


def _cost_seen(report: Report) -> Table | None:
    several = len(report.models) > 1
    rows = [
        [
            f"{model.name} · {cell.label}" if several else cell.label,
            str(cell.n),
            number(cell.calls, 4),
            number(cell.seconds),
        ]
        for model in report.models
        for cell in _in_order(model)
        if cell.calls is not None
    ]
    header = [
        ("generator", ""),
        ("outputs", ""),
        ("network calls", "per output"),
        ("seconds", "per output, as the run's machine and batches had it"),
    ]
    return Table("Per output", header, rows) if rows else None


def _posterior(report: Report) -> Table | None:
    if not report.posterior:
        return None
    header = [
        ("checkpoint", ""),
        ("M", "configured steps"),
        ("τ", "temperature"),
        ("loss against τ 1", "nats per token, paired 95% interval; above 0 is a worse predictor"),
        ("best τ", "of the grid, for prediction"),
        ("perplexity ratio", "samples at temperature one over these; above 1 is better"),
    ]
    rows = []
    for row in report.posterior:
        sign = "+" if row.difference.value > 0 else ""
        loss = f"{sign}{number(row.difference.value, 2)} {interval(row.difference, 2)}".strip()
        ratio = "–" if row.ratio is None else f"{number(row.ratio.value)} {interval(row.ratio)}"
        best = "–" if row.best_temperature is None else f"{row.best_temperature:g}"
        rows.append([row.model, str(row.steps), f"{row.temperature:g}", loss, best, ratio.strip()])
    return Table("Held-out posterior loss", header, rows)


def _judged(report: Report) -> Table | None:
    if not report.judged:
        return None
    header = [
        ("generator", ""),
        ("series", "judge and profile"),
        ("GEQ", "quality, 0 to 10, with its 95% interval"),
        ("GED", "diversity, 0 to 10"),
        ("invalid", "share of outputs that fail the validity gate"),
        ("modes", "effective number of different contents in a group"),
        ("judged", "judgments accepted of those asked for"),
    ]
    rows = []
    for row in report.judged:
        quality = "–" if row.geq is None else f"{number(row.geq.value)} {interval(row.geq)}".strip()
        mark = f" {DAGGER}" if row.below_guard else ""
        invalid = "–" if row.invalid_rate is None else f"{row.invalid_rate:.1%}"
        modes = number(row.effective_modes)
        counted = f"{row.accepted} of {row.asked}"
        rows.append(
            [row.name + mark, row.series, quality, number(row.ged), invalid, modes, counted]
        )
    return Table("Scores by judge", header, rows)


def _browser(report: Report) -> dict[str, Any]:
    """What `page.js` knows before it unpacks anything."""
    entries = [(model, cell) for model in report.models for cell in model.cells]
    cells = [cell for _, cell in entries]
    right = len(cells) - 1 if cells else 0
    left = next((i for i, cell in enumerate(cells) if cell.setting == STANDARD), 0)
    for i, cell in enumerate(cells):
        if cell.setting == CORNERS[3] and cell.steps == cells[left].steps:
            right = i
    return {
        "columns": [
            {"label": c.label, "help": c.help, "digits": c.digits} for c in report.output_columns
        ],
        "cells": [
            {
                "id": cell.id,
                "label": cell.label + (" · token ids" if cell.as_ids else ""),
                "model": f"{model.name}, length {model.length}, seed {model.seed}",
                "n": cell.n,
            }
            for model, cell in entries
        ],
        "left": left,
        "right": right,
    }
