"""strop study collapse: a generator of two outputs that per-output scores prefer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from strop.assets import CHECKPOINT, EVALUATOR
from strop.cli import output
from strop.cli.progress import reporter
from strop.cli.study import common

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the study."""
    app.command("collapse")(collapse)


@common.drawing(n=128, evaluator=EVALUATOR)
def collapse(
    shared: common.Drawing,
    checkpoint: Annotated[str, typer.Argument(help="As for `strop sample`.")] = CHECKPOINT,
    steps: Annotated[int, typer.Option(help="Updates M.")] = 64,
    temperature: Annotated[float, typer.Option(help="tau.")] = 1.0,
    precision: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
) -> None:
    """Put an honest pool beside one that repeats two of its outputs: perplexity, entropy, GED."""
    from strop.studies.collapse import run_collapse
    from strop.studies.selection import Setting

    with reporter() as bar:
        how = shared.sampling(bar)
        result = run_collapse(
            checkpoint,
            how,
            out=Path(shared.out),
            steps=steps,
            setting=Setting(temperature, precision),
        )
    shared.tell(result, _print)
    output.next_command(
        f"strop groupeval judge {shared.folder}/groupeval --base-url URL --model NAME"
    )


def _print(result: dict[str, Any]) -> None:
    rows = result["rows"]
    names = [name for name in rows[0] if name not in ("generator", "distinct outputs")]
    output.table(
        ["generator", "distinct outputs", *names],
        [
            [row["generator"], str(row["distinct outputs"]), *(f"{row[n]:.3f}" for n in names)]
            for row in rows
        ],
    )
    output.say(
        f"The control repeats outputs {result['pair'][0]} and {result['pair'][1]}. Perplexity and "
        f"entropy prefer it by construction; its GED is at most {result['ceiling']:.2f}. "
        "GEQ and GED are by " + ", ".join(result["judges"]) + "."
    )
