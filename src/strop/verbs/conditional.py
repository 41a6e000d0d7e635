"""Conditional GEQ: the greedy answers of two models to a task, judged, beside what the check says.

A condition is a problem. The judge reads the question and the two answers, blinded and in random
order, and never a label: those go from the task's run to the score here. Programs are judged as the
check ran them, sanitised; other responses as they are graded, cut where the task says they end.

RUN_A and RUN_B are runs of `strop task run`; one run with two checkpoints will do. Checkpoints in
their place answer greedily first. Every judge that has a series in OUT/groupeval/TASK takes part;
where there is none yet, the offline judge makes the first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.assets import EMBEDDED
from strop.errors import Incomplete, UserError, unknown_name
from strop.stats.interval import value_of
from strop.store import read_mark
from strop.table import Column, Table
from strop.verbs import paper, parameters
from strop.verbs.entrants import FOLDER, PAPER_TASKS, TASK_PARAMETERS, answer_tasks
from strop.verbs.points import judge_texts
from strop.verbs.study import Sources, Study
from strop.verbs.verb import Ask, Parameter, Result, quoted

if TYPE_CHECKING:
    from strop.groupeval.judgments import Judgments
    from strop.tasks import Answered, Results, Task

NAME, JUDGED, PROFILE = "conditional", "groupeval", "task-v1"
RUBRIC = (
    "The rubric is strop's own wording of task-v1, not the paper's: the two cGEQ are on different "
    "scales, and so is the GEQ of texts without a task. Apparent success is one of the graded "
    "dimensions, so this checks a criterion and proves no preference."
)
INTERVALS = (
    "Intervals: 10,000 draws of whole conditions with replacement, given one verdict on each pair. "
    "AUROC and preference count ties half."
)
OFFLINE = (
    "The offline judge counts words, numbers and loops; it cannot check an answer and grades every "
    "response's success alike. Expect an AUROC near chance, or below."
)
SMALL = (
    "The small models answer strop's own sums in a few signs, and the judge counts: this shows how "
    "the study works, and says nothing about the paper's judge or models."
)


SPECIAL = re.compile(r"<\|[^<>|\s]{1,40}\|>")
"""Tokens such as <|startoftext|> that a tokenizer writes out; they are not shown to a judge."""


# ---------------------------------------------------------------- answers of task runs


@dataclass(frozen=True)
class Answers:
    """One model's greedy answers to a task, and which of them are right."""

    name: str
    """The model's name in tables; never shown to a judge."""
    task: str
    fingerprint: str
    """Of the problems and the rules that graded them."""
    items: tuple[str, ...]
    """The problems' ids, in order."""
    questions: tuple[str, ...]
    texts: tuple[str, ...]
    """The answers as the judge reads them."""
    passed: tuple[bool, ...]
    origin: str
    """Where they come from."""
    notes: tuple[str, ...] = ()
    """Remarks on the answers."""


def paired(first: Answers, second: Answers) -> tuple[Answers, Answers]:
    """The two sides, if they answer the same problems."""
    if (first.task, first.fingerprint) != (second.task, second.fingerprint):
        raise UserError(
            "The two runs are of different tasks."
            if first.task != second.task
            else "The two runs have different problems, or other rules graded them.",
            where=f"{first.origin} and {second.origin}",
            got=f"{first.task} ({first.fingerprint}) and {second.task} ({second.fingerprint})",
            expected="answers to the same problems",
        )
    if first.items != second.items:
        more = [
            item
            for item in (*first.items, *second.items)
            if (item in first.items) != (item in second.items)
        ]
        raise UserError(
            "The two runs did not answer the same problems.",
            where=f"{first.origin} and {second.origin}",
            got=f"{len(first.items)} and {len(second.items)} problems; only in one of them: "
            + ", ".join(more[:4]),
            fix="run both with the same `limit`",
        )
    if first.name == second.name:
        raise UserError(
            "The two sides have the same name.",
            where=f"{first.origin} and {second.origin}",
            got=first.name,
            fix="name two checkpoints: RUN:LABEL",
        )
    return first, second


def sides_of_runs(sources: Sequence[str], filter: str | None) -> tuple[Answers, Answers] | None:
    """Both sides from task runs; None where the sources are two checkpoints."""
    from strop.tasks import Results, TaskRun

    found_runs = [_run_and_label(source) for source in sources]
    runs = [run for run in found_runs if run is not None]
    if not runs and len(sources) == 2:
        return None
    if len(runs) < len(sources) or not runs:
        raise UserError(
            "Two sides are compared: runs of a task, or checkpoints.",
            where="RUN_A and RUN_B",
            got=", ".join(
                f"{source} ({'a checkpoint' if run is None else 'a run'})"
                for source, run in zip(sources, found_runs, strict=True)
            )
            or "nothing",
            expected="RUN_A RUN_B, one RUN with two checkpoints, or two checkpoints",
        )
    chosen = []
    for path, label in runs:
        task_run = TaskRun.open(path)
        labels = [entrant.label for entrant in task_run.entrants]
        if label is not None and label not in labels:
            raise unknown_name("checkpoint", label, labels, where=str(path))
        results = Results.of(task_run)
        chosen += [(results, name) for name in ([label] if label else labels)]
    if len(chosen) != 2:
        raise UserError(
            "Two sides are compared.",
            where=", ".join(sources),
            got=f"{len(chosen)} checkpoints: " + ", ".join(label for _, label in chosen),
            fix="name one of a run's checkpoints: RUN:LABEL",
        )
    first, second = (answers_of(results, label, filter) for results, label in chosen)
    if first.name == second.name:  # the same checkpoint under two settings
        first, second = (
            replace(side, name=f"{_run_name(side)}:{side.name}") for side in (first, second)
        )
    return first, second


def _run_name(answers: Answers) -> str:
    return Path(answers.origin).resolve().name


def _run_and_label(source: str) -> tuple[Path, str | None] | None:
    """A run and the label of a checkpoint, if named; None if the source is not a run."""
    if _is_task_run(source):
        return Path(source), None
    path, colon, label = source.rpartition(":")
    if colon and _is_task_run(path):
        return Path(path), label
    if Path(source).is_dir() and not (Path(source) / "config.json").exists():
        from strop.tasks import TaskRun

        TaskRun.open(source)  # says what a run is
    return None


def _is_task_run(path: str) -> bool:
    mark = read_mark(path)
    return mark is not None and mark.kind == "task"


def answers_of(results: Results, label: str, filter: str | None = None) -> Answers:
    """The greedy answers of one checkpoint of a task run; refused where some are missing."""
    from strop.store import Run

    task, path = results.task, results.run.path
    if filter is not None and filter not in results.filters:
        raise unknown_name("filter", filter, results.filters, where="`filter`")
    name = filter or results.filters[0]
    greedy = [
        setting
        for setting in results.settings
        if (setting.label, setting.temperature) == (label, 0)
    ]
    if not greedy:
        raise Incomplete(
            f"The task run has no graded greedy answers of {label}.",
            where=path,
            fix="strop task run TASK CHECKPOINT --temperature 0 -o RUN",
        )
    if len(greedy) > 1:
        raise UserError(
            f"The task run has greedy answers of {label} by several samplers.",
            where=path,
            got=", ".join(setting.sampler.name for setting in greedy),
            fix="run the sampler you want into its own directory",
        )
    grades = greedy[0].grades[0]
    planned = Run.open(results.run.run_of(label).path).wanted()[grades.cell.id]
    if len(grades.index) < planned:
        raise Incomplete(
            f"{planned - len(grades.index)} of {planned} greedy answers of {label} are missing.",
            where=path,
            got=f"{grades.ungraded} without a verdict, "
            f"{planned - len(grades.index) - grades.ungraded} not drawn",
            fix=f"strop task score {path}, or the command that made the run",
        )
    answered = grades.answered()
    lacking = sum(answer.answers[name] is None for answer in answered)
    note = f"{lacking} answers of {label} contain no program: judged unchanged"
    return Answers(
        label,
        task.name,
        task.fingerprint,
        tuple(answer.item.id for answer in answered),
        tuple(answer.item.question for answer in answered),
        tuple(_text(task, answer, name) for answer in answered),
        tuple(answer.passed(name) for answer in answered),
        str(path),
        (note,) if task.sandboxed and lacking else (),
    )


def _text(task: Task, answer: Answered, name: str) -> str:
    """A program as it was run; any other response without what a tokenizer adds to it."""
    program = answer.answers[name]
    if task.sandboxed and program is not None:
        return program
    return SPECIAL.sub("", answer.response).strip()


# ---------------------------------------------------------------- who answers, who judges


def _pairs_of(ask: Ask) -> dict[str, tuple[Answers, Answers]]:
    """The two sides of every task."""
    sides = sides_of_runs(ask.sources, ask["filter"])
    if sides is not None:
        return {sides[0].task: paired(*sides)}
    tasks = ask["task"] or PAPER_TASKS
    pairs = {}
    results = answer_tasks(ask, tasks, dict.fromkeys(tasks, (0.0,)), seeds=1)
    for task, held in results.items():
        first, second = (answers_of(held.results, label, ask["filter"]) for label in held.labels)
        pairs[task] = paired(first, second)
    return pairs


def judged(pair: tuple[Answers, Answers], out: Path, *, seed: int) -> dict[str, Judgments]:
    """Plan the pair in `out`, judge it offline, and read every judge that has a series there."""
    texts = {side.name: side.texts for side in pair}
    return judge_texts(texts, out, seed=seed, profile=PROFILE, prompts=pair[0].questions)


def judge_scores(
    pair: tuple[Answers, Answers], judge: str, judgments: Judgments, *, seed: int
) -> dict[str, Any]:
    """The scores of one judge on one task."""
    from strop.groupeval import conditional, label

    labels = {
        (side.name, index): passed for side in pair for index, passed in enumerate(side.passed)
    }
    scores = conditional(label(judgments, labels, (pair[0].name, pair[1].name)), seed=seed)
    return {"judge": judge, "task": pair[0].task, "conditions": len(pair[0].items), **scores}


# ---------------------------------------------------------------- tables

COLUMNS = (
    Column("judge"),
    Column("task"),
    Column("judged", "conditions", help="Problems whose two answers have a verdict."),
    Column("success", "success A / B", percent=True, digits=3, help="By the automatic check."),
    Column("cgeq", "cGEQ A / B", digits=3),
    Column("difference", "cGEQ, B minus A", digits=3, signed=True),
    Column("auroc", "AUROC", digits=3),
    Column("lead", "passed minus failed", digits=3, signed=True),
    Column("discordant", help="Conditions where exactly one answer passed."),
)
MODEL_COLUMNS = (
    Column("judge"),
    Column("task"),
    Column("model"),
    Column("success", percent=True, digits=3),
    Column("cgeq", "cGEQ", digits=3),
    Column("auroc", "AUROC", digits=3),
)
PAIR_COLUMNS = (
    Column("judge"),
    Column("task"),
    Column("both", "both pass"),
    Column("only_first", "only A"),
    Column("only_second", "only B"),
    Column("neither"),
    Column("right", "right one higher", help="Of the conditions where exactly one passed."),
    Column("tied"),
    Column("wrong", "wrong one higher"),
    Column("preferred", "right one preferred", percent=True, digits=3, help="Ties count half."),
)


def _row(scores: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "judge": scores["judge"],
        "task": scores["task"],
        "judged": scores["n_prompts"],
        "conditions": scores["conditions"],
        "models": scores["generators"],
        "success": scores["success"],
        "cgeq": [value_of(value) for value in scores["cgeq"]],
        "difference": scores["cgeq_difference"],
        "auroc": scores["auroc"],
        "lead": scores["discordant"],
        "discordant": scores["n_discordant"],
    }


def _by_model(scores: Mapping[str, Any]) -> list[dict[str, Any]]:
    values = (scores[name] for name in ("generators", "success", "cgeq", "auroc_by_generator"))
    names = ("judge", "task", "model", "success", "cgeq", "auroc")
    return [
        dict(zip(names, (scores["judge"], scores["task"], *row), strict=True))
        for row in zip(*values, strict=True)
    ]


def _pairs(scores: Mapping[str, Any]) -> dict[str, Any]:
    who = {name: scores[name] for name in ("judge", "task")}
    return {**who, **scores["n_pairs"], **scores["n_preferred"], "preferred": scores["preferred"]}


def _paper_rows() -> list[dict[str, Any]]:
    """The paper's table, in the same shape."""
    table = paper.table("conditional")
    rows = list(map(paper.with_interval, table.records()))
    for name in ("auroc", "pass_minus_fail"):
        rows = [paper.with_interval(row, name, f"{name}_") for row in rows]
    return [
        {
            "judge": f"{table.settings['judge']} (paper)",
            "task": row["task"],
            "judged": row["conditions"],
            "conditions": row["conditions"],
            "success": [row["success_llada"] / 100, row["success_dream"] / 100],
            "cgeq": [row["geq_llada"], row["geq_dream"]],
            **{key: row[key] for key in ("difference", "auroc", "discordant")},
            "lead": row["pass_minus_fail"],
        }
        for row in rows
    ]


# ---------------------------------------------------------------- the study


def _run(ask: Ask) -> Result:
    pairs, scored, notes = _pairs_of(ask), [], []
    for task, pair in pairs.items():
        for judge, judgments in judged(pair, ask.out / JUDGED / task, seed=ask["seed"]).items():
            if len(judgments.cells) < 2:
                notes.append(f"{judge} has no verdict on {task} yet: strop groupeval judge")
                continue
            scores = judge_scores(pair, judge, judgments, seed=ask["seed"])
            scored.append(scores)
            if scores["n_prompts"] < scores["conditions"]:
                notes.append(
                    f"{judge} has judged {scores['n_prompts']} of {scores['conditions']} "
                    f"conditions of {task}: its numbers cover only those"
                )
        notes += [note for side in pair for note in side.notes]
    first, second = (side.name for side in next(iter(pairs.values())))
    table = Table(f"A: {first}; B: {second}", COLUMNS, [_row(scores) for scores in scored])
    more = {
        "models": Table(
            "Each model by itself",
            MODEL_COLUMNS,
            [row for scores in scored for row in _by_model(scores)],
        ),
        "pairs": Table(
            "Who passed, and whom the judge prefers", PAIR_COLUMNS, list(map(_pairs, scored))
        ),
        "paper": Table(
            "The paper: A LLaDA-8B-Instruct, B Dream-v0-Base-7B", COLUMNS, _paper_rows()
        ),
    }
    notes += [INTERVALS, RUBRIC, OFFLINE, *((SMALL,) if ask.smoke else ())]
    facts = {"models": [first, second], "tasks": list(pairs), "judged": scored}
    return Result(ask.said(), table, more, facts, tuple(dict.fromkeys(notes)))


def _next(ask: Ask) -> str:
    """Judge the first task's answers."""
    plan = min(folder for folder in (ask.out / JUDGED).iterdir() if folder.is_dir())
    return f"strop groupeval judge {quoted(plan)} --base-url URL --model NAME"


def _check(ask: Ask) -> None:
    """Read the runs before anything is written, so that errors come at once."""
    from strop.tasks import TASKS

    sides = sides_of_runs(ask.sources, ask["filter"])
    if sides is None:
        for task in ask["task"] or PAPER_TASKS:
            TASKS.find(task, where="`task`")
        return
    paired(*sides)
    for name in ("task", "limit"):
        if ask[name] is not None and not ask.smoke:
            raise UserError(
                f"`{name}` is for checkpoints; these are runs, which have it already.",
                where=f"`{name}`",
                got=ask[name],
                fix="leave it out",
            )


def _beside(result: Result, *_: Any) -> Table:
    """Counts of the check share a row; what a judge measured has a row of that judge."""
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}

    def tell(side: str, task: str, judge: str, values: Mapping[str, Any]) -> None:
        for what, value in values.items():
            keys = {"task": task, "what": what, "judge": judge}
            row = rows.setdefault((task, what, judge), {**keys, "paper": None, "measured": None})
            row[side] = value

    printed, judged = paper.table(NAME), result.facts["judged"]
    for row in printed.records():
        tell("paper", row["task"], "none", _check_counts(row, "llada", "dream"))
    for scores in judged:
        counts = _check_counts(scores["n_pairs"], "first", "second")
        tell("measured", scores["task"], "none", counts)
    least = f"above {printed.claims['auroc_of_each_model_above']}"
    for row in _paper_rows():
        numbers = {**_quality(row), "AUROC, A": least, "AUROC, B": least}
        tell("paper", row["task"], row["judge"], numbers)
    for row in result.table.rows:
        tell("measured", row["task"], row["judge"], _quality(row))
    for scores in judged:
        each = zip(("AUROC, A", "AUROC, B"), scores["auroc_by_generator"], strict=True)
        tell("measured", scores["task"], scores["judge"], dict(each))
    keys = (Column("task"), Column("what"), Column("judge"))
    unit = "A: LLaDA, B: Dream, or the models used instead"
    return paper.beside(unit, keys, list(rows.values()))


def _check_counts(row: Mapping[str, Any], a: str, b: str) -> dict[str, int]:
    return {
        "right, A": row["both"] + row[f"only_{a}"],
        "right, B": row["both"] + row[f"only_{b}"],
        "right, both": row["both"],
        "right, only A": row[f"only_{a}"],
        "right, only B": row[f"only_{b}"],
        "right, neither": row["neither"],
    }


def _quality(row: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a judge."""
    return {
        "cGEQ, A": row["cgeq"][0],
        "cGEQ, B": row["cgeq"][1],
        "cGEQ, B minus A": row["difference"],
        "AUROC": row["auroc"],
        "passed minus failed": row["lead"],
    }


STUDY = Study(
    name=NAME,
    title="Judged answers of two models to a task, beside the automatic check",
    about="Pair the greedy answers of two task runs by problem, have them judged blindly, and "
    "compare: conditional GEQ, AUROC against the labels, the pairs of which one is right.",
    sources=Sources(
        ("RUN_A", "RUN_B"),
        "Runs of `strop task run` (RUN, or RUN:LABEL for one of its checkpoints), or checkpoints.",
        (),
        (EMBEDDED + "sums", EMBEDDED + "sums-ar"),
    ),
    parameters=(
        Parameter(
            "task",
            "The tasks that the checkpoints answer.",
            kind="words",
            smoke=("sums",),
            shown="gsm8k,humaneval",
        ),
        Parameter("filter", "How the answer is read from a response.", shown="the task's first"),
        parameters.SEED,
        *TASK_PARAMETERS,
    ),
    run=_run,
    check=_check,
    runs=(FOLDER, JUDGED),
    next=_next,
    examples=(
        "strop study conditional --smoke -o runs/judged",
        "strop study conditional RUN_A RUN_B -o runs/judged",
    ),
    items=(paper.item(NAME, _beside),),
)
