"""Flags of every verb that loads a checkpoint and draws from it."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from strop.cli import output
from strop.errors import UserError
from strop.table import Table

SETTINGS = Annotated[
    str | None,
    typer.Option(help="What only this sampler has, e.g. eta=0.008 (see docs/samplers.md)."),
]
IMPLEMENTATION = Annotated[str, typer.Option(help="fast, or dense: the public code step by step.")]
NOISE = Annotated[
    str, typer.Option(help="Of dense, drawn on: cpu (the same everywhere), or device.")
]
BATCH_SIZE = Annotated[
    str | None,
    typer.Option(
        help="Sequences at a time, or auto: as many as fit; changes nothing but speed if fast."
    ),
]
DEVICE = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:i.")]
DTYPE = Annotated[
    str,
    typer.Option(
        help="Of the network: auto (float32), float32, bfloat16, float16, or public: the casts of "
        "the family's public code."
    ),
]
REVISION = Annotated[str | None, typer.Option(help="Of a hub id.")]
LOAD = Annotated[
    list[str] | None,
    typer.Option(
        help="An option for transformers (LLaDA, Dream), e.g. attn_implementation=eager, "
        "adapter=DIR; may be repeated."
    ),
]


def batch_of(text: str | None) -> int | Literal["auto"] | None:
    """A number of sequences, or the word."""
    if text is None or text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise UserError(
            "The batch size is no number.",
            where="--batch-size",
            got=text,
            expected="a whole number of at least 1, or auto",
        ) from None


SMOKE = Annotated[bool, typer.Option("--smoke", help="On the embedded models, within minutes.")]


def print_table(table: Table) -> None:
    """A typed table with its title."""
    output.say(table.title)
    output.table(*table.text())
