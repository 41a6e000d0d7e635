"""strop models: the checkpoints known by name, and a look at any."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Annotated, Any

import typer

from strop.cli import output
from strop.cli.examples import examples
from strop.cli.sample import FAMILY_HELP, checked_weights
from strop.records import FAMILIES, default_sampler


def register(app: typer.Typer) -> None:
    """Add the verb and its one command."""
    models = typer.Typer(
        invoke_without_command=True,
        help="Known checkpoints, and a look at any.",
        epilog=examples("strop models", "strop models check embedded:tales"),
    )
    models.callback()(listing)
    models.command(
        "check",
        epilog=examples(
            "strop models check embedded:tales", "strop models check louaaron/sedd-small"
        ),
    )(check)
    app.add_typer(models, name="models")


def listing(context: typer.Context, as_json: Annotated[bool, output.JSON_FLAG] = False) -> None:
    """List the public checkpoints that strop knows, and what was verified about each."""
    if context.invoked_subcommand is not None:
        return
    from strop.assets.known import known_models

    known = known_models()
    if as_json:
        output.emit(
            {
                "models": [
                    dataclasses.asdict(one)
                    | {
                        "sampler": default_sampler(one.family),
                        "precision": FAMILIES[one.family].precision,
                    }
                    for one in known
                ]
            }
        )
        return
    output.table(
        [
            "name",
            "short",
            "family",
            "hub id",
            "parameters",
            "licence",
            "sampler",
            "draw",
            "verified",
        ],
        [
            [
                one.name,
                one.alias,
                one.family,
                one.source,
                f"{one.parameters / 1e6:.0f}M",
                one.licence,
                default_sampler(one.family),
                FAMILIES[one.family].precision or "",
                one.verified,
            ]
            for one in known
        ],
    )
    output.next_command(f"strop models check {known[0].source}")


def check(
    source: Annotated[str, typer.Argument(help="As for `strop sample`.")],
    family: Annotated[str | None, typer.Option(help=FAMILY_HELP)] = None,
    weights: Annotated[
        str | None, typer.Option(help="Of a training file: ema (default) or raw.")
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Of a hub id.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:i.")] = "auto",
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """Load SOURCE, name its family, compare its shapes and draw two short outputs."""
    chosen = checked_weights(weights)
    from strop.draw.check import check_model

    with output.warnings_noted():
        found = check_model(source, revision=revision, weights=chosen, family=family, device=device)
    pool = found.pool
    outputs = [
        {"ids": ids, "text": None if pool.texts is None else pool.texts[i], "nfe": pool.nfe[i]}
        for i, ids in enumerate(pool.ids)
    ]
    document: dict[str, Any] = {
        "source": found.source,
        "family": found.family,
        "weights": found.weights,
        "parameters": found.parameters,
        "shape": found.shape,
        "sampler": pool.spec.generator.sampler.model_dump(mode="json"),
        "outputs": outputs,
    }
    if as_json:
        output.emit(document)
        return
    sizes = ", ".join(f"{name} {count:,}" for name, count in found.parameters.items())
    output.say(f"{found.source}: {found.family}, {found.weights} weights")
    output.say(f"parameters: {sizes}; every tensor has the shape that the family needs")
    output.say("shape: " + ", ".join(f"{k} {v}" for k, v in found.shape.items()))
    output.say(f"sampler: {pool.spec.generator.sampler.name}")
    for one in outputs:
        shown = one["text"] if one["text"] is not None else str(one["ids"].tolist())
        output.say(f"  {one['nfe']} network calls: {output.visible(shown)}")
    again = f" --family {family}" if family else ""
    output.next_command(f"strop sample {shlex.quote(source)}{again} --steps 16,64 -o runs/x")
