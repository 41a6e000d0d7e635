"""strop train: a checkpoint from text."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.verbs import parameters
from strop.verbs.verb import Ask, Parameter, Part, Result, Verb, grid, quoted

if TYPE_CHECKING:
    from strop.training.spec import TrainSpec


def _run(ask: Ask) -> Result:
    from strop.training.spec import read_spec

    config, out = ask["config"], ask["out"]
    spec = read_spec(config, ask["set"] or {})
    from strop.training.loop import train

    with ask.bars.training() as bar:
        trained = train(
            spec,
            out=Path(out),
            progress=bar,
            **ask.some("data_root", "shards", "device", "strategy", "prepare_only"),
        )
    if int(os.environ.get("RANK", "0")):
        return Result(silent=True, value=trained)  # the first process reports for all
    if ask["prepare_only"]:
        count = trained.get("manifest", {}).get("train", {}).get("tokens", 0)
        parts = [f"{trained.get('shards')}: {count:,} tokens"]
        name = config if isinstance(config, str) else spec.name
        following = f"strop train {quoted(name)} -o {quoted(out)}"
    else:
        parts = _trained(trained)
        following = f"strop show {quoted(out)}"
        if spec.model.family == "mdlm":
            following = f"strop sample {quoted(trained['checkpoint'])} -o runs/samples"
    return Result(parts=tuple(parts), json=trained, next=following, value=trained)


def _trained(trained: dict[str, Any]) -> list[str]:
    held, loss = trained["held_out"], trained["held_out"]["nats_per_token"]
    bound = "" if held["form"] == "causal" else " at most"
    return [
        f"{trained['name']}: {trained['steps']:,} steps, {trained['tokens']:,} tokens in "
        f"{trained['seconds'] / 60:.1f} min; held out {loss.value:.4f} nats per token "
        f"{loss.span('.4f')} on {held['rows']} rows, "
        f"perplexity{bound} {held['perplexity'].value:.2f}",
        f"checkpoint: {trained['checkpoint']}",
    ]


def training_run(path: Path) -> Result:
    """What `strop show` says of a training run: spec, progress, losses, checkpoints."""
    from strop.training.run import TrainingRun

    run = TrainingRun(path)
    spec, metrics, result = run.spec, run.metrics(), run.result()
    steps = [entry for entry in metrics if entry["kind"] == "train"]
    held = [entry for entry in metrics if entry["kind"] == "held_out"]
    checkpoints = {step: str(folder) for step, folder in run.checkpoints().items()}
    parts: list[Part] = _described(path, spec)
    ends = [f"{spec.steps:,} steps"] if spec.steps is not None else []
    ends += [f"{spec.minutes:g} minutes"] if spec.minutes is not None else []
    done = steps[-1]["step"] if steps else 0
    state = "finished" if result is not None else "under way or interrupted"
    parts.append(f"{state}: {done:,} steps done of {' or '.join(ends)}")
    if steps:
        last = steps[-1]
        parts.append(f"training loss {last['loss']:.4f} after {last['tokens']:,} tokens")
    if held:
        header = ["step", "held out (nats per token)", "95% interval", "perplexity"]
        parts.append(grid([*header, "per character"], [_held_row(entry) for entry in held[-8:]]))
    parts += [f"checkpoint at step {step:,}: {folder}" for step, folder in checkpoints.items()]
    sampled = result is not None and spec.model.family == "mdlm" and bool(checkpoints)
    return Result(
        parts=tuple(parts),
        json={
            "run": str(path),
            "spec": spec.model_dump(mode="json"),
            "finished": result is not None,
            "result": result,
            "train": steps[-1] if steps else None,
            "held_out": held,
            "checkpoints": checkpoints,
        },
        remarks=() if result is not None else ("the command that made this run continues it",),
        next=f"strop sample {quoted(checkpoints[max(checkpoints)])} -o runs/samples"
        if sampled
        else None,
        value=run,
    )


def _described(path: Path, spec: TrainSpec) -> list[Part]:
    model = spec.model
    begun = f", begun with {spec.start}" if spec.start is not None else ""
    return [
        f"{path}: training run {spec.name!r}, {model.family}, {model.hidden_dim} wide, "
        f"{model.n_blocks} blocks, length {spec.data.length}, objective {spec.objective}, "
        f"batch {spec.batch}, seed {spec.seed}{begun}"
    ]


def _held_row(entry: dict[str, Any]) -> list[str]:
    character, loss = entry["nats_per_character"], entry["nats_per_token"]
    return [
        str(entry["step"]),
        f"{loss.value:.4f}",
        loss.span(".4f"),
        f"{entry['perplexity'].value:.2f}",
        "" if character is None else f"{character:.4f}",
    ]


VERB = Verb(
    name="train",
    help="Train by CONFIG into a run directory. The same command continues a run.\n\n"
    "Several devices: torchrun --nproc-per-node N --no-python strop train CONFIG -o RUN",
    parameters=(
        parameters.argument(
            "config",
            "CONFIG",
            "A YAML file, a training run, or the name of a shipped configuration.",
        ),
        parameters.out(),
        Parameter(
            "data_root", "Where the sources' relative paths begin.", Path(), "place", shown="."
        ),
        Parameter("shards", "Where the prepared corpus lies; by default in the run.", kind="place"),
        Parameter(
            "set", "Change one value, e.g. --set model.n_blocks=2; repeatable.", kind="changes"
        ),
        parameters.DEVICE,
        Parameter("strategy", "Under torchrun: auto (ddp), ddp or fsdp.", "auto"),
        Parameter.flag("prepare_only", "Tokenise the corpus and stop."),
    ),
    run=_run,
    examples=(
        "strop train mdlm-tiny -o runs/tiny --prepare-only",
        "strop train my.yaml -o runs/mine --set batch=256 --set model.n_blocks=2",
    ),
)
