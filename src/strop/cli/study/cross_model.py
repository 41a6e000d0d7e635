"""strop study cross-model: MDLM among its successors."""

from __future__ import annotations

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
    app.command("cross-model")(cross_model)


@common.drawing()
def cross_model(
    shared: common.Drawing,
    models: Annotated[
        list[str] | None,
        typer.Argument(help="NAME=SOURCE, e.g. DUO=runs/duo; by default all public ones."),
    ] = None,
    smoke: common.SMOKE = False,
    steps: Annotated[str | None, typer.Option(help="Updates M; by default the paper's.")] = None,
) -> None:
    """Sample every family by its own rules and score all with one evaluator."""
    from strop.studies.contenders import named_sources
    from strop.studies.cross_model import STEPS, run_cross_model

    common.alone("--smoke", smoke, models)
    counts = listed(steps, int, "--steps") if steps is not None else SMOKE_STEPS if smoke else STEPS
    with output.warnings_noted(), reporter() as bar:
        sources = None if smoke else named_sources(models or [])
        how = shared.sampling(bar, SMOKE_N if smoke else None)
        result = run_cross_model(sources, how, out=Path(shared.out), steps=counts)
    shared.tell(result, lambda told: _print(told, smoke))
    output.next_command(
        f"strop study exact-output --pools {shared.folder} -o {shared.folder}-exact"
        + (" --smoke" if smoke else "")
    )


def _print(result: dict[str, Any], smoke: bool) -> None:
    rows = result["rows"]
    output.say("measured perplexity [entropy], the paper's below it; M is updates, not calls")
    lines = list(dict.fromkeys((r["model"], r["temperature"], r["precision"]) for r in rows))
    steps = sorted({row["steps"] for row in rows if row["steps"] is not None})
    table = []
    for line in lines:
        cells = {
            r["steps"]: r for r in rows if (r["model"], r["temperature"], r["precision"]) == line
        }
        first = next(iter(cells.values()))
        name = f"{line[0]} ({line[1]:g}, {line[2]})"
        if None in cells:
            table.append([name, first["finish"], _entry(first), *[""] * (len(steps) - 1)])
            table.append(["", "", _printed(first), *[""] * (len(steps) - 1)])
        else:
            table.append([name, first["finish"], *(_entry(cells[m]) for m in steps)])
            table.append(["", "", *(_printed(cells[m]) for m in steps)])
    output.table(["model", "finish", *(f"M={m}" for m in steps)], table)
    for guard in result["guards"]:
        if guard["threshold"] is not None:
            output.say(f"† mean entropy below {guard['threshold']:.2f}: {guard['source']}")
    for text in result["protocol"]:
        output.say(f"- {text}")
    if smoke:
        output.say(common.SMOKE_NOTE)
        output.say(
            "The families are the embedded model in their layouts; DUO was never trained for "
            "its noise, and the discriminator has random weights."
        )


def _entry(row: dict[str, Any]) -> str:
    mark = "†" if row["below_guard"] else ""
    return f"{row['perplexity']:.1f}{mark} [{row['entropy']:.2f}]"


def _printed(row: dict[str, Any]) -> str:
    if row["paper"] is None:
        return "paper: -"
    return f"paper: {row['paper']:g} [{row['paper_entropy']:.2f}]"
