"""strop task: problems with answers that can be checked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from strop.errors import UserError
from strop.prompts.rows import Bos
from strop.spec.value import OUTPUT_LIMIT, SEED_LIMIT
from strop.verbs import parameters
from strop.verbs.parameters import argument
from strop.verbs.verb import Ask, Parameter, Part, Result, Strong, Verb, VerbGroup, grid, quoted

if TYPE_CHECKING:
    from strop.tasks.outcome import Results

UNSAFE = (
    "warning: programs run without a sandbox, as you: they can read and delete your files. "
    "The limits on time and memory hold still."
)
TEMPERATURES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)


def _list(_: Ask) -> Result:
    from strop.tasks import TASKS

    tasks = [task.as_dict() for task in TASKS.values()]
    rows = [
        [
            task["name"],
            str(task["items"]),
            str(task["shots"]),
            ", ".join(task["filters"]),
            "in a sandbox" if task["sandboxed"] else "as text",
            task["source"],
            task["summary"],
        ]
        for task in tasks
    ]
    header = ["task", "problems", "shots", "filters", "checked", "source", "what"]
    return Result(
        parts=(grid(header, rows),),
        json={"tasks": tasks},
        next="strop task check gsm8k",
        value=dict(TASKS),
    )


def _check(ask: Ask) -> Result:
    from strop.tasks import TASKS, check_task, find_box

    task = TASKS.find(ask["task"], where="`task`")
    box = find_box(unsafe_run=ask["unsafe_run"]) if task.sandboxed else None
    if task.sandboxed and ask["unsafe_run"]:
        ask.note(UNSAFE)
    report = check_task(task, box, limit=ask["limit"], progress=ask.progress)
    report.raise_if_failed()
    return Result(parts=(report.line,), json=report.as_dict(), next="strop task list", value=report)


def _run(ask: Ask) -> Result:
    from strop.tasks import TASKS

    record = TASKS.find(ask["task"], where="`task`")
    if not os.path.exists(ask["out"]):  # else there may be more rows than these
        settings = len(ask["temperature"]) * len(ask["steps"] or [0])
        _check_row(ask["against"], len(ask["checkpoints"]) * settings)
    if record.sandboxed and ask["unsafe_run"]:
        ask.note(UNSAFE)
    from strop.tasks.running import TaskSettings, run_task

    settings = {"temperatures": ask["temperature"]}
    settings |= ask.some(*(TaskSettings.__annotations__.keys() - settings))
    results = run_task(
        record,
        ask["checkpoints"],
        ask["out"],
        unsafe_run=ask["unsafe_run"],
        force=ask["force"],
        progress=ask.progress,
        note=ask.note,
        engine=ask.engine,
        **settings,
    )
    return _result(results, ask["against"])


def _score(ask: Ask) -> Result:
    from strop.tasks.outcome import TaskRun

    run = Path(ask["run"])
    if TaskRun.open(run).task.sandboxed and ask["unsafe_run"]:
        ask.note(UNSAFE)
    from strop.tasks import score_task

    results = score_task(run, unsafe_run=ask["unsafe_run"], progress=ask.progress, note=ask.note)
    return _result(results, ask["against"])


def _check_row(against: int | None, rows: int) -> None:
    if against is not None and not 1 <= against <= rows:
        raise UserError(
            "There is no such row.",
            where="`against`",
            got=against,
            expected=f"a number from 1 to {rows}",
        )


def _result(results: Results, against: int | None) -> Result:
    from strop.tasks.tables import (
        answer,
        checkpoint_table,
        document,
        notes,
        setting_table,
        write_picture,
    )

    path = results.run.path
    if not results.settings:
        raise UserError(
            "The task run holds no responses.",
            where=path,
            fix="run the command that made it again; it draws what is missing",
        )
    _check_row(against, len(results.settings))
    files = write_picture(results)
    parts: list[Part] = []
    for number, table in enumerate((setting_table(results, against), checkpoint_table(results))):
        if table is not None:
            parts += [("\n" if number else "") + table.title, table]
    return Result(
        parts=(*parts, *notes(results), "", Strong(answer(results))),
        json={**document(results, against), "figures": files},
        remarks=(f"written: {', '.join(file.name for file in files)} in {quoted(path)}",),
        next=f"strop show {quoted(path / results.settings[0].label)}",
        value=results,
    )


TASK = argument("task", "TASK", "One of `strop task list`.")
UNSAFE_RUN = Parameter.flag("unsafe_run", "Run programs without a sandbox, as yourself.")
AGAINST = Parameter.count(
    "against",
    "The row to compare all others with, by its number; by default each row is compared with the "
    "same checkpoint and sampler at its lowest temperature.",
)
LIST = Verb(
    name="list",
    help="List the tasks: how many problems, how an answer is found, where it is checked.",
    parameters=(),
    run=_list,
    examples=("strop task list", "strop task list --json"),
)
CHECK = Verb(
    name="check",
    help="Send reference answers and wrong ones through the whole pipeline; exit 3 if it fails.",
    parameters=(
        TASK,
        Parameter.count("limit", "Only so many problems, from the first."),
        UNSAFE_RUN,
    ),
    run=_check,
    examples=("strop task check gsm8k", "strop task check humaneval --limit 8"),
)
VERB = Verb(
    name="run",
    help="Let every CHECKPOINT answer TASK at every temperature, and grade the responses.\n\n"
    "The same command continues what was interrupted, problem by problem and seed by seed; a "
    "larger --limit, and other temperatures, seeds, samplers or checkpoints add to what is there.",
    parameters=(
        TASK,
        argument("checkpoints", "CHECKPOINT...", "As for `strop sample`.", kind="many"),
        parameters.out("The directory; continued if it exists."),
        Parameter(
            "temperature",
            "0 is greedy, and is drawn once.",
            TEMPERATURES,
            "floats",
            shown="0,0.25,0.5,0.75,1,1.5,2",
        ),
        Parameter.count("seeds", "So many seeds, 0, 1, ..., above 0.", 3, most=SEED_LIMIT),
        Parameter.count(
            "limit", "Only so many problems, from the first; may grow later.", most=OUTPUT_LIMIT
        ),
        Parameter("sampler", "Of diffusion models; by default each family's own."),
        parameters.budgets("Updates M of diffusion models, e.g. 8,24; by default one per token."),
        Parameter(
            "precision", "Of the draw: float64 or float32; by default each family's public code."
        ),
        parameters.SETTINGS,
        parameters.IMPLEMENTATION,
        parameters.tokens("Tokens of a response; the task's."),
        Parameter(
            "chat",
            "Problems as messages in the tokenizer's chat template; by default where there is "
            "one, unless the checkpoint is called base.",
            kind="flag",
        ),
        Parameter(
            "bos",
            "What opens a plain text; tokenizer is its own rule. By default always for Dream, "
            "else tokenizer.",
            choices=get_args(Bos),
        ),
        parameters.BATCH_SIZE,
        parameters.DEVICE,
        parameters.NETWORK_DTYPE,
        parameters.REVISION,
        parameters.LOAD,
        UNSAFE_RUN,
        AGAINST,
        Parameter.flag("force", "Start the directory anew."),
        parameters.DRY_RUN,
        *parameters.SERVER,
        *parameters.ENGINE,
    ),
    run=_run,
    examples=(
        "strop task run sums embedded:sums-ar --limit 16 -o runs/sums",
        "strop task run gsm8k GSAI-ML/LLaDA-8B-Instruct --precision float32 -o runs/gsm8k",
    ),
)
SCORE = Verb(
    name="score",
    help="Grade what has no verdict yet, and print what RUN found; no model is loaded.",
    parameters=(argument("run", "RUN", "As `strop task run` made it."), UNSAFE_RUN, AGAINST),
    run=_score,
    examples=("strop task score runs/sums", "strop task score runs/sums --json"),
)
GROUP = VerbGroup(
    name="task",
    help="Problems with answers that can be checked: GSM8K, HumanEval, sums.",
    verbs=(LIST, CHECK, VERB, SCORE),
    examples=("strop task list", "strop task run sums embedded:sums-ar -o runs/sums"),
)
