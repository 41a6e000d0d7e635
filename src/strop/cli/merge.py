"""strop merge: runs that shards drew apart from each other, made into one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from strop.cli import output
from strop.cli.examples import examples
from strop.cli.progress import label


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("merge", epilog=examples("strop merge runs/part-0 runs/part-1 -o runs/whole"))(
        merge
    )


def merge(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Runs of the same cells.")],
    out: Annotated[str, typer.Option("-o", "--out", help="The run that gets them all.")],
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """Bring outputs and scores of runs together that were made for the same cells.

    Refuses what does not belong together. The same command continues; nothing is added twice.
    """
    from strop.engine.merge import merge_runs, refuse_gaps

    merged = merge_runs(runs, out)
    wanted = merged.wanted()
    found = [(cell, len(cell.indices()), len(cell.scores())) for cell in merged.cells()]
    if as_json:
        refuse_gaps(merged)  # else stdout would carry two documents
        rows = [
            {"cell": cell.id, "outputs": n, "wanted": wanted[cell.id], "metrics": metrics}
            for cell, n, metrics in found
        ]
        output.emit({"run": out, "cells": rows})
    else:
        lines = [
            [
                cell.id,
                label(cell.spec.generator.sampler),
                f"{n} of {wanted[cell.id]}",
                str(metrics),
            ]
            for cell, n, metrics in found
        ]
        output.table(["cell", "setting", "outputs", "metrics"], lines)
    refuse_gaps(merged)
    output.next_command(f"strop score {shlex.quote(out)}")
