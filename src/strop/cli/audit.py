"""strop audit: how much of a checkpoint's few-step gap is its sampler?"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strop.assets import CHECKPOINT, EVALUATOR
from strop.cli import output
from strop.cli.progress import reporter
from strop.cli.values import listed, per_budget

if TYPE_CHECKING:
    from strop.metrics.bootstrap import Interval
    from strop.studies.audit import Audit

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("audit")(audit)


def audit(
    out: Annotated[
        str, typer.Option("-o", "--out", help="The run directory; continued if it exists.")
    ],
    checkpoint: Annotated[str, typer.Argument(help="As for `strop sample`.")] = CHECKPOINT,
    steps: Annotated[
        str | None,
        typer.Option(help="Updates M; by default 4,16,64,256,1024, with --grid 1,2,4,...,1024."),
    ] = None,
    n: Annotated[
        str, typer.Option("-n", "--n", help="Outputs per cell: one number, or one per --steps.")
    ] = "128",
    grid: Annotated[
        bool, typer.Option("--grid", help="Seven temperatures .80 to 1.10 in both precisions.")
    ] = False,
    evaluator: Annotated[str, typer.Option(help="The language model that scores.")] = EVALUATOR,
    second_evaluator: Annotated[
        str | None, typer.Option(help="Another one, for the gain on fresh outputs.")
    ] = None,
    span: Annotated[str, typer.Option(help="first-document, full-stream or public-code.")] = (
        "first-document"
    ),
    fresh: Annotated[
        bool, typer.Option(help="Report the gain on outputs that were not chosen from.")
    ] = True,
    held_out: Annotated[
        Path | None, typer.Option(help="JSON lines with text and ids, for the entropy guard.")
    ] = None,
    fresh_n: Annotated[
        str | None, typer.Option(help="Fresh outputs per cell; by default as many as -n.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Root seed; fresh outputs use the next one.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:i.")] = "auto",
    dtype: Annotated[str, typer.Option(help="Of the network.")] = "auto",
    force: Annotated[bool, typer.Option("--force", help="Start the run directory anew.")] = False,
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """Sample CHECKPOINT at the four corners of temperature and precision, score, recommend.

    The same command continues, or answers from what is there.
    """
    from strop.studies import audit as study

    budgets = (
        list(study.GRID_STEPS if grid else study.STEPS)
        if steps is None
        else listed(steps, int, "--steps")
    )
    counts = per_budget(n, budgets, "-n")
    fresh_counts = None if fresh_n is None else per_budget(fresh_n, budgets, "--fresh-n")
    from strop.denoisers import load_denoiser
    from strop.metrics.evaluator import load_evaluator
    from strop.metrics.heldout import read_texts

    texts = read_texts(held_out)
    names = [evaluator] if second_evaluator is None else [evaluator, second_evaluator]
    with output.warnings_noted():
        denoiser = load_denoiser(checkpoint, device=device, dtype=dtype)
        evaluators = [load_evaluator(name, device=device) for name in names]
    with reporter() as bar:
        result = study.audit(
            denoiser,
            evaluators,
            out=Path(out),
            steps=budgets,
            settings=study.GRID if grid else study.CORNERS,
            n=counts,
            fresh=fresh,
            fresh_n=fresh_counts,
            seed=seed,
            span=span,  # type: ignore[arg-type]  # the metric refuses what it does not know
            held_out=texts,
            force=force,
            progress=bar,
        )
    if as_json:
        output.emit({"run": out, "checkpoint": denoiser.source, **result.document()})
    else:
        _print(result, denoiser.source, Path(out))
    output.next_command(f"strop report {shlex.quote(out)} -o {shlex.quote(out)}/report.html")


def _print(result: Audit, source: str, out: Path) -> None:
    guard = result.table[0].summary.guard
    output.say(
        f"{source}: perplexity under {result.evaluators[0]} ({result.span}, token-pooled) "
        "with 95% interval, [entropy in nats]"
    )
    output.table(
        ["M", "n", *(str(setting) for setting in result.settings)],
        [
            [
                str(steps),
                str(result.cell(steps, result.settings[0]).summary.outputs),
                *(_entry(result.cell(steps, setting)) for setting in result.settings),
            ]
            for steps in result.budgets
        ],
    )
    if guard.threshold is None:
        output.say(f"no entropy guard: {guard.source}")
    else:
        output.say(f"† mean entropy below {guard.threshold:.2f}: {guard.source}")
    _print_ratios(result)
    for rule, why in result.refusals.items():
        output.say(f"\nThe rule `{rule}` cannot choose: {why}")
    for rule in result.selections:
        _print_choice(result, rule, out)


def _print_ratios(result: Audit) -> None:
    from strop.studies.audit import CORNERS
    from strop.studies.selection import STANDARD

    others = [setting for setting in result.settings if setting in CORNERS and setting != STANDARD]
    output.say(f"\nperplexity under {STANDARD} over that under another sampler")
    output.table(
        ["M", *(str(setting) for setting in others)],
        [
            [str(steps), *(_ratio(result.ratio(steps, setting)) for setting in others)]
            for steps in result.budgets
        ],
    )


def _ratio(found: Interval) -> str:
    return f"{found.value:.2f}x [{found.low:.2f}, {found.high:.2f}]"


def _entry(one: Any) -> str:
    value, entropy = one.value(), one.summary.entropy
    mark = "†" if one.summary.below_guard else ""
    return f"{value.value:.1f}{mark} [{entropy.value:.2f}]\n{value.low:.1f} to {value.high:.1f}"


def _print_choice(result: Audit, rule: str, out: Path) -> None:
    chosen = result.selections[rule]
    output.say(
        f"\nrule `{rule}`, chosen from {chosen.candidates} settings at each of "
        f"{len(chosen.picks)} budgets ({chosen.cells} cells), hash {chosen.sha256[:16]}"
    )
    rows = []
    for pick in chosen.picks:
        gains = [g for g in result.gains if (g.rule, g.steps) == (rule, pick.steps)]
        told = "; ".join(
            f"{_gain(gain.ratio)}{f' by {gain.evaluator}' if len(gains) > 1 else ''}"
            for gain in gains
        )
        notes = ["below the guard here"] * (not pick.passes) + list(pick.at_edge)
        rows.append([str(pick.steps), str(pick.setting), told or "not measured", "; ".join(notes)])
    output.table(["M", "setting", "gain over (1, float64) on fresh outputs", "mind"], rows)
    output.say(f"ready to use: {out / f'sampler-{rule}.yaml'}")


def _gain(ratio: Interval | None) -> str:
    if ratio is None:
        return "none: it is the standard sampler"
    told = _ratio(ratio)
    return told if not ratio.low <= 1 <= ratio.high else f"{told}: not shown"
