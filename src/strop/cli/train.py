"""strop train: a checkpoint from text."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from strop.cli import output
from strop.cli.commands import examples
from strop.cli.progress import TERMINAL
from strop.cli.values import changes as read_changes


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        "train",
        epilog=examples(
            "strop train mdlm-tiny -o runs/tiny --prepare-only",
            "strop train my.yaml -o runs/mine --set batch=256 --set model.n_blocks=2",
        ),
    )(train)


def train(
    config: Annotated[
        str, typer.Argument(help="A YAML file, or the name of a shipped configuration.")
    ],
    out: Annotated[
        Path, typer.Option("-o", "--out", help="The run directory; continued if it exists.")
    ],
    data_root: Annotated[
        Path, typer.Option(help="Where the sources' relative paths begin.")
    ] = Path(),
    shards: Annotated[
        Path | None, typer.Option(help="Where the prepared corpus lies; by default in the run.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change one value, e.g. --set model.n_blocks=2; repeatable."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:i.")] = "auto",
    strategy: Annotated[
        str, typer.Option(help="Under torchrun: auto (ddp), ddp or fsdp.")
    ] = "auto",
    prepare_only: Annotated[
        bool, typer.Option("--prepare-only", help="Tokenise the corpus and stop.")
    ] = False,
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """Train by CONFIG into a run directory. The same command continues a run.

    Several devices: torchrun --nproc-per-node N --no-python strop train CONFIG -o RUN
    """
    from strop.training.spec import read_spec

    spec = read_spec(config, read_changes(changes or [], "--set"))
    from strop.training.loop import train as run_training

    with TERMINAL.training() as bar:
        result = run_training(
            spec,
            out=out,
            data_root=data_root,
            shards=shards,
            device=device,
            strategy=strategy,
            prepare_only=prepare_only,
            progress=bar,
        )
    if int(os.environ.get("RANK", "0")):
        return  # the first process speaks for all
    if as_json:
        output.emit(result)
    elif prepare_only:
        manifest = result.get("manifest", {})
        print(f"{result.get('shards')}: {manifest.get('train', {}).get('tokens', 0):,} tokens")
    else:
        _print(result)
    if prepare_only:
        output.next_command(f"strop train {shlex.quote(config)} -o {shlex.quote(str(out))}")
    elif spec.model.family == "mdlm":
        output.next_command(f"strop sample {shlex.quote(result['checkpoint'])} -o runs/samples")
    else:
        output.next_command(f"strop show {shlex.quote(str(out))}")


def show_training(path: Path, as_json: bool) -> None:
    """What `strop show` says of a training run: spec, progress, losses, checkpoints."""
    from strop.training.run import TrainingRun

    run = TrainingRun(path)
    spec, metrics, result = run.spec, run.metrics(), run.result()
    train_ = [entry for entry in metrics if entry["kind"] == "train"]
    held = [entry for entry in metrics if entry["kind"] == "held_out"]
    checkpoints = {step: str(folder) for step, folder in run.checkpoints().items()}
    if as_json:
        output.emit(
            {
                "run": str(path),
                "spec": spec.model_dump(mode="json"),
                "finished": result is not None,
                "result": result,
                "train": train_[-1] if train_ else None,
                "held_out": held,
                "checkpoints": checkpoints,
            }
        )
        return
    model = spec.model
    ends = [f"{spec.steps:,} steps"] if spec.steps is not None else []
    ends += [f"{spec.minutes:g} minutes"] if spec.minutes is not None else []
    print(
        f"{path}: training run {spec.name!r}, {model.family}, {model.hidden_dim} wide, "
        f"{model.n_blocks} blocks, length {spec.data.length}, objective {spec.objective}, "
        f"batch {spec.batch}, seed {spec.seed}"
        + (f", begun with {spec.start}" if spec.start is not None else "")
    )
    done = train_[-1]["step"] if train_ else 0
    state = "finished" if result is not None else "under way or interrupted"
    print(f"{state}: {done:,} steps done of {' or '.join(ends)}")
    if train_:
        print(f"training loss {train_[-1]['loss']:.4f} after {train_[-1]['tokens']:,} tokens")
    if held:
        output.table(
            ["step", "held out (nats per token)", "95% interval", "perplexity", "per character"],
            [_held_row(entry) for entry in held[-8:]],
        )
    for step, folder in checkpoints.items():
        print(f"checkpoint at step {step:,}: {folder}")
    if result is None:
        output.note("the command that made this run continues it")
    elif model.family == "mdlm" and checkpoints:
        last = checkpoints[max(checkpoints)]
        output.next_command(f"strop sample {shlex.quote(last)} -o runs/samples")


def _held_row(entry: dict[str, Any]) -> list[str]:
    character, loss = entry["nats_per_character"], entry["nats_per_token"]
    return [
        str(entry["step"]),
        f"{loss.value:.4f}",
        loss.span(".4f"),
        f"{entry['perplexity'].value:.2f}",
        "" if character is None else f"{character:.4f}",
    ]


def _print(result: dict[str, Any]) -> None:
    held, loss = result["held_out"], result["held_out"]["nats_per_token"]
    bound = "" if held["form"] == "causal" else " at most"
    print(
        f"{result['name']}: {result['steps']:,} steps, {result['tokens']:,} tokens in "
        f"{result['seconds'] / 60:.1f} min; held out {loss.value:.4f} nats per token "
        f"{loss.span('.4f')} on {held['rows']} rows, "
        f"perplexity{bound} {held['perplexity'].value:.2f}"
    )
    print(f"checkpoint: {result['checkpoint']}")
