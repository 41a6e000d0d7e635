"""What the studies of sampled outputs share on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strop.cli import output

if TYPE_CHECKING:
    from strop.progress import Progress
    from strop.studies.sampled import Sampling

__all__ = [
    "DEVICE",
    "DTYPE",
    "EVALUATOR_NAME",
    "FORCE",
    "HELD_OUT_FILE",
    "OUT",
    "OUTPUTS",
    "SEED",
    "SPAN",
    "sampling",
]

OUT = Annotated[str, typer.Option("-o", "--out", help="The directory; continued if it exists.")]
OUTPUTS = Annotated[int, typer.Option("-n", "--n", help="Outputs per cell.")]
EVALUATOR_NAME = Annotated[str, typer.Option("--evaluator", help="The language model that scores.")]
SPAN = Annotated[str, typer.Option("--span", help="first-document, full-stream or public-code.")]
HELD_OUT_FILE = Annotated[
    Path | None,
    typer.Option("--held-out", help="JSON lines with text and ids, for the entropy guard."),
]
SEED = Annotated[int, typer.Option("--seed", help="Root seed.")]
DEVICE = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:i.")]
DTYPE = Annotated[str, typer.Option("--dtype", help="Of the generator's network.")]
FORCE = Annotated[bool, typer.Option("--force", help="Draw and measure everything anew.")]


def sampling(
    *,
    evaluator: str,
    n: int,
    seed: int,
    span: str,
    held_out: Path | None,
    device: str,
    dtype: str,
    force: bool,
    progress: Progress,
) -> Sampling:
    """How outputs are drawn and scored, with the evaluator loaded."""
    output.positive("-n", n)
    from strop.metrics.entropy import read_held_out
    from strop.metrics.evaluator import load_evaluator
    from strop.studies.sampled import Sampling

    with output.warnings_noted():
        loaded = load_evaluator(evaluator, device=device)
    return Sampling(
        evaluator=loaded,
        n=n,
        seed=seed,
        span=span,  # type: ignore[arg-type]  # the metric refuses what it does not know
        held_out=read_held_out(held_out),
        device=device,
        dtype=dtype,
        force=force,
        progress=progress,
    )
