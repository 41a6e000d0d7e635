"""Flags of every verb that loads a checkpoint and draws from it."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "BATCH_SIZE",
    "DEVICE",
    "DTYPE",
    "IMPLEMENTATION",
    "LOAD",
    "REVISION",
    "SETTINGS",
]

SETTINGS = Annotated[
    str | None,
    typer.Option(help="What only this sampler has, e.g. eta=0.008 (see docs/samplers.md)."),
]
IMPLEMENTATION = Annotated[str, typer.Option(help="fast, or dense: the public code step by step.")]
BATCH_SIZE = Annotated[
    int | None, typer.Option(help="Sequences at a time; changes nothing but speed if fast.")
]
DEVICE = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:i.")]
DTYPE = Annotated[str, typer.Option(help="Of the network: auto (float32), bfloat16, float16.")]
REVISION = Annotated[str | None, typer.Option(help="Of a hub id.")]
LOAD = Annotated[
    list[str] | None,
    typer.Option(
        help="An option for transformers (LLaDA, Dream), e.g. attn_implementation=eager, "
        "adapter=DIR; may be repeated."
    ),
]
