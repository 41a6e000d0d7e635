"""strop groupeval plan: cut pools of texts into groups."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from strop.cli import output
from strop.cli.commands import examples
from strop.cli.values import named


def register(app: typer.Typer) -> None:
    """Add the verb."""
    commands = (
        "strop groupeval plan runs/first -o runs/ge",
        "strop groupeval plan a=a.jsonl b=b.jsonl -o runs/ge",
    )
    app.command("plan", epilog=examples(*commands))(plan)


def plan(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="Runs of strop (every cell is a generator), .jsonl or .parquet with a `text` "
            "field, or folders of .txt files; NAME=PATH gives a name.",
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="A new directory.")],
    profile: Annotated[
        str, typer.Option(help="webtext-v1, task-v1, or the directory of your own.")
    ] = "webtext-v1",
    seed: Annotated[int, typer.Option(help="Of partitions and orders.")] = 0,
    partition: Annotated[
        str, typer.Option(help="Second partition: minimum (reuse of pairs), or best-of-2000.")
    ] = "minimum",
    first: Annotated[
        int | None, typer.Option(help="Use only the first outputs of every generator.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            help="Of strop's runs, only cells with these settings, e.g. steps=64,temperature=0.9; "
            "repeat for more."
        ),
    ] = None,
    mixed_sizes: Annotated[
        bool, typer.Option("--mixed-sizes", help="Accept generators of different sizes.")
    ] = False,
    controls: Annotated[
        int, typer.Option(help="Control groups per generator, to test the judge with.")
    ] = 0,
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """Freeze which texts are judged together, in which order, under which profile."""
    from strop.errors import whole_number
    from strop.groupeval.directory import write_plan
    from strop.groupeval.inputs import check, read_inputs
    from strop.groupeval.plan import make_plan
    from strop.groupeval.profile import Profile

    whole_number("seed", seed, 0, 2**63)
    whole_number("controls", controls, 0, 2**10)
    if first is not None:
        output.positive("--first", first)
    rules = Profile.load(profile)
    sources = read_inputs(inputs, first=first, where=[named(one, "--where") for one in where or []])
    check(sources, rules, mixed_sizes=mixed_sizes)
    made, texts = make_plan(sources, rules, seed=seed, method=partition, controls=controls)
    new = write_plan(out, made, rules, texts)
    document = {
        "run": str(out),
        "new": new,
        "profile": made.profile,
        "profile_sha256": made.profile_sha256,
        "plan_sha256": made.hash,
        "cells": made.cells,
        "sheets": len(made.sheets),
        "groups": len(made.groups),
        "controls": len(made.controls),
        "pairs_reused": made.reuse,
    }
    if as_json:
        output.emit(document)
    else:
        sizes = ", ".join(f"{n} outputs: {pairs}" for n, pairs in made.reuse.items())
        output.table(
            ["generator", "outputs", "groups"],
            [
                [name, str(n), str(sum(group.cell == name for group in made.groups))]
                for name, n in made.cells.items()
            ],
        )
        output.say(
            f"{len(made.sheets)} sheets to judge under {made.profile}"
            + (f", {len(made.controls)} of them controls" if controls else "")
            + (f"; pairs of outputs judged together twice: {sizes}" if sizes else "")
            + ("" if new else " (this plan was there already)")
        )
    place = shlex.quote(str(out))
    output.next_command(
        f"strop groupeval judge {place} --base-url URL --model NAME --dry-run  (or --offline)"
    )
