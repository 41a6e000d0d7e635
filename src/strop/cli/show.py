"""strop show and strop ls: what is on disk."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from strop.cli import output
from strop.cli.examples import examples
from strop.cli.listing import find
from strop.cli.progress import label
from strop.cli.prompted import answered
from strop.cli.unmask import decoder, replay
from strop.errors import UserError
from strop.spec import plain_baseline

EXCERPT = 280
FIRST = "strop sample -n 4 -o runs/first"


def register(app: typer.Typer) -> None:
    """Add both verbs."""
    app.command(
        "show",
        epilog=examples(
            "strop show runs/first",
            "strop show runs/first 3f9a --first 10 --full",
            "strop show runs/first --output 3 --unmask",
        ),
    )(show)
    app.command("ls", epilog=examples("strop ls", "strop ls elsewhere --json"))(ls)


def show(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    cell: Annotated[str | None, typer.Argument(help="A cell's id or its beginning.")] = None,
    first: Annotated[int, typer.Option("--first", min=0, help="Outputs to print.")] = 3,
    full: Annotated[bool, typer.Option("--full", help="Print whole outputs.")] = False,
    number: Annotated[
        int | None, typer.Option("--output", min=0, help="Only the output of this number, whole.")
    ] = None,
    unmask: Annotated[
        bool, typer.Option("--unmask", help="Replay that output round by round.")
    ] = False,
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """Print what a run or one of its cells holds: spec, counts, first outputs."""
    from strop.store import Run, read_mark

    mark = read_mark(run)
    if mark is not None and mark.kind == "training":
        from strop.cli.train import show_training

        show_training(run, as_json)
        return
    if unmask and number is None:
        raise UserError("One output is replayed at a time.", where="--unmask", fix="add --output 0")
    opened = Run.open(run)
    chosen = opened.cells() if cell is None else [opened.cell(cell)]
    if number is not None:
        _one_output(opened, chosen, number, unmask, as_json)
        return
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
        kept = one.prompts()
        for entry in document["first"]:
            output.say(f"  [{entry['index']}] nfe {entry['nfe']}  {_shown(entry, kept, full)}")
    incomplete = any(d["outputs"] < d["asked"] for d in documents)
    if incomplete:
        output.note("some outputs are missing: the command that made this run continues it")
    elif cell is None and chosen:
        output.next_command(f"strop show {shlex.quote(str(run))} {chosen[0].id} --full")


def _one_output(run: Any, cells: list[Any], number: int, unmask: bool, as_json: bool) -> None:
    """One output of every chosen cell: its text, or how it came about."""
    found = []
    for cell in cells:
        rows = [row for row in _rows(cell.table()) if row["index"] == number]
        if not rows:
            raise UserError(
                "There is no such output.",
                where=cell.path,
                got=f"--output {number}",
                expected=f"a number below {cell.table().num_rows}",
            )
        found.append(rows[0])
    if as_json:
        cells_shown = [{"cell": c.id, **row} for c, row in zip(cells, found, strict=True)]
        output.emit({"run": str(run.path), "outputs": cells_shown})
        return
    for cell, entry in zip(cells, found, strict=True):
        output.say(f"{cell.id}  {label(cell.spec.generator.sampler)}  output {number}")
        if unmask:
            shape = cell.spec.generator.checkpoint.shape
            replay(entry, decoder(str(run.asked.get("checkpoint", "")), shape))
        else:
            output.say(_shown(entry, cell.prompts(), full=True))
    if not unmask:
        output.next_command(f"strop show {shlex.quote(str(run.path))} --output {number} --unmask")


def _document(cell: Any, asked: int, first: int) -> dict[str, Any]:
    table = cell.table()
    head = _rows(table.slice(0, min(first, table.num_rows)))
    return {
        "cell": cell.id,
        "spec": cell.spec.model_dump(mode="json"),
        "outputs": table.num_rows,
        "asked": asked,
        "sessions": cell.sessions(),
        "first": head,
    }


def _rows(table: Any) -> list[dict[str, Any]]:
    """Outputs as they are, without what fills up short responses."""
    rows = table.to_pylist()
    return [{**row, "ids": row["ids"][: row.get("tokens", len(row["ids"]))]} for row in rows]


def _shown(entry: dict[str, Any], kept: Any, full: bool) -> str:
    """One output in a line, after the prompt that it answers."""
    if kept is None:
        return _excerpt(entry, full)
    text = answered(entry, kept, full=full)
    limit = 2 * EXCERPT
    text = text if full or len(text) <= limit else text[:limit] + " ..."
    return f"{entry['prompt']}: {text}"


def _excerpt(entry: dict[str, Any], full: bool) -> str:
    shown = entry["text"]
    text = " ".join(map(str, entry["ids"])) if shown is None else output.visible(shown)
    return text if full or len(text) <= EXCERPT else text[:EXCERPT] + " ..."


def ls(
    root: Annotated[Path, typer.Argument(help="Where to look.")] = Path("runs"),
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """List what lies below a directory: runs, audits, studies, training runs, GroupEval."""
    if not root.is_dir():
        raise UserError("There is no such directory.", where=root, fix=FIRST)
    entries = list(find(root))
    if as_json:
        output.emit({"root": str(root), "runs": [one.as_dict() for one in entries]})
        return
    if not entries:
        output.note(f"no runs below {root}")
        output.next_command(FIRST)
        return
    output.table(
        ["run", "kind", "checkpoint", "cells", "state"],
        [
            [one.run, one.kind, one.checkpoint or "", _count(one.cells), one.state]
            for one in entries
        ],
    )
    output.next_command(entries[0].look)


def _count(cells: int) -> str:
    return str(cells) if cells else ""
