"""strop train: a checkpoint from text."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from strop.cli import output
from strop.cli.examples import examples
from strop.cli.progress import LINE_SECONDS
from strop.errors import UserError


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

    spec = read_spec(config, _changes(changes or []))
    from strop.training.loop import train as run_training

    with _reporter() as bar:
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


def _changes(texts: list[str]) -> dict[str, Any]:
    import yaml

    from strop.store.documents import load_yaml

    found = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise UserError(
                "--set needs a key and a value.", where="--set", got=text, expected="key=value"
            )
        try:
            found[key] = load_yaml(value)
        except yaml.YAMLError:
            raise UserError("The value cannot be read.", where="--set", got=text) from None
        if isinstance(found[key], str):  # YAML reads 1e-3 as a word; people mean a number
            try:
                found[key] = float(found[key])
            except ValueError:
                continue
    return found


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


class _Bar:
    """A rich bar: loss, tokens per second, time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        self._progress = Progress(
            TextColumn("step {task.fields[step]:,}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("loss {task.fields[loss]}  {task.fields[speed]} tok/s  {task.fields[left]}"),
            console=Console(stderr=True),
        )
        self._task = None

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """A line above the bar."""
        self._progress.console.print(output.harmless(text), markup=False, highlight=False)

    def advance(self, step: int, share: float, loss: float, speed: float, left: float) -> None:
        """Move it."""
        told = {
            "step": step,
            "loss": f"{loss:.3f}",
            "speed": f"{speed:,.0f}",
            "left": f"{_duration(left)} left",
        }
        if self._task is None:
            self._task = self._progress.add_task("", total=1.0, **told)
        self._progress.update(self._task, completed=share, **told)


class _Lines:
    """A line every few seconds, for logs."""

    def __enter__(self) -> _Lines:
        self._told = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def say(self, text: str) -> None:
        """A line of its own."""
        print(text, file=sys.stderr, flush=True)

    def advance(self, step: int, share: float, loss: float, speed: float, left: float) -> None:
        """Now and then, and at the end."""
        now = time.monotonic()
        if share >= 1 or now - self._told > LINE_SECONDS:
            self._told = now
            self.say(
                f"step {step:,} ({share:.1%}), loss {loss:.4f}, {speed:,.0f} tokens/s, "
                f"{_duration(left)} left"
            )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"


def _reporter() -> _Bar | _Lines:
    return _Bar() if sys.stderr.isatty() else _Lines()
