"""strop groupeval score: GEQ, GED and what stands beside them."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer

from strop.cli import output

__all__ = ["JUDGED", "REPLICATES", "SEED", "number", "register", "span"]

JUDGED = "A run directory (RUN@SERIES if it has several series), or a .jsonl of judgments."
REPLICATES = typer.Option(help="Draws of the Bayesian bootstrap.")
SEED = typer.Option(help="Of the bootstrap's weights.")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("score")(score)


def score(
    judged: Annotated[str, typer.Argument(metavar="RUN|FILE.jsonl", help=JUDGED)],
    replicates: Annotated[int, REPLICATES] = 10_000,
    seed: Annotated[int, SEED] = 0,
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """GEQ with its interval, GED and the diagnostics of every cell, from what was judged.

    Reads judgments only: scoring again costs nothing.
    """
    output.positive("--replicates", replicates)
    from strop.groupeval.result import score as evaluate
    from strop.groupeval.verdicts import load

    verdicts = load(judged)
    result = evaluate(verdicts, replicates=replicates, seed=seed)
    if not verdicts.modes:
        output.note("note: these judgments have no modes, so there is no GED")
    if len({cell.size for cell in verdicts.cells.values()}) > 1:
        output.note("note: the cells have different group sizes; their GED are not comparable")
    if as_json:
        output.emit(result)
    else:
        _print(result)
    name = shlex.quote(judged)
    cells = [shlex.quote(f"{judged}:{cell}") for cell in list(result["cells"])[:2]]
    output.next_command(
        f"strop groupeval compare {' '.join(cells)}"
        if len(cells) == 2
        else f"strop groupeval compare {name} OTHER"
    )


def _print(result: dict[str, Any]) -> None:
    rows = []
    for name, cell in result["cells"].items():
        rows.append(
            [
                name,
                f"{cell['n_groups']} of {cell['n_groups_asked']}",
                number(cell["geq"]),
                span(cell["geq_interval"]),
                number(cell["ged"]),
                *(number(cell.get(key)) for key in _COLUMNS),
                _bounds(cell),
            ]
        )
    titles = ["cell", "groups judged", "GEQ", "95% interval", "GED", *_COLUMNS.values(), "possible"]
    output.table(titles, rows)
    output.say(
        "GEQ intervals hold given these judgments and partitions. GED has no interval. "
        '"possible": where GEQ and GED may still go when the missing groups are judged.'
    )


_COLUMNS = {
    "invalid_rate": "invalid",
    "effective_modes": "modes",
    "dominant_share": "dominant",
    "singleton_rate": "singleton",
    "ceiling_rate": "ceiling",
    "hybrid_rate": "hybrid",
    "non_high_confidence_rate": "not sure",
}


def _bounds(cell: dict[str, Any]) -> str:
    if cell["n_groups"] == cell["n_groups_asked"]:
        return "complete"
    told = f"GEQ {span(cell['geq_bounds'])}"
    return told if cell["ged_bounds"] is None else f"{told}, GED {span(cell['ged_bounds'])}"


def number(value: float | None) -> str:
    """Two decimals, or a dash where there is no value."""
    return "-" if value is None else f"{value:.2f}"


def span(pair: list[float] | None) -> str:
    """An interval in two decimals."""
    return "-" if pair is None else f"[{pair[0]:.2f}, {pair[1]:.2f}]"
