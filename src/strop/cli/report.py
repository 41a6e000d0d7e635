"""strop report: everything that was measured, on one page."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from strop.cli import output
from strop.cli.examples import examples
from strop.errors import UserError


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("report", epilog=examples("strop report runs/audit -o report.html"))(report)


def report(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Run directories; also those of studies and of GroupEval, and .jsonl judgments.",
        ),
    ],
    out: Annotated[str, typer.Option("-o", "--out", help="The page.")] = "report.html",
    title: Annotated[
        str | None, typer.Option(help="Of the page; the checkpoints' names by default.")
    ] = None,
    outputs: Annotated[
        int | None,
        typer.Option(help="Outputs of each generator to hold; by default those that fit (8 MB)."),
    ] = None,
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """Write one self-contained HTML page of RUN...: tables, figures, and a browser of outputs.

    The figures are saved as SVG and PNG too, in figures/ beside the page.
    """
    if outputs is not None and outputs < 0:
        raise UserError(
            "--outputs is out of range.", where="--outputs", got=outputs, expected="0 or more"
        )
    path = _place(out)
    from strop.page import gather, render, write
    from strop.page.tables import corner_tables

    with output.warnings_noted():
        data = gather(runs, title=title, outputs=outputs)
    page = render(data, outputs)
    files = write(page, path)
    most = max((cell.measured.outputs for cell in data.cells), default=0)
    if as_json:
        output.emit(
            {
                "page": str(path),
                "bytes": path.stat().st_size,
                "outputs_per_cell": page.outputs,
                "figures": [str(file) for file in files[1:]],
                "scored": bool(data.perplexities),
                "cells": len(data.cells),
            }
        )
    else:
        for group in data.groups:
            for one in corner_tables(data, group):
                output.say(f"{group.title}: {one.title[0].lower()}{one.title[1:]}")
                output.table(*one.text())
            for guard in group.guards:
                output.say(str(guard))
        output.say(f"{path}  ({path.stat().st_size / 1e6:.1f} MB, {len(files) - 1} figure files)")
    if page.outputs < most:
        output.note(f"the page holds {page.outputs} of up to {most} outputs of each generator")
    if data.groups and not data.perplexities:
        output.next_command(data.commands["score"])
    else:
        output.next_command(f"open {shlex.quote(str(path.resolve()))} in a browser")


def _place(out: str) -> Path:
    """Where the page goes, refused before anything is read if it cannot go there."""
    if not out:
        raise UserError("The output path is empty.", where="-o/--out", fix="-o report.html")
    path = Path(out)
    if path.is_dir():
        raise UserError(
            "The output path is a directory.",
            where=path,
            expected="a file name such as report.html",
            fix=f"-o {shlex.quote(str(path / 'report.html'))}",
        )
    return path
