"""strop groupeval compare: the difference between two settings."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer

from strop.cli import output
from strop.cli.commands import examples
from strop.cli.groupeval.score import REPLICATES, SEED, beside, number

SIDE = "RUN or FILE.jsonl, RUN@SERIES, and :CELL behind it for one cell."


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("compare", epilog=examples("strop groupeval compare RUN:standard RUN:sharpened"))(
        compare
    )


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help=SIDE)],
    b: Annotated[str, typer.Argument(metavar="B", help=SIDE)],
    replicates: Annotated[int, REPLICATES] = 10_000,
    seed: Annotated[int, SEED] = 0,
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """B minus A: GEQ with a 95% interval, GED without one.

    Refuses different profiles, judges and group sizes. Without :CELL it pairs cells by name.
    """
    output.positive("--replicates", replicates)
    from strop.groupeval.comparison import compare as evaluate
    from strop.groupeval.judgments import load_judgments

    result = evaluate(load_judgments(a), load_judgments(b), replicates=replicates, seed=seed)
    if result["unchecked"]:
        told = " and ".join(result["unchecked"])
        output.note(f"note: a file of judgments does not name its {told}: that they match is yours")
    if as_json:
        output.emit(result)
    else:
        _print(result)
    output.next_command(f"strop groupeval agree {shlex.quote(a)} OTHER-JUDGE")


def _print(result: dict[str, Any]) -> None:
    rows = [
        [
            row["cell_a"]
            if row["cell_a"] == row["cell_b"]
            else f"{row['cell_a']} → {row['cell_b']}",
            f"{row['n_groups_a']} of {row['n_groups_asked_a']}, "
            f"{row['n_groups_b']} of {row['n_groups_asked_b']}",
            f"{number(row['geq_a'])} → {number(row['geq_b'])}",
            f"{row['geq_difference'].value:+.2f} {beside(row, 'geq_difference')}",
            f"{number(row['ged_a'])} → {number(row['ged_b'])}",
            "-" if row["ged_difference"] is None else f"{row['ged_difference']:+.2f}",
        ]
        for row in result["pairs"]
    ]
    titles = ["A → B", "groups judged", "GEQ", "B minus A [95%]", "GED", "B minus A"]
    output.table(titles, rows)
