"""strop groupeval export-human: the plan as a page that a person grades in a browser."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from strop.cli import output
from strop.cli.commands import examples

PAGE = "human.html"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        "export-human", epilog=examples("strop groupeval export-human runs/ge -o judge.html")
    )(export_human)


def export_human(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A planned run directory.")],
    out: Annotated[
        str | None, typer.Option("-o", "--out", help=f"The page; by default RUN/{PAGE}.")
    ] = None,
    first: Annotated[
        int | None,
        typer.Option(help="Only the first so many groups: the order is random, so it is a sample."),
    ] = None,
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """Write the blinded groups as one self-contained page: open it, grade, download, import."""
    if first is not None:
        output.positive("--first", first)
    from strop.disk import write
    from strop.groupeval.human import human_page

    page = human_page(run, first=first).encode()
    path = Path(out) if out else Path(run) / PAGE
    write(path, page)
    if as_json:
        output.emit({"page": str(path), "bytes": len(page)})
    else:
        output.say(f"{path}: {len(page):,} bytes, needs no network")
    output.next_command(f"strop groupeval import-human {shlex.quote(run)} judgments-NAME.json")
