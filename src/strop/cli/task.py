"""strop task: problems with answers that can be checked."""

from __future__ import annotations

from typing import Annotated

import typer

from strop.cli import output
from strop.cli.commands import examples
from strop.cli.exam import UNSAFE, UNSAFE_RUN, run, score
from strop.cli.progress import reporter


def register(app: typer.Typer) -> None:
    """Add the verb and its commands."""
    task = typer.Typer(
        no_args_is_help=True,
        help="Problems with answers that can be checked: GSM8K, HumanEval, sums.",
        epilog=examples("strop task list", "strop task run sums embedded:sums-ar -o runs/sums"),
    )
    task.command("list", epilog=examples("strop task list", "strop task list --json"))(listing)
    task.command(
        "check", epilog=examples("strop task check gsm8k", "strop task check humaneval --limit 8")
    )(check)
    task.command(
        "run",
        epilog=examples(
            "strop task run sums embedded:sums-ar --limit 16 -o runs/sums",
            "strop task run gsm8k GSAI-ML/LLaDA-8B-Instruct --precision float32 -o runs/gsm8k",
        ),
    )(run)
    task.command(
        "score", epilog=examples("strop task score runs/sums", "strop task score runs/sums --json")
    )(score)
    app.add_typer(task, name="task")


def listing(as_json: Annotated[bool, output.JSON_FLAG] = False) -> None:
    """List the tasks: how many problems, how an answer is found, where it is checked."""
    from strop.tasks import TASKS

    found = [task.as_dict() for task in TASKS.values()]
    if as_json:
        output.emit({"tasks": found})
        return
    output.table(
        ["task", "problems", "shots", "filters", "checked", "source", "what"],
        [
            [
                one["name"],
                str(one["items"]),
                str(one["shots"]),
                ", ".join(one["filters"]),
                "in a sandbox" if one["sandboxed"] else "as text",
                one["source"],
                one["summary"],
            ]
            for one in found
        ],
    )
    output.next_command("strop task check gsm8k")


def check(
    name: Annotated[str, typer.Argument(metavar="TASK", help="One of `strop task list`.")],
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only so many problems, from the first.")
    ] = None,
    unsafe_run: UNSAFE_RUN = False,
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """Send reference answers and wrong ones through the whole pipeline; exit 3 if it fails."""
    from strop.tasks import TASKS, check_task, find_box

    task = TASKS.find(name, where="TASK")
    box = find_box(unsafe_run=unsafe_run) if task.sandboxed else None
    if task.sandboxed and unsafe_run:
        output.note(UNSAFE)
    with reporter() as bar:
        report = check_task(task, box, limit=limit, progress=bar)
    report.raise_if_failed()
    if as_json:
        output.emit(report.as_dict())
        return
    output.say(report.line)
    output.next_command("strop task list")
