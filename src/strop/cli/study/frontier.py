"""strop study frontier: perplexity and entropy against temperature."""

from __future__ import annotations

import shlex
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


def frontier(
    out: common.OUT,
    checkpoint: Annotated[str, typer.Argument(help="As for `strop sample`.")] = CHECKPOINT,
    steps: Annotated[str, typer.Option(help="Updates M, e.g. 8,128.")] = "8,128,1024",
    temperature: Annotated[str, typer.Option(help="The sweep.")] = "0.8,0.85,0.9,0.95,1.0,1.05,1.1",
    precision: Annotated[str, typer.Option(help="float64, float32 or both.")] = "float64,float32",
    n: common.OUTPUTS = 128,
    evaluator: common.EVALUATOR_NAME = EVALUATOR,
    span: common.SPAN = "first-document",
    held_out: common.HELD_OUT_FILE = None,
    seed: common.SEED = 0,
    device: common.DEVICE = "auto",
    dtype: common.DTYPE = "auto",
    force: common.FORCE = False,
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """Sweep the temperature of CHECKPOINT at fixed numbers of steps."""
    counts = listed(steps, int, "--steps")
    temperatures = listed(temperature, float, "--temperature")
    precisions = listed(precision, str, "--precision")
    from strop.studies.frontier import run_frontier

    with reporter() as bar:
        how = common.sampling(
            evaluator=evaluator,
            n=n,
            seed=seed,
            span=span,
            held_out=held_out,
            device=device,
            dtype=dtype,
            force=force,
            progress=bar,
        )
        result = run_frontier(
            checkpoint,
            how,
            out=Path(out),
            steps=counts,
            temperatures=temperatures,
            precisions=precisions,
        )
    if as_json:
        output.emit(result)
    else:
        _print(result)
    output.next_command(f"strop report {shlex.quote(out)} -o {shlex.quote(out)}/report.html")


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
