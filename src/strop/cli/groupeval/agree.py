"""strop groupeval agree: how far judges agree."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strop.cli import output
from strop.cli.commands import examples
from strop.cli.groupeval.score import JUDGED, number
from strop.errors import UserError


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("agree", epilog=examples("strop groupeval agree RUN@gpt-oss RUN@anna"))(agree)


def agree(
    judges: Annotated[list[str], typer.Argument(metavar="A B...", help="Two or more: " + JUDGED)],
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """Agreement of judges of one plan: alpha on grades, adjusted Rand on modes, ranks of cells."""
    if len(judges) < 2:
        raise UserError(
            "Agreement needs two judges.",
            where="strop groupeval agree",
            got=judges[0],
            expected="two or more, such as RUN@gpt-oss RUN@human or two files",
        )
    from strop.groupeval.judgments import load_judgments
    from strop.groupeval.trust import agree as evaluate

    result = evaluate([load_judgments(name) for name in judges])
    if as_json:
        output.emit(result)
    else:
        _print(result)
    output.next_command(f"strop groupeval score {judges[0]}")


def _print(result: dict[str, Any]) -> None:
    asked = f"{result['n_groups']} of {result['n_groups_asked']} groups"
    output.say(f"{asked}, {result['n_outputs']} graded outputs that all judges have in common")
    alphas = result["alpha"].items()
    output.table(["grade", "Krippendorff's alpha"], [[name, number(a)] for name, a in alphas])
    modes = {(row["a"], row["b"]): row for row in result["modes"] or []}
    rows = []
    for row in result["rank_correlations"]:
        mode = modes.get((row["a"], row["b"]), {})
        rows.append(
            [
                row["a"],
                row["b"],
                number(mode.get("adjusted_rand")),
                str(mode.get("n_pairs", "-")),
                number(row["geq"]),
                number(row["ged"]),
                str(row["n_cells"]),
            ]
        )
    titles = ["A", "B", "modes: adjusted Rand", "pairs", "rank of GEQ", "rank of GED", "cells"]
    output.table(titles, rows)
