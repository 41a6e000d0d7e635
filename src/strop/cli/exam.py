"""strop task run and strop task score: checkpoints at a task."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from strop.cli import output
from strop.cli.drawing import (
    BATCH_SIZE,
    DEVICE,
    DTYPE,
    IMPLEMENTATION,
    LOAD,
    REVISION,
    SETTINGS,
    batch_of,
)
from strop.cli.engine import with_engine
from strop.cli.progress import reporter
from strop.cli.values import listed, named, options
from strop.engine import Engine
from strop.errors import UserError

if TYPE_CHECKING:
    from strop.tasks.outcome import Results

UNSAFE = (
    "warning: programs run without a sandbox, as you: they can read and delete your files. "
    "The limits on time and memory hold still."
)
UNSAFE_RUN = Annotated[
    bool, typer.Option("--unsafe-run", help="Run programs without a sandbox, as yourself.")
]
AGAINST = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="The row to compare all others with, by its number; by default each row is compared "
        "with the same checkpoint and sampler at its lowest temperature.",
    ),
]


@with_engine
def run(
    task: Annotated[str, typer.Argument(metavar="TASK", help="One of `strop task list`.")],
    checkpoints: Annotated[
        list[str], typer.Argument(metavar="CHECKPOINT...", help="As for `strop sample`.")
    ],
    out: Annotated[str, typer.Option("-o", "--out", help="The directory; continued if it exists.")],
    temperature: Annotated[
        str, typer.Option(help="0 is greedy, and is drawn once.")
    ] = "0,0.25,0.5,0.75,1,1.5,2",
    seeds: Annotated[int, typer.Option(help="So many seeds, 0, 1, ..., above 0.")] = 3,
    limit: Annotated[
        int | None, typer.Option(help="Only so many problems, from the first; may grow later.")
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(help="Of diffusion models; by default each family's own."),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(help="Updates M of diffusion models, e.g. 8,24; by default one per token."),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="Of the draw: float64 or float32; by default each family's public code."),
    ] = None,
    settings: SETTINGS = None,
    implementation: IMPLEMENTATION = "fast",
    length: Annotated[
        int | None,
        typer.Option(
            "--length", "--gen-length", "--max-new-tokens", help="Tokens of a response; the task's."
        ),
    ] = None,
    chat: Annotated[
        bool | None,
        typer.Option(
            "--chat/--no-chat",
            help="Problems as messages in the tokenizer's chat template; by default where there "
            "is one, unless the checkpoint is called base.",
            show_default=False,
        ),
    ] = None,
    bos: Annotated[
        str | None,
        typer.Option(
            help="What opens a plain text: tokenizer (its own rule), always, never; by default "
            "always for Dream, else tokenizer."
        ),
    ] = None,
    batch_size: BATCH_SIZE = None,
    device: DEVICE = "auto",
    dtype: DTYPE = "auto",
    revision: REVISION = None,
    load: LOAD = None,
    unsafe_run: UNSAFE_RUN = False,
    against: AGAINST = None,
    force: Annotated[bool, typer.Option("--force", help="Start the directory anew.")] = False,
    as_json: Annotated[bool, output.JSON_FLAG] = False,
    *,
    engine: Engine,
) -> None:
    """Let every CHECKPOINT answer TASK at every temperature, and grade the responses.

    The same command continues what was interrupted, problem by problem and seed by seed; a larger
    --limit, and other temperatures, seeds, samplers or checkpoints add to what is there.
    """
    from strop.tasks import TASKS

    record = TASKS.find(task, where="TASK")
    temperatures = listed(temperature, float, "--temperature")
    budgets = None if steps is None else listed(steps, int, "--steps")
    own = named(settings, "--settings") if settings else {}
    loading = options(load or [], "--load")
    if record.sandboxed and unsafe_run:
        output.note(UNSAFE)
    from strop.tasks import run_task

    with output.warnings_noted(), reporter() as bar:
        found = run_task(
            record,
            checkpoints,
            out,
            temperatures=temperatures,
            seeds=seeds,
            limit=limit,
            length=length,
            sampler=sampler,
            steps=budgets,
            precision=cast(Any, precision),
            settings=own,
            implementation=cast(Any, implementation),
            chat=chat,
            bos=cast(Any, bos),
            batch_size=batch_of(batch_size),
            device=device,
            dtype=dtype,
            revision=revision,
            load=loading,
            unsafe_run=unsafe_run,
            force=force,
            progress=bar,
            note=output.note,
            engine=engine,
        )
    _tell(found, against, as_json)


def score(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="As `strop task run` made it.")],
    unsafe_run: UNSAFE_RUN = False,
    against: AGAINST = None,
    as_json: Annotated[bool, output.JSON_FLAG] = False,
) -> None:
    """Grade what has no verdict yet, and print what RUN found; no model is loaded."""
    from strop.tasks.run_folder import Exam

    if Exam.open(run).task.sandboxed and unsafe_run:
        output.note(UNSAFE)
    from strop.tasks import score_task

    with output.warnings_noted(), reporter() as bar:
        found = score_task(run, unsafe_run=unsafe_run, progress=bar, note=output.note)
    _tell(found, against, as_json)


def _tell(found: Results, against: int | None, as_json: bool) -> None:
    from strop.tasks.tables import checkpoint_table, document, notes, setting_table, write_picture

    place = found.exam.path
    if not found.settings:
        raise UserError(
            "The task run holds no responses.",
            where=place,
            fix="run the command that made it again; it draws what is missing",
        )
    if against is not None and against > len(found.settings):
        raise UserError(
            "There is no such row.",
            where="--against",
            got=against,
            expected=f"a number from 1 to {len(found.settings)}",
        )
    files = write_picture(found)
    if as_json:
        output.emit({**document(found, against), "figures": files})
    else:
        for number, table in enumerate((setting_table(found, against), checkpoint_table(found))):
            if table is not None:
                output.say(("\n" if number else "") + table.title)
                output.table(*table.text())
        for words in notes(found):
            output.say(words)
    output.note(f"written: {', '.join(file.name for file in files)} in {shlex.quote(str(place))}")
    label = found.settings[0].label
    output.next_command(f"strop show {shlex.quote(str(place / label))}")
