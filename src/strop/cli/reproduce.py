"""strop reproduce: the paper's tables and figures, beside what is measured here."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strop.cli import output
from strop.cli.progress import reporter
from strop.cli.study import common
from strop.cli.values import listed
from strop.errors import UserError

if TYPE_CHECKING:
    from strop.studies.item import Outcome

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("reproduce")(reproduce)


def reproduce(
    id: Annotated[str | None, typer.Argument(help="Which; without it, the list.")] = None,
    out: Annotated[
        str | None, typer.Option("-o", "--out", help="The directory; continued if it exists.")
    ] = None,
    smoke: common.SMOKE = False,
    checkpoint: Annotated[
        list[str] | None, typer.Option(help="Instead of the paper's; repeat for a second one.")
    ] = None,
    evaluator: Annotated[str | None, typer.Option(help="Instead of the paper's.")] = None,
    steps: Annotated[str | None, typer.Option(help="Instead of the paper's budgets.")] = None,
    n: Annotated[int | None, typer.Option("-n", "--n", help="Instead of the paper's.")] = None,
    seed: Annotated[int, typer.Option(help="Root seed.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:i.")] = "auto",
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """List the paper's tables and figures, or run one and print paper and measured side by side."""
    from strop.studies.reproduce import ITEMS
    from strop.studies.reproduce import reproduce as run

    if id is None:
        _list(ITEMS, as_json)
        return
    if out is None:
        raise UserError("A study needs a place.", where="-o/--out", fix=f"-o runs/{id}")
    if n is not None:
        output.positive("-n", n)
    with output.warnings_noted(), reporter() as bar:
        outcome = run(
            id,
            out=Path(out),
            smoke=smoke,
            checkpoints=checkpoint or [],
            evaluator=evaluator,
            steps=[] if steps is None else listed(steps, int, "--steps"),
            n=n,
            seed=seed,
            device=device,
            progress=bar,
        )
    if as_json:
        shown = {"keys": outcome.keys, "unit": outcome.unit, "rows": outcome.rows}
        output.emit({"id": id, "smoke": smoke, **shown, "result": outcome.document})
    else:
        _print(id, outcome, smoke)
    output.next_command(f"ls {shlex.quote(out)}")


def _list(items: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.emit(
            {
                id: {
                    "what": item.what,
                    "needs": item.needs,
                    "tables": item.tables,
                    "command": _command(id, item),
                }
                for id, item in items.items()
            }
        )
        return
    output.table(
        ["id", "what", "a full run needs", "command"],
        [[id, item.what, item.needs, _command(id, item)] for id, item in items.items()],
    )
    output.next_command("strop reproduce headline --smoke -o runs/headline")


def _command(id: str, item: Any) -> str:
    missing = sum(one is None for one in item.checkpoints)
    return f"strop reproduce {id} -o runs/{id}" + " --checkpoint PATH" * missing


def _print(id: str, outcome: Outcome, smoke: bool) -> None:
    output.say(f"{id}: {outcome.unit}")
    common.beside(outcome.keys, outcome.rows)
    for text in outcome.protocol:
        output.say(f"- {text}")
    if smoke:
        output.say(common.SMOKE_NOTE)
