"""strop groupeval import-human: a person's answers as a series."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from strop.cli import output
from strop.cli.commands import examples


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        "import-human", epilog=examples("strop groupeval import-human runs/ge judgments-anna.json")
    )(import_human)


def import_human(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run whose page was graded.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="What the page saved.")],
    name: Annotated[
        str | None, typer.Option(help="The person's name in tables; by default as in the file.")
    ] = None,
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """Check a person's answers by the rules of every judge and keep them as another series.

    A file with more groups of the same person adds to the series; nothing is counted twice.
    """
    from strop.groupeval.human import import_answers

    done = import_answers(run, file, name=name)
    judged, asked = len(done.series.verdicts()), done.series.asked
    if as_json:
        output.emit(
            {
                "series": done.series.id,
                "name": done.series.name,
                "added": done.added,
                "known": done.known,
                "n_groups": judged,
                "n_groups_asked": asked,
            }
        )
    else:
        output.say(
            f"{done.series.name} ({done.series.id}): {done.added} groups added, {done.known} "
            f"known before; {judged} of {asked} judged"
        )
    output.next_command(f"strop groupeval score {shlex.quote(f'{run}@{done.series.id}')}")
