"""strop precision: what the float32 draw does to a checkpoint."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from strop.assets import CHECKPOINT
from strop.cli import output
from strop.cli.commands import examples
from strop.cli.values import listed
from strop.errors import whole_number
from strop.spec import OUTPUT_LIMIT, SEED_LIMIT, SamplerSpec


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        "precision",
        epilog=examples("strop precision", "strop precision embedded:tales --steps 64,1024"),
    )(precision)


def precision(
    checkpoint: Annotated[str, typer.Argument(help="As for `strop sample`.")] = CHECKPOINT,
    steps: Annotated[str, typer.Option(help="Updates M, e.g. 64,1024.")] = "64,1024",
    temperature: Annotated[float, typer.Option(help="tau of the draw.")] = 1.0,
    top_p: Annotated[float, typer.Option(help="Nucleus of the draw.")] = 1.0,
    samples: Annotated[int, typer.Option(help="Outputs whose contexts are looked at.")] = 4,
    rows: Annotated[int, typer.Option(help="Masked positions per level.")] = 64,
    reveals: Annotated[
        int, typer.Option(help="Reveals to count per level in draws from the exact law.")
    ] = 4_000,
    seed: Annotated[int, typer.Option(help="Root seed.")] = 0,
    length: Annotated[int | None, typer.Option(help="Tokens per output.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:i.")] = "auto",
    dtype: Annotated[str, typer.Option(help="Of the network.")] = "auto",
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """Say how much probability the float32 draw truncates, and how entropy and timing shift."""
    counts = listed(steps, int, "--steps")
    output.positive("--samples", samples)
    output.positive("--rows", rows)
    output.positive("--reveals", reveals)
    whole_number("seed", seed, 0, SEED_LIMIT)
    if length is not None:
        whole_number("length", length, 1, OUTPUT_LIMIT)
    for m in counts:
        SamplerSpec(steps=m, temperature=temperature, top_p=top_p)
    from strop.denoisers import load_denoiser
    from strop.instruments.precision import describe

    with output.warnings_noted():
        denoiser = load_denoiser(checkpoint, device=device, dtype=dtype)
    reports = [
        describe(
            denoiser,
            steps=m,
            temperature=temperature,
            top_p=top_p,
            samples=samples,
            rows=rows,
            reveals=reveals,
            seed=seed,
            length=length,
        )
        for m in counts
    ]
    if as_json:
        output.emit({"checkpoint": checkpoint, "reports": [r.as_dict() for r in reports]})
        return
    for report in reports:
        output.say(
            f"\nM = {report.steps}, tau = {report.temperature:g}: float32 draw against float64"
        )
        output.table(
            [
                "hidden share",
                "truncated",
                "entropy (nats)",
                "in float32",
                "reveal ratio",
                "counted",
            ],
            [
                [
                    f"{level.hidden_share:.3f}",
                    f"{level.truncated:.2%}",
                    f"{level.entropy:.3f}",
                    f"{level.entropy_float32:.3f}",
                    f"{level.reveal_float32 / level.reveal:.4f}",
                    f"{level.reveal_drawn / level.reveal:.4f}"
                    f" ± {level.reveal_drawn_error / level.reveal:.4f}",
                ]
                for level in report.levels
            ],
        )
        output.say(
            f"mean reveal at {report.mean_reveal_float32:.3f} of the steps "
            f"(exact {report.mean_reveal:.3f}); left to the finish "
            f"{report.leftover_float32:.2e} (exact {report.leftover:.2e})"
        )
    again = f"strop sample {shlex.quote(checkpoint)} --steps {steps}"
    output.next_command(f"{again} --precision float64,float32 -o runs/precision")
