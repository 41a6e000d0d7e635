"""strop groupeval reliability: how far a judge can be trusted, from its journal."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer

from strop.cli import output
from strop.cli.commands import examples
from strop.cli.groupeval.score import number


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("reliability", epilog=examples("strop groupeval reliability runs/ge"))(reliability)


def reliability(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory that was judged.")],
    series: Annotated[
        str | None, typer.Option(help="Which judge, if several have judged the plan.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the permutation test.")] = 0,
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """Repeated judgments, planted controls, position effects and length, from the journal alone."""
    from strop.groupeval.judgments import open_series
    from strop.groupeval.trust import reliability as evaluate

    judged = open_series(run, series)
    result = evaluate(judged, seed=seed)
    if as_json:
        output.emit(result)
    else:
        _print(result)
    hint = shlex.quote(run)
    if not result["repeats"]:
        output.next_command(f"strop groupeval judge {hint} ... --repeats 2")
    else:
        output.next_command(f"strop groupeval score {hint}")


def _print(result: dict[str, Any]) -> None:
    rows = [["groups judged", f"{result['n_groups']} of {result['n_groups_asked']}"]]
    for number_of, told in enumerate(result["repeats"], 1):
        rows += _repeat(f"repeat {number_of}", told)
    if not result["repeats"]:
        rows.append(["repeats", "none asked for: the judge's noise is unknown"])
    controls = result["controls"]
    rows.append(["controls judged", f"{controls['n_groups']} of {result['n_controls_asked']}"])
    if controls["n_groups"]:
        rows += [[name.replace("_", " "), number(controls[name])] for name in list(controls)[1:]]
    positions = result["positions"]
    if positions:
        means = " ".join(f"{mean:.2f}" for mean in positions["mean_quality"])
        rows.append(["quality by position", means])
        rows.append(["position effect, p-value", f"{positions['p_value']:.3f}"])
    for name, told in result["lengths"].items():
        rows.append([f"length and quality, {name}", number(told["spearman"])])
    output.table(["what", "value"], rows)


def _repeat(name: str, told: dict[str, Any]) -> list[list[str]]:
    if not told["n_groups"]:
        return [[name, "no group judged twice"]]
    rows = [
        [f"{name}: groups judged twice", str(told["n_groups"])],
        [f"{name}: grades equal", number(told["grades_equal"])],
        [f"{name}: mean change of quality", number(told["quality_mean_abs_change"])],
        [f"{name}: alpha of quality", number(told["quality_alpha"])],
    ]
    if told["modes"]:
        rows.append([f"{name}: modes, adjusted Rand", number(told["modes"]["adjusted_rand"])])
    return rows
