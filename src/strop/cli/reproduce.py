"""strop reproduce: the paper's tables and figures, beside what is measured here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from strop.cli import output
from strop.cli.commands import examples
from strop.cli.drawing import SMOKE, print_table
from strop.cli.progress import reporter
from strop.cli.values import listed
from strop.errors import UserError
from strop.verbs.parameters import ENGINE
from strop.verbs.study import SMOKE_NOTE, quoted


def register(app: typer.Typer) -> None:
    """Add the verb."""
    commands = ("strop reproduce", "strop reproduce headline --smoke -o runs/headline")
    app.command("reproduce", epilog=examples(*commands))(reproduce)


def reproduce(
    id: Annotated[str | None, typer.Argument(help="Which; without it, the list.")] = None,
    out: Annotated[
        str | None, typer.Option("-o", "--out", help="The directory; continued if it exists.")
    ] = None,
    smoke: SMOKE = False,
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(
            help="Instead of the paper's; repeat for a second one. late=PATH, early=PATH or "
            "public=ID says which of the paper's it stands for."
        ),
    ] = None,
    evaluator: Annotated[str | None, typer.Option(help="Instead of the paper's.")] = None,
    steps: Annotated[str | None, typer.Option(help="Instead of the paper's budgets.")] = None,
    n: Annotated[int | None, typer.Option("-n", "--n", help="Instead of the paper's.")] = None,
    limit: Annotated[
        int | None, typer.Option(help="Problems of a task, from the first; the paper's are all.")
    ] = None,
    held_out: Annotated[
        Path | None, typer.Option(help="JSON lines of texts: of the posterior loss, or the guard.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Root seed; 0 by default.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:i.")] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="Of the generator's network: float32, bfloat16, float16, public."),
    ] = None,
    engine: Annotated[str | None, typer.Option(help=ENGINE[0].help)] = None,
    devices: Annotated[str | None, typer.Option(help=ENGINE[1].help)] = None,
    ray_address: Annotated[str | None, typer.Option(help=ENGINE[2].help)] = None,
    shard: Annotated[str | None, typer.Option(help=ENGINE[3].help)] = None,
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """List the paper's tables and figures, or run one and print paper and measured side by side."""
    from strop.verbs import paper

    if id is None:
        _list(as_json)
        return
    if out is None:
        raise UserError("A study needs a place.", where="-o/--out", fix=f"-o runs/{id}")
    given: dict[str, Any] = {"held_out": held_out, "seed": seed, "device": device, "dtype": dtype}
    given |= {"engine": engine, "devices": devices, "ray_address": ray_address, "shard": shard}
    given["limit"] = limit
    given["steps"] = None if steps is None else listed(steps, int, "--steps")
    given |= _lists(id, n, evaluator)
    with output.warnings_noted(), reporter() as bar:
        found = paper.reproduce(
            id,
            out=out,
            smoke=smoke,
            checkpoints=checkpoint or [],
            progress=bar,
            note=output.note,
            **given,
        )
    if as_json:
        table = found.table.document()
        shown = {"id": id, "smoke": smoke, "unit": found.table.title, **table}
        output.emit({**shown, "result": found.result.document()})
    else:
        print_table(found.table)
        for text in dict.fromkeys((*found.notes, *((SMOKE_NOTE,) if smoke else ()))):
            output.say(f"- {text}")
    if found.result.missing is not None:
        output.note(f"strop: {found.result.missing}; run the same command again")
        raise typer.Exit(2)
    output.next_command(f"strop report {quoted(Path(out))} -o {quoted(Path(out))}.html")


def _lists(id: str, n: int | None, evaluator: str | None) -> dict[str, Any]:
    """Numbers of outputs and evaluators: some studies take several."""
    from strop.verbs import paper

    given: dict[str, Any] = {"n": n, "evaluator": evaluator}
    known = paper.items()
    if id in known:
        for one in known[id][0].parameters:
            several = one.kind in ("counts", "many", "words")
            if one.name in given and several and given[one.name] is not None:
                given[one.name] = [given[one.name]]
    return given


def _list(as_json: bool) -> None:
    from strop.verbs import paper

    rows = [
        {
            "id": item.id,
            "what": item.what,
            "needs": item.needs,
            "tables": item.tables,
            "command": item.command,
        }
        for _, item in paper.items().values()
    ]
    if as_json:
        output.emit({row["id"]: {k: v for k, v in row.items() if k != "id"} for row in rows})
        return
    output.table(
        ["id", "what", "a full run needs", "command"],
        [[row["id"], row["what"], row["needs"], row["command"]] for row in rows],
    )
    output.say("\nNot run from here")
    output.table(["id", "why"], [[id, why] for id, why in paper.ELSEWHERE.items()])
    output.next_command("strop reproduce headline --smoke -o runs/headline")
