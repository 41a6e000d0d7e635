"""strop study posterior: what sharpening does to the loss that the sampler's rounds see."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from strop.assets import CHECKPOINT, EMBEDDED
from strop.cli import output
from strop.cli.values import listed

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the study."""
    app.command("posterior")(posterior)


def posterior(
    out: Annotated[str, typer.Option("-o", "--out", help="The directory; continued if it exists.")],
    checkpoints: Annotated[
        list[str] | None,
        typer.Argument(help="One or more, the less trained first; by default the embedded ones."),
    ] = None,
    held_out: Annotated[
        str | None,
        typer.Option(help="JSON lines with `text` or `ids`; by default the rows that ship."),
    ] = None,
    steps: Annotated[str, typer.Option(help="Updates M, e.g. 2,8,32.")] = "2,8,32,128,1024",
    temperature: Annotated[
        str, typer.Option(help="The grid; 1 must be on it.")
    ] = "0.8,0.85,0.9,0.95,1.0,1.05,1.1",
    sharpened: Annotated[float, typer.Option(help="Which one the table compares with 1.")] = 0.9,
    n: Annotated[int, typer.Option("-n", "--n", help="Held-out sequences, at most.")] = 512,
    draws: Annotated[int, typer.Option(help="Hidden sets per sequence and budget.")] = 1,
    levels: Annotated[int, typer.Option(help="Levels of the loss profile; 0 leaves it out.")] = 32,
    profile_n: Annotated[int, typer.Option(help="Sequences of the profile, at most.")] = 128,
    seed: Annotated[int, typer.Option(help="Root seed of hidden sets and bootstrap.")] = 0,
    length: Annotated[
        int | None, typer.Option(help="Tokens per sequence; the model's by default.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:i.")] = "auto",
    dtype: Annotated[str, typer.Option(help="Of the network.")] = "auto",
    force: Annotated[bool, typer.Option("--force", help="Measure everything anew.")] = False,
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """Measure the schedule-matched posterior loss of CHECKPOINTS on held-out text.

    The same command continues where it was interrupted, and answers from disk when it is done.
    """
    checkpoints = checkpoints or [EMBEDDED + "tales-early", CHECKPOINT]
    counts = listed(steps, int, "--steps")
    grid = listed(temperature, float, "--temperature")
    from strop.studies.posterior import run_posterior

    with output.warnings_noted():
        result = run_posterior(
            checkpoints,
            out=Path(out),
            heldout=None if held_out is None else Path(held_out),
            steps=counts,
            temperatures=grid,
            sharpened=sharpened,
            n=n,
            draws=draws,
            levels=levels,
            profile_n=profile_n,
            seed=seed,
            length=length,
            device=device,
            dtype=dtype,
            force=force,
            note=output.note,
        )
    if as_json:
        output.emit(result)
    else:
        _print(result)
    folder = shlex.quote(out)
    output.note(f"written: {folder}/result.json, table.csv, posterior.svg, posterior.png")
    first = shlex.quote(checkpoints[-1])
    output.next_command(f"strop study cost {first} -o {folder}-cost")


def _print(result: dict[str, Any]) -> None:
    tau = result["asked"]["sharpened"]
    rows = result["heldout"]["sequences"]
    output.say(
        f"Posterior loss J/L in nats per token, {rows} held-out sequences of "
        f"{result['heldout']['length']} tokens, 95% intervals"
    )
    output.table(
        [
            "checkpoint",
            "M",
            "loss at 1",
            f"{tau:g} minus 1",
            "one target",
            "best tau",
            "slope at 1",
            "variance ratio",
        ],
        [_line(result, row, tau) for row in result["losses"] if row["estimator"] == "masked"],
    )
    differences = [row for row in result["differences"] if row["estimator"] == "masked"]
    if differences:
        output.say("\nDifferences between checkpoints at tau = 1")
        output.table(
            ["later", "minus", "M", "difference"],
            [[r["later"], r["earlier"], str(r["steps"]), _interval(r)] for r in differences],
        )
    _print_profile(result["profile"])


def _print_profile(profile: dict[str, Any] | None) -> None:
    if profile is None:
        return
    output.say(f"\nMean of the loss profile at tau = 1, {profile['sequences']} sequences")
    output.table(
        ["checkpoint", "mean"],
        [[one["checkpoint"], _interval(one["loss"], plain=True)] for one in profile["means"]]
        + [
            [f"{one['later']} minus {one['earlier']}", _interval(one)]
            for one in profile["differences"]
            if one["visible"] == "mean"
        ],
    )


def _line(result: dict[str, Any], row: dict[str, Any], tau: float) -> list[str]:
    other = next(
        one
        for one in result["losses"]
        if one["estimator"] == "target"
        and (one["checkpoint"], one["steps"]) == (row["checkpoint"], row["steps"])
    )
    at = {one["temperature"]: one for one in row["temperatures"]}
    alone = {one["temperature"]: one for one in other["temperatures"]}
    ratio = row["variance_ratio"]
    return [
        row["checkpoint"],
        str(row["steps"]),
        f"{at[1.0]['loss']['mean']:.4f}",
        _interval(at[tau]["minus_one"]),
        _interval(alone[tau]["minus_one"]),
        f"{row['optimum']:g}" + (" (edge of the grid)" if row["optimum_at_edge"] else ""),
        _interval(row["slope"]),
        "none" if ratio is None else f"{ratio:.1f}",
    ]


def _interval(row: dict[str, Any], *, plain: bool = False) -> str:
    """+.0360 [.0140, .0580]; an interval that includes zero says so."""
    sign = "" if plain else "+"
    text = f"{row['mean']:{sign}.4f} [{row['low']:{sign}.4f}, {row['high']:{sign}.4f}]"
    return text if row.get("excludes_zero", True) else text + " includes 0"
