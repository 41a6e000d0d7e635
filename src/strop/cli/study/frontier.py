"""strop study frontier: perplexity and entropy against temperature."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from strop.assets import CHECKPOINT, EVALUATOR
from strop.cli import output
from strop.cli.progress import reporter
from strop.cli.study import common
from strop.cli.values import listed

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the study."""
    app.command("frontier")(frontier)


@common.drawing(n=128, evaluator=EVALUATOR)
def frontier(
    shared: common.Drawing,
    checkpoint: Annotated[str, typer.Argument(help="As for `strop sample`.")] = CHECKPOINT,
    steps: Annotated[str, typer.Option(help="Updates M, e.g. 8,128.")] = "8,128,1024",
    temperature: Annotated[str, typer.Option(help="The sweep.")] = "0.8,0.85,0.9,0.95,1.0,1.05,1.1",
    precision: Annotated[str, typer.Option(help="float64, float32 or both.")] = "float64,float32",
) -> None:
    """Sweep the temperature of CHECKPOINT at fixed numbers of steps."""
    counts = listed(steps, int, "--steps")
    temperatures = listed(temperature, float, "--temperature")
    precisions = listed(precision, str, "--precision")
    from strop.studies.frontier import run_frontier

    with reporter() as bar:
        how = shared.sampling(bar)
        result = run_frontier(
            checkpoint,
            how,
            out=Path(shared.out),
            steps=counts,
            temperatures=temperatures,
            precisions=precisions,
        )
    shared.tell(result, _print)
    output.next_command(f"strop report {shared.folder} -o {shared.folder}/report.html")


def _print(result: dict[str, Any]) -> None:
    rows = result["rows"]
    columns = list(dict.fromkeys((row["steps"], row["precision"]) for row in rows))
    cells = {(row["temperature"], row["steps"], row["precision"]): row for row in rows}
    output.table(
        ["tau", *(f"M={steps} {precision}" for steps, precision in columns)],
        [
            [f"{tau:g}", *(_entry(cells[tau, *column]) for column in columns)]
            for tau in dict.fromkeys(row["temperature"] for row in rows)
        ],
    )
    guard = result["guard"]
    if guard["threshold"] is not None:
        output.say(f"† mean entropy below {guard['threshold']:.2f}: {guard['source']}")


def _entry(row: dict[str, Any]) -> str:
    mark = "†" if row["below_guard"] else ""
    return f"{row['perplexity']:.1f}{mark} [{row['entropy']:.2f}]"
