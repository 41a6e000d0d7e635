"""strop study collapse: a generator of two outputs that per-output scores prefer."""

from __future__ import annotations

import shlex
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


def collapse(
    out: common.OUT,
    checkpoint: Annotated[str, typer.Argument(help="As for `strop sample`.")] = CHECKPOINT,
    steps: Annotated[int, typer.Option(help="Updates M.")] = 64,
    temperature: Annotated[float, typer.Option(help="tau.")] = 1.0,
    precision: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
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
    """Put an honest pool beside one that repeats two of its outputs: perplexity, entropy, GED."""
    from strop.studies.collapse import run_collapse
    from strop.studies.selection import Setting

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
        result = run_collapse(
            checkpoint, how, out=Path(out), steps=steps, setting=Setting(temperature, precision)
        )
    if as_json:
        output.emit(result)
    else:
        _print(result)
    output.next_command(
        f"strop groupeval judge {shlex.quote(out)}/groupeval --base-url URL --model NAME"
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
