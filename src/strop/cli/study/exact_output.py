"""strop study exact-output: likelihood and judged quality on the same outputs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from strop.cli import output
from strop.cli.progress import reporter
from strop.cli.study import common
from strop.cli.values import listed

__all__ = ["register"]

SMOKE_STEPS, SMOKE_N = (4, 16), 16


def register(app: typer.Typer) -> None:
    """Add the study."""
    app.command("exact-output")(exact_output)


def exact_output(
    out: common.OUT,
    models: Annotated[
        list[str] | None,
        typer.Argument(help="Two, as NAME=SOURCE; by default MDLM-Small and DiDi-Instruct."),
    ] = None,
    pools: Annotated[
        Path | None, typer.Option(help="A directory of `strop study cross-model`: its outputs.")
    ] = None,
    smoke: common.SMOKE = False,
    steps: Annotated[str | None, typer.Option(help="Updates M; by default the paper's.")] = None,
    n: Annotated[
        int | None, typer.Option("-n", "--n", help="Outputs per cell, where drawn; 40.")
    ] = None,
    evaluator: Annotated[
        list[str] | None, typer.Option(help="Repeat for a second; by default the paper's two.")
    ] = None,
    seed: common.SEED = 0,
    device: common.DEVICE = "auto",
    force: common.FORCE = False,
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """Score the same outputs by two evaluators and a judge, under two span policies."""
    from strop.studies import exact_output as study

    place = Path(out)
    common.alone("--smoke", smoke, models)
    common.alone("--pools", pools is not None, models)
    counts = (
        listed(steps, int, "--steps")
        if steps is not None
        else SMOKE_STEPS
        if smoke
        else study.STEPS
    )
    if n is not None:
        output.positive("-n", n)
    with output.warnings_noted(), reporter() as bar:

        def find() -> study.Pools:
            if pools is not None:
                return study.saved_pools(pools, counts)
            return study.drawn_pools(
                study.two_sources(models or [], smoke=smoke, out=place),
                out=place,
                steps=counts,
                n=n if n is not None else SMOKE_N if smoke else 40,
                seed=seed,
                device=device,
                force=force,
                progress=bar,
            )

        result = study.run_exact_output(
            find,
            out=place,
            evaluators=evaluator or (study.SMOKE_EVALUATORS if smoke else study.EVALUATORS),
            seed=seed,
            device=device,
            force=force,
            progress=bar,
        )
    if as_json:
        output.emit(result)
    else:
        _print(result, smoke)
    folder = shlex.quote(out)
    output.next_command(f"strop groupeval judge {folder}/groupeval --base-url URL --model NAME")


def _print(result: dict[str, Any], smoke: bool) -> None:
    first, second = result["asked"]["names"]
    output.say(
        f"{first} against {second}: ratio of perplexities (full stream, tokens pooled; above 1 "
        f"favours {second}), and GEQ {first} minus {second} (above 0 favours {first})"
    )
    evaluators, judges = result["asked"]["evaluators"], result["judges"]
    output.table(
        ["M", "setting", *evaluators, *(f"{what} {j}" for j in judges for what in ("GEQ", "GED"))],
        [
            [
                str(row["steps"]),
                row["setting"],
                *(_ratio(row["ratios"][name]) for name in evaluators),
                *(text for judge in judges for text in _judged(row, judge)),
            ]
            for row in result["comparisons"]
        ],
    )
    said = [row for row in result["comparisons"] if row["paper"]]
    if said:
        output.say("\nThe paper's, judge GPT-OSS")
        output.table(
            ["M", "setting", "gpt2-large", "Qwen3-8B-Base", "GEQ", "GED"],
            [_paper(row["paper"]) for row in said],
        )
    _print_rules(result)
    if result["unfinished"]:
        output.say("Left out, because cells are not judged yet: " + ", ".join(result["unfinished"]))
    if smoke:
        output.say(common.SMOKE_NOTE)


def _print_rules(result: dict[str, Any]) -> None:
    names = result["asked"]["names"]
    ranks = {
        (one["policy"], one["aggregate"]): common.number(one["spearman"])
        for one in result["agreement"]
    }
    output.say("\nComparisons with the lower perplexity, by rule; budgets of at least 16")
    output.table(
        ["evaluator", "spans", "aggregate", *names, "of", "rank correlation of evaluators"],
        [
            [
                one["evaluator"],
                one["policy"],
                one["aggregate"],
                *(str(one[name]) for name in names),
                str(one["comparisons"]),
                ranks.get((one["policy"], one["aggregate"]), "-"),
            ]
            for one in result["signs"]
        ],
    )
    kept = ", ".join(f"{name} {share:.2%}" for name, share in result["kept"].items())
    output.say(f"source bytes read: {kept}")
    output.say("\nRank correlation of GEQ with log perplexity (negative: they agree)")
    output.table(
        ["judge", "evaluator", "generators", "cells", "correlation"],
        [
            [
                one["judge"],
                one["evaluator"],
                one["generators"],
                str(one["cells"]),
                common.number(one["spearman"]),
            ]
            for one in result["quality"]
        ],
    )


def _ratio(one: dict[str, Any]) -> str:
    return f"{one['value']:.2f} [{one['low']:.2f}, {one['high']:.2f}]"


def _judged(row: dict[str, Any], judge: str) -> tuple[str, str]:
    one = row["judged"][judge]
    quality = f"{one['difference']:+.2f} [{one['low']:+.2f}, {one['high']:+.2f}]"
    return quality, _pair(one["ged"])


def _paper(row: dict[str, Any]) -> list[str]:
    low, high = row["interval"]
    return [
        str(row["steps"]),
        row["sampler"],
        f"{row['gpt2_large_ratio']:.2f}",
        f"{row['qwen_ratio']:.2f}",
        f"{row['difference']:+.2f} [{low:+.2f}, {high:+.2f}]",
        _pair(row["ged"]),
    ]


def _pair(values: list[float | None]) -> str:
    return " / ".join("-" if value is None else f"{value:.2f}" for value in values)
