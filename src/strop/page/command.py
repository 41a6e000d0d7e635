"""strop report: everything that was measured, on one page."""

from __future__ import annotations

from pathlib import Path

from strop.errors import UserError
from strop.verbs.parameters import argument
from strop.verbs.verb import Ask, Parameter, Part, Result, Verb, quoted


def _run(ask: Ask) -> Result:
    path = _place(ask["out"])
    from strop.page import gather, render, write
    from strop.page.tables import corner_tables

    data = gather(ask["runs"], title=ask["title"], outputs=ask["outputs"])
    page = render(data, ask["outputs"])
    files = write(page, path)
    most = max((cell.measured.outputs for cell in data.cells), default=0)
    parts: list[Part] = []
    for group in data.groups:
        for table in corner_tables(data, group):
            parts += [f"{group.title}: {table.title[0].lower()}{table.title[1:]}", table]
        parts += map(str, group.guards)
    size = path.stat().st_size
    parts.append(f"{path}  ({size / 1e6:.1f} MB, {len(files) - 1} figure files)")
    held = f"the page holds {page.outputs} of up to {most} outputs of each generator"
    unscored = bool(data.groups) and not data.perplexities
    opening = f"open {quoted(path.resolve())} in a browser"
    return Result(
        parts=tuple(parts),
        json={
            "page": str(path),
            "bytes": size,
            "outputs_per_cell": page.outputs,
            "figures": [str(file) for file in files[1:]],
            "scored": bool(data.perplexities),
            "cells": len(data.cells),
        },
        remarks=(held,) if page.outputs < most else (),
        next=data.commands["score"] if unscored else opening,
        value=data,
    )


def _place(out: str) -> Path:
    """Where the page goes, refused before anything is read if it cannot go there."""
    if not out:
        raise UserError("The output path is empty.", where="`out`", fix="say `out=report.html`")
    path = Path(out)
    if path.is_dir():
        raise UserError(
            "The output path is a directory.",
            where=path,
            expected="a file name such as report.html",
            fix=f"say `out={quoted(path / 'report.html')}`",
        )
    return path


VERB = Verb(
    name="report",
    help="Write one self-contained HTML page of RUN...: tables, figures, and a browser of "
    "outputs.\n\nThe figures are saved as SVG, PNG, PDF and CSV too, in figures/ beside the page.",
    parameters=(
        argument(
            "runs",
            "RUN...",
            "Run directories; also those of studies and of GroupEval, and .jsonl judgments.",
            kind="many",
        ),
        Parameter("out", "The page.", "report.html", flags=("-o", "--out")),
        Parameter("title", "Of the page; the checkpoints' names by default."),
        Parameter(
            "outputs",
            "Outputs of each generator to hold; by default those that fit (8 MB).",
            kind="int",
        ),
    ),
    run=_run,
    examples=("strop report runs/audit -o report.html",),
)
