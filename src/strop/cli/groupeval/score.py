"""strop groupeval score: GEQ, GED and what stands beside them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strop.cli import output
from strop.cli.commands import examples
from strop.errors import UserError

if TYPE_CHECKING:
    from strop.groupeval.judgments import Judgments
    from strop.stats.interval import Interval

JUDGED = "A run directory (RUN@SERIES if it has several series), or a .jsonl of judgments."
REPLICATES = typer.Option(help="Draws of the Bayesian bootstrap.")
SEED = typer.Option(help="Of the bootstrap's weights.")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("score", epilog=examples("strop groupeval score runs/ge"))(score)


def score(
    judged: Annotated[str, typer.Argument(metavar="RUN|FILE.jsonl", help=JUDGED)],
    series: Annotated[
        str | None, typer.Option(help="Which judge of a run, as RUN@SERIES says too.")
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help='Whether responses passed, as lines {"cell": ..., "index": ..., "success": ...}.'
        ),
    ] = None,
    portable: Annotated[
        str | None, typer.Option(help="Also write the judgments to this .jsonl file.")
    ] = None,
    replicates: Annotated[int, REPLICATES] = 10_000,
    seed: Annotated[int, SEED] = 0,
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """GEQ with its interval, GED and the diagnostics of every cell, from what was judged.

    Reads judgments only: scoring again costs nothing.
    """
    output.positive("--replicates", replicates)
    from strop.cli.progress import share as counter
    from strop.groupeval.bootstrap import score as evaluate
    from strop.groupeval.judgments import load_judgments

    judged = judged if series is None else f"{judged}@{series}"
    judgments = load_judgments(judged)
    with counter(f"scoring {judged}", replicates * len(judgments.cells)) as told:
        result = evaluate(judgments, replicates=replicates, seed=seed, told=told)
    if labels is not None:
        from strop.groupeval.labelled import conditional, label, read_labels

        data = label(judgments, read_labels(labels))
        result["conditional"] = conditional(data, replicates=replicates, seed=seed)
    _keep(judged, judgments, result, portable)
    if not judgments.modes:
        output.note("note: these judgments have no modes, so there is no GED")
    if len({cell.size for cell in judgments.cells.values()}) > 1:
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


def _keep(judged: str, judgments: Judgments, result: dict[str, Any], portable: str | None) -> None:
    """The result beside the journal that it follows from; the judgments where they are wanted."""
    from strop.disk import write
    from strop.groupeval.judgments import open_series
    from strop.groupeval.portable import text

    if portable is not None:
        write(Path(portable), text(judgments.verdicts).encode())
        output.note(f"wrote {len(judgments.verdicts)} judgments to {portable}")
    if judgments.from_plan and judgments.source == judged:  # all cells of a run
        try:
            open_series(judged).write_result(result)
        except UserError as error:  # a run that may only be read is scored all the same
            output.note(f"note: the result is not kept in the run: {error.what}")


def _print(result: dict[str, Any]) -> None:
    rows = []
    for name, cell in result["cells"].items():
        rows.append(
            [
                name,
                f"{cell['n_groups']} of {cell['n_groups_asked']}",
                _value(cell["geq"]),
                beside(cell),
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
    if "conditional" in result:
        _print_conditional(result["conditional"])


def _print_conditional(told: dict[str, Any]) -> None:
    rows = [
        [
            name,
            f"{told['success'][side]:.1%}",
            *(f"{_value(one)} {interval(one)}" for one in pair),
        ]
        for side, (name, *pair) in enumerate(
            zip(told["generators"], told["cgeq"], told["auroc_by_generator"], strict=True)
        )
    ]
    output.table(["generator", "success", "conditional GEQ", "AUROC"], rows)
    output.table(
        ["over both", "value", "95% interval", "prompts"],
        [
            [name, _value(told[key]), interval(told[key]), str(told[count])]
            for name, key, count in (
                ("GEQ, second minus first", "cgeq_difference", "n_prompts"),
                ("AUROC", "auroc", "n_prompts"),
                ("passed minus failed, one of two passed", "discordant", "n_discordant"),
                ("how often the one that passed is preferred", "preferred", "n_discordant"),
            )
        ],
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
    told = f"GEQ {_range(cell['geq_bounds'])}"
    return told if cell["ged_bounds"] is None else f"{told}, GED {_range(cell['ged_bounds'])}"


def number(value: float | None) -> str:
    """Two decimals, or a dash where there is no value."""
    return "-" if value is None else f"{value:.2f}"


def beside(row: dict[str, Any], key: str = "geq") -> str:
    """The interval of a GEQ or of a difference, with what must be minded about it."""
    told = row.get("geq_interval_mind")
    return interval(row[key]) + (f" ({told})" if told else "")


def interval(found: Interval | None) -> str:
    """Its ends in two decimals, or a dash."""
    return "-" if found is None else found.span(".2f")


def _value(found: Interval | None) -> str:
    return number(None if found is None else found.value)


def _range(pair: list[float]) -> str:
    return f"[{pair[0]:.2f}, {pair[1]:.2f}]"
