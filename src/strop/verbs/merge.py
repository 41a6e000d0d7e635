"""strop merge: runs that shards drew apart from each other, made into one."""

from __future__ import annotations

from pathlib import Path

from strop.errors import StropError
from strop.spec.generator import label
from strop.verbs.parameters import argument, out
from strop.verbs.verb import Ask, Result, Verb, grid, quoted


def _run(ask: Ask) -> Result:
    from strop.engine.merge import merge_runs, refuse_gaps

    merged = merge_runs([Path(run) for run in ask["runs"]], ask["out"])
    wanted = merged.wanted()
    cells = [(cell, len(cell.indices()), len(cell.scores())) for cell in merged.cells()]
    error = None
    try:
        refuse_gaps(merged)
    except StropError as gaps:  # told below what is there
        error = gaps
    lines = [
        [cell.id, label(cell.spec.generator.sampler), f"{n} of {wanted[cell.id]}", str(metrics)]
        for cell, n, metrics in cells
    ]
    rows = [
        {"cell": cell.id, "outputs": n, "wanted": wanted[cell.id], "metrics": metrics}
        for cell, n, metrics in cells
    ]
    return Result(
        parts=(grid(["cell", "setting", "outputs", "metrics"], lines),),
        json={"run": ask["out"], "cells": rows},
        error=error,
        next=f"strop score {quoted(ask['out'])}",
        value=merged,
    )


VERB = Verb(
    name="merge",
    help="Bring outputs and scores of runs together that were made for the same cells.\n\n"
    "Refuses what does not belong together. The same command continues; nothing is added twice.",
    parameters=(
        argument("runs", "RUN...", "Runs of the same cells.", kind="many"),
        out("The run that gets them all."),
    ),
    run=_run,
    examples=("strop merge runs/part-0 runs/part-1 -o runs/whole",),
)
