"""strop study cost: memory and time per sequence against the number of steps."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from strop.assets import CHECKPOINT
from strop.cli import output
from strop.cli.values import listed

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the study."""
    app.command("cost")(cost)


def cost(
    out: Annotated[str, typer.Option("-o", "--out", help="The directory; continued if it exists.")],
    checkpoint: Annotated[str, typer.Argument(help="As for `strop sample`.")] = CHECKPOINT,
    steps: Annotated[str, typer.Option(help="Updates M, e.g. 16,64.")] = "1,4,16,64,256,1024",
    implementation: Annotated[str, typer.Option(help="dense, fast or both.")] = "dense,fast",
    batch_size: Annotated[int, typer.Option(help="Sequences per batch.")] = 8,
    batches: Annotated[int, typer.Option(help="Measured batches per cell.")] = 3,
    warmup: Annotated[int, typer.Option(help="Batches before them that do not count.")] = 1,
    seed: Annotated[int, typer.Option(help="Root seed of the outputs.")] = 0,
    length: Annotated[
        int | None, typer.Option(help="Tokens per output; the model's by default.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:i.")] = "auto",
    dtype: Annotated[str, typer.Option(help="Of the network.")] = "auto",
    force: Annotated[bool, typer.Option("--force", help="Measure everything anew.")] = False,
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """Measure what standard and sharpened sampling of CHECKPOINT cost, dense and fast.

    Cells that are on disk are not measured again; nothing else should run on the machine meanwhile.
    """
    counts = listed(steps, int, "--steps")
    names = listed(implementation, str, "--implementation")
    from strop.studies.cost import run_cost

    with output.warnings_noted():
        result = run_cost(
            checkpoint,
            out=Path(out),
            steps=counts,
            implementations=names,
            batch_size=batch_size,
            batches=batches,
            warmup=warmup,
            seed=seed,
            length=length,
            device=device,
            dtype=dtype,
            force=force,
            note=output.note,
        )
    if as_json:
        output.emit(result)
    else:
        _print(result)
    folder = shlex.quote(out)
    output.note(f"written: {folder}/result.json, table.csv, cost.svg, cost.png")
    missing = sum(row["failure"] is not None for row in result["rows"])
    if missing:
        output.note(f"strop: {missing} cells could not be measured; run the same command again")
        raise typer.Exit(2)
    again = f"strop sample {shlex.quote(checkpoint)} --temperature 0.9 --precision float32"
    output.next_command(f"{again} -o runs/sharpened")


def _print(result: dict[str, Any]) -> None:
    asked = result["asked"]
    output.say(
        f"{result['device']}; batch {asked['batch']}, {asked['batches']} measured batches, "
        f"length {asked['length']}; per sequence"
    )
    output.table(
        [
            "updates",
            "sampler",
            "setting",
            "calls",
            "seconds",
            "range",
            "CPU s",
            "peak GiB",
            "extra",
        ],
        [_line(row) for row in result["rows"]],
    )
    if result["comparisons"]:
        output.say("\nAgainst each other")
        output.table(
            ["updates", "what", "against", "peak memory", "throughput", "calls"],
            [
                [
                    str(one["updates"]),
                    one["what"],
                    one["against"],
                    _number(one["memory_saved"], lambda saved: f"{-saved:+.1%}"),
                    f"{one['throughput']:.3g}x",
                    f"{one['calls']:.2f}x",
                ]
                for one in result["comparisons"]
            ],
        )


def _line(row: dict[str, Any]) -> list[str]:
    head = [str(row["updates"]), row["implementation"], row["setting"]]
    if row["failure"] is not None:
        return [*head, "failed: " + str(row["failure"]), "", "", "", "", ""]
    return [
        *head,
        f"{row['calls']:.1f}",
        f"{row['seconds']:.4g}",
        f"{row['seconds_low']:.3g} to {row['seconds_high']:.3g}",
        f"{row['cpu_seconds']:.4g}",
        _number(row["peak_gib"], lambda gib: f"{gib:.3f}"),
        _number(row["extra_gib"], lambda gib: f"{gib:.3f}"),
    ]


def _number(value: float | None, text: Any) -> str:
    return "not measured" if value is None else text(value)
