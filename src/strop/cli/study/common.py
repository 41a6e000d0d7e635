"""What the studies of sampled outputs share on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strop.cli import output
from strop.errors import UserError

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
    "SMOKE",
    "SMOKE_NOTE",
    "SPAN",
    "alone",
    "beside",
    "number",
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

SMOKE = Annotated[bool, typer.Option("--smoke", help="On the embedded models, within minutes.")]
SMOKE_NOTE = (
    "Measured on the embedded models: other data, another vocabulary, 128 tokens, a small "
    "evaluator and a judge that counts. Compare the shape of the columns, not the numbers."
)


def alone(flag: str, given: bool, models: Sequence[str] | None) -> None:
    """Refuse models beside a flag that brings its own, instead of ignoring them."""
    if given and models:
        raise UserError(
            f"{flag} brings its own models.",
            where=flag,
            got=", ".join(models),
            fix=f"leave out {flag}, or the models",
        )


def beside(keys: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """The paper's numbers and the measured ones, one line per row."""
    extra = [k for k in ("measured_entropy", "GED") if any(k in row for row in rows)]
    output.table(
        [*keys, "paper", "measured", "95% interval", *extra],
        [
            [
                *(str(row[key]) for key in keys),
                number(row["paper"]),
                number(row["measured"]) + ("†" if row.get("below_guard") else ""),
                f"{number(row['low'])} to {number(row['high'])}",
                *(number(row[k]) if k in row else "" for k in extra),
            ]
            for row in rows
        ],
    )


def number(value: Any) -> str:
    """Four digits, or a dash where there is none."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


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
    from strop.metrics.evaluator import load_evaluator
    from strop.metrics.heldout import read_texts
    from strop.studies.sampled import Sampling

    with output.warnings_noted():
        loaded = load_evaluator(evaluator, device=device)
    return Sampling(
        evaluator=loaded,
        n=n,
        seed=seed,
        span=span,  # type: ignore[arg-type]  # the metric refuses what it does not know
        held_out=read_texts(held_out),
        device=device,
        dtype=dtype,
        force=force,
        progress=progress,
    )
