"""strop show and strop ls: what is on disk."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from strop.cli import output
from strop.cli.progress import label
from strop.errors import UserError
from strop.spec import plain_baseline

__all__ = ["register"]

EXCERPT = 280


def register(app: typer.Typer) -> None:
    """Add both verbs."""
    app.command("show")(show)
    app.command("ls")(ls)


def show(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    cell: Annotated[str | None, typer.Argument(help="A cell's id or its beginning.")] = None,
    first: Annotated[int, typer.Option("--first", min=0, help="Outputs to print.")] = 3,
    full: Annotated[bool, typer.Option("--full", help="Print whole outputs.")] = False,
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """Print what a run or one of its cells holds: spec, counts, first outputs."""
    from strop.store import Run

    if (run / "train.json").is_file():
        from strop.cli.train import show_training

        show_training(run, as_json)
        return
    opened = Run.open(run)
    chosen = opened.cells() if cell is None else [opened.cell(cell)]
    asked = opened.asked
    wanted = opened.wanted()
    documents = [_document(one, wanted[one.id], first) for one in chosen]
    if as_json:
        output.emit({"run": str(run), "asked": asked, "cells": documents})
        return
    output.say(f"{run}: {asked.get('checkpoint')}, seed {asked.get('seed')}, n {asked.get('n')}")
    for one, document in zip(chosen, documents, strict=True):
        sampler = one.spec.generator.sampler
        output.say(
            f"\n{one.id}  {label(sampler)}  {document['outputs']} of {document['asked']} outputs"
        )
        baseline = plain_baseline(sampler)
        if baseline is not None:
            output.say(f"  plain baseline: {label(baseline)}")
        if cell is not None:
            output.table(["field", "value"], [[k, str(v)] for k, v in sampler])
        for entry in document["first"]:
            output.say(f"  [{entry['index']}] nfe {entry['nfe']}  {_excerpt(entry, full)}")
    incomplete = any(d["outputs"] < d["asked"] for d in documents)
    if incomplete:
        output.note("some outputs are missing: the command that made this run continues it")
    elif cell is None and chosen:
        output.next_command(f"strop show {shlex.quote(str(run))} {chosen[0].id} --full")


def _document(cell: Any, asked: int, first: int) -> dict[str, Any]:
    table = cell.table()
    head = table.slice(0, min(first, table.num_rows)).to_pylist()
    return {
        "cell": cell.id,
        "spec": cell.spec.model_dump(mode="json"),
        "outputs": table.num_rows,
        "asked": asked,
        "sessions": cell.sessions(),
        "first": head,
    }


def _excerpt(entry: dict[str, Any], full: bool) -> str:
    # repr keeps control characters and line breaks visible and harmless.
    shown = entry["text"]
    text = " ".join(map(str, entry["ids"])) if shown is None else repr(shown)[1:-1]
    return text if full or len(text) <= EXCERPT else text[:EXCERPT] + " ..."


def ls(
    root: Annotated[Path, typer.Argument(help="Where to look.")] = Path("runs"),
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """List the runs below a directory."""
    from strop.store import find_runs

    if not root.is_dir():
        raise UserError(
            "There is no such directory.", where=root, fix="strop sample CHECKPOINT -o runs/first"
        )
    rows = []
    for run in find_runs(root):
        try:
            asked, cells = run.asked, run.cells()
            done = [len(cell.indices()) for cell in cells]
            state = f"{sum(done)} of {sum(run.wanted().values())} outputs"
        except UserError as error:  # one damaged run must not hide the others
            asked, cells, state = {}, [], error.what
        rows.append(
            {
                "run": str(run.path),
                "checkpoint": asked.get("checkpoint"),
                "cells": len(cells),
                "state": state,
            }
        )
    for path in sorted(root.glob("**/train.json")):
        done = (path.parent / "result.json").is_file()
        state = "training, finished" if done else "training, not finished"
        rows.append({"run": str(path.parent), "checkpoint": None, "cells": 0, "state": state})
    if as_json:
        output.emit({"root": str(root), "runs": rows})
        return
    if not rows:
        output.note(f"no runs below {root}")
        output.next_command("strop sample CHECKPOINT -o runs/first")
        return
    output.table(
        ["run", "checkpoint", "cells", "state"], [[str(v) for v in r.values()] for r in rows]
    )
    output.next_command(f"strop show {shlex.quote(rows[0]['run'])}")
