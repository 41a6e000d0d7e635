"""strop sample: draw outputs of a checkpoint under every combination of settings."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from strop.assets import CHECKPOINT
from strop.cli import output
from strop.cli.baseline import note_baseline
from strop.cli.commands import examples
from strop.cli.drawing import (
    BATCH_SIZE,
    DEVICE,
    DTYPE,
    IMPLEMENTATION,
    LOAD,
    NOISE,
    REVISION,
    SETTINGS,
    batch_of,
)
from strop.cli.engine import with_engine
from strop.cli.progress import reporter
from strop.cli.prompted import Asked
from strop.cli.spec_file import read_samplers
from strop.cli.values import listed, named, options
from strop.engine import Engine
from strop.engine.plan import Elsewhere
from strop.errors import UserError, whole_number
from strop.records import FAMILIES, default_sampler
from strop.spec import OUTPUT_LIMIT, SAMPLERS, SEED_LIMIT, SamplerSpec, label, plain_baseline

FAMILY_HELP = (
    ", ".join(name for name, one in FAMILIES.builtin.items() if one.noise is not None)
    + " or a plug-in's: where the files do not say."
)
_NAMES = ", ".join(SAMPLERS.builtin)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        "sample",
        epilog=examples(
            "strop sample -n 4 -o runs/first",
            "strop sample kuleshov-group/mdlm-owt --steps 16,64 --temperature 1,0.9 -o runs/owt",
            "strop sample --prompts prompts.jsonl --length 32 --per-prompt 4 -o runs/answers",
        ),
    )(with_engine(sample))


def sample(
    out: Annotated[
        str, typer.Option("-o", "--out", help="The run directory; continued if it exists.")
    ],
    checkpoint: Annotated[
        str,
        typer.Argument(help="A directory, a .ckpt, a hub id owner/name[@revision], embedded:NAME."),
    ] = CHECKPOINT,
    steps: Annotated[
        str | None,
        typer.Option(help="Updates M, e.g. 16,64; 64 by default (autoregressive: the length)."),
    ] = None,
    temperature: Annotated[str, typer.Option(help="tau, e.g. 1.0,0.9; 0 is greedy.")] = "1.0",
    precision: Annotated[
        str, typer.Option(help="Of the draw: float64, float32 or both.")
    ] = "float64",
    n: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--n",
            help="Outputs per cell; may grow later. 16 by default; with prompts, one for each.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Root seed; output i depends on it and on i.")] = 0,
    sampler: Annotated[
        str | None,
        typer.Option(help="By default that of the family; a plug-in's, or one of: " + _NAMES + "."),
    ] = None,
    top_p: Annotated[float, typer.Option(help="Nucleus of the clean-token distribution.")] = 1.0,
    grid: Annotated[
        str | None,
        typer.Option(help="Reveal masses that sum to 1, e.g. 0.2,0.3,0.5, instead of --steps."),
    ] = None,
    finish: Annotated[
        str | None, typer.Option(help="Last mass: greedy, draw or none; by default the public one.")
    ] = None,
    spec: Annotated[
        Path | None,
        typer.Option(help="A YAML file of samplers, e.g. from `strop audit`; no other settings."),
    ] = None,
    settings: SETTINGS = None,
    implementation: IMPLEMENTATION = "fast",
    noise: NOISE = "cpu",
    length: Annotated[
        int | None,
        typer.Option(
            "--length",
            "--gen-length",
            "--max-new-tokens",
            help="Tokens per output, after a prompt if there is one; else the model's.",
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(help="A .jsonl of prompts, or of texts with gaps such as [[12]]."),
    ] = None,
    per_prompt: Annotated[
        int | None, typer.Option(help="Outputs for each prompt; may grow later.")
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Put prompts into the tokenizer's chat template.")
    ] = False,
    shots: Annotated[
        Path | None, typer.Option(help="A .jsonl of worked examples, put before every prompt.")
    ] = None,
    bos: Annotated[
        str, typer.Option(help="What opens a prompt: tokenizer (its own rule), always, never.")
    ] = "tokenizer",
    batch_size: BATCH_SIZE = None,
    device: DEVICE = "auto",
    dtype: DTYPE = "auto",
    revision: REVISION = None,
    weights: Annotated[
        str | None, typer.Option(help="Of a training file: ema (default) or raw.")
    ] = None,
    family: Annotated[str | None, typer.Option(help=FAMILY_HELP)] = None,
    load: LOAD = None,
    force: Annotated[bool, typer.Option("--force", help="Start the run directory anew.")] = False,
    as_json: Annotated[bool, output.JSON_FLAG] = False,
    *,
    engine: Engine,
) -> None:
    """Draw outputs of CHECKPOINT for every combination of --steps, --temperature and --precision.

    The same command continues a run that was interrupted; nothing is drawn twice.
    """
    batch = batch_of(batch_size)
    _check_numbers(n, seed, length, batch)
    engine.refuse_force(force)
    asked = Asked(prompts, per_prompt, chat, shots, bos)
    asked.check(n)
    from strop.store import Folder

    Folder(out, "run", "sample").refuse_strangers()
    own = named(settings, "--settings") if settings else {}
    common = {
        "name": sampler or default_sampler("mdlm"),
        "top_p": top_p,
        "finish": finish,
        "implementation": implementation,
        "noise": noise,
        "settings": own if sampler else {},
    }
    specs = _specs(steps, temperature, precision, grid, common)
    if spec is not None:
        given = [steps, sampler, grid, finish, settings]
        if any(one is not None for one in given) or specs != _specs(
            None, "1.0", "float64", None, {}
        ):
            raise UserError(
                "--spec already says how to sample.",
                where="--spec",
                fix="leave out --steps, --temperature and the sampler's other flags",
            )
        specs = read_samplers(spec)
    from strop.denoisers import load_model
    from strop.draw import UNSAID, outputs_of, sample_cells

    with output.warnings_noted():
        denoiser = load_model(
            checkpoint,
            revision=revision,
            weights=checked_weights(weights),
            family=family,
            device=engine.at_home(device),
            dtype=dtype,
            load=options(load or [], "--load"),
        )
    if sampler is None and spec is None:
        # Checked above as far as flags go; which sampler they are for is known only now.
        common["name"] = default_sampler(denoiser.spec.family)
        common["settings"] = own
        specs = _specs(steps, temperature, precision, grid, common)
    canvases = asked.canvases(denoiser, length)
    output.note(
        f"{denoiser.source}: {denoiser.spec.family}, {denoiser.vocab_size:,} tokens, length "
        f"{canvases.length if canvases else length or denoiser.length}, on {denoiser.device}, "
        "network in "
        f"{denoiser.spec.network_dtype}"
        + (
            " (the default: the sampler's law should not hang on the device)"
            if dtype == "auto"
            else ""
        )
    )
    try:
        with reporter() as bar:
            pools = sample_cells(
                denoiser,
                specs,
                n=outputs_of(canvases, UNSAID if n is None else n, per_prompt, default=16),
                seed=seed,
                batch_size=batch,
                length=length,
                canvases=canvases,
                out=out,
                force=force,
                progress=bar,
                engine=engine,
            )
    except Elsewhere as rest:  # a shard has done its part
        _print_part(out, engine, rest, as_json)
        return
    _print(out, pools, as_json)
    same = {"-n": n, "--seed": seed, "--length": length, "--finish": finish}
    same |= {
        "--family": family,
        "--weights": weights,
        "--revision": revision,
        "--device": device,
        "--dtype": dtype,
        **asked.flags(),
    }
    note_baseline(checkpoint, out, specs, same)
    output.next_command(f"strop show {shlex.quote(out)}")


def _specs(
    steps: str | None,
    temperature: str,
    precision: str,
    grid: str | None,
    common: dict[str, Any],
) -> list[SamplerSpec]:
    grids: list[dict[str, Any]] = [{}]
    if steps is not None:
        grids = [{"steps": m} for m in listed(steps, int, "--steps")]
    if grid is not None and grid != "uniform":
        masses = [_number(word) for word in grid.split(",")]
        grids = [{**one, "grid": masses} for one in grids]  # with steps, both must agree
    product = itertools.product(
        grids, listed(temperature, float, "--temperature"), listed(precision, str, "--precision")
    )
    return [
        SamplerSpec(**{**common, **where, "temperature": tau, "precision": kappa})
        for where, tau, kappa in product
    ]


def _check_numbers(
    n: int | None, seed: int, length: int | None, batch_size: int | Literal["auto"] | None
) -> None:
    """What needs no model to be seen: it may be large, or far away."""
    whole_number("seed", seed, 0, SEED_LIMIT)
    for name, value in (("n", n), ("length", length), ("batch_size", batch_size)):
        if value is not None and value != "auto":
            whole_number(name, value, 1, OUTPUT_LIMIT)


def _number(word: str) -> float:
    return listed(word, float, "--grid")[0]


def checked_weights(name: str | None) -> Any:
    """The choice of weights, if it is one."""
    if name not in (None, "ema", "raw"):
        raise UserError(
            "The choice of weights is unknown.", where="--weights", got=name, expected="ema or raw"
        )
    return name


def _print(out: str, pools: list[Any], as_json: bool) -> None:
    rows = [
        {
            "cell": pool.spec.id,
            "sampler": pool.spec.generator.sampler.model_dump(mode="json"),
            "seed": pool.spec.seed,
            "n": len(pool),
            "length": pool.spec.generator.length,
            "nfe_mean": float(pool.nfe.mean()),
            "seconds": float(pool.seconds.sum()),
            "leftover_masks": int(pool.leftover_masks.sum()),
            **_prompts(pool),
            "plain_baseline": _dumped(plain_baseline(pool.spec.generator.sampler)),
        }
        for pool in pools
    ]
    if as_json:
        output.emit({"run": out, "cells": rows})
        return
    header = ["cell", "setting", "outputs", "calls per output", "seconds per output"]
    lines = [
        [
            row["cell"],
            label(pool.spec.generator.sampler),
            str(row["n"]),
            f"{row['nfe_mean']:.1f}",
            f"{row['seconds'] / row['n']:.3g}",
        ]
        for row, pool in zip(rows, pools, strict=True)
    ]
    plain = [plain_baseline(pool.spec.generator.sampler) for pool in pools]
    if any(plain):
        header.append("plain baseline")
        for line, one in zip(lines, plain, strict=True):
            line.append("" if one is None else label(one))
    output.table(header, lines)


def _print_part(out: str, engine: Engine, rest: Elsewhere, as_json: bool) -> None:
    """A shard's part is drawn, and others' are not yet: nothing is wrong."""
    if as_json:
        output.emit({"run": out, "shard": str(engine.shard), "missing": rest.as_dict()})
    output.note(f"shard {engine.shard} is done; {rest.what} {rest.got}")
    output.next_command(f"strop show {shlex.quote(out)}")


def _prompts(pool: Any) -> dict[str, Any]:
    found = pool.spec.generator.prompts
    return {} if found is None else {"prompts": found.model_dump(mode="json")}


def _dumped(spec: SamplerSpec | None) -> dict[str, Any] | None:
    return None if spec is None else spec.model_dump(mode="json")
