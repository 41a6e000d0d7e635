"""strop study didi-grids: DiDi-Instruct with and without its reward."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from strop.cli import output
from strop.cli.progress import reporter
from strop.cli.study import common
from strop.cli.values import listed

__all__ = ["register"]

SMOKE_STEPS, SMOKE_N = (2, 8), 8


def register(app: typer.Typer) -> None:
    """Add the study."""
    app.command("didi-grids")(didi_grids)


@common.drawing()
def didi_grids(
    shared: common.Drawing,
    checkpoint: Annotated[
        str | None, typer.Argument(help="As for `strop sample`; by default the public one.")
    ] = None,
    smoke: common.SMOKE = False,
    steps: Annotated[str | None, typer.Option(help="Updates M; by default the paper's 11.")] = None,
    temperature: Annotated[
        str, typer.Option(help="The temperatures.")
    ] = "0.8,0.85,0.9,0.95,1.0,1.05,1.1",
    precision: Annotated[str, typer.Option(help="float64, float32 or both.")] = "float64,float32",
) -> None:
    """Sample DiDi-Instruct over the paper's two grids: guided by its reward, and not."""
    from strop.studies.audit import GRID_STEPS
    from strop.studies.didi_grids import SOURCE, run_didi_grids

    counts = (
        listed(steps, int, "--steps") if steps is not None else SMOKE_STEPS if smoke else GRID_STEPS
    )
    temperatures = listed(temperature, float, "--temperature")
    precisions = listed(precision, str, "--precision")
    with output.warnings_noted(), reporter() as bar:
        how = shared.sampling(bar, SMOKE_N if smoke else None)
        result = run_didi_grids(
            checkpoint or (None if smoke else SOURCE),
            how,
            out=Path(shared.out),
            steps=counts,
            temperatures=temperatures,
            precisions=precisions,
        )
    shared.tell(result, lambda told: _print(told, smoke))
    output.next_command(f"strop report {shared.folder} -o {shared.folder}/report.html")


def _print(result: dict[str, Any], smoke: bool) -> None:
    rows = result["rows"]
    for sampler, precision in dict.fromkeys((r["sampler"], r["precision"]) for r in rows):
        some = [r for r in rows if (r["sampler"], r["precision"]) == (sampler, precision)]
        taus = list(dict.fromkeys(row["temperature"] for row in some))
        cells = {(row["steps"], row["temperature"]): row for row in some}
        output.say(f"\n{sampler}, {precision}: measured perplexity [entropy] / the paper's")
        output.table(
            ["M", *(f"tau={tau:g}" for tau in taus)],
            [
                [str(m), *(_entry(cells[m, tau]) for tau in taus)]
                for m in dict.fromkeys(row["steps"] for row in some)
            ],
        )
    guard = result["guard"]
    if guard["threshold"] is not None:
        output.say(f"† mean entropy below {guard['threshold']:.2f}: {guard['source']}")
    for text in result["protocol"]:
        output.say(f"- {text}")
    if smoke:
        output.say(common.SMOKE_NOTE + " The discriminator has random weights.")


def _entry(row: dict[str, Any]) -> str:
    mark = "†" if row["below_guard"] else ""
    shown = f"{row['perplexity']:.1f}{mark} [{row['entropy']:.2f}]"
    return shown if row["paper"] is None else f"{shown} / {row['paper']:g}"
