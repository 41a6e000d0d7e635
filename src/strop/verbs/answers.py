"""The greedy answers of task runs, as they are judged, with their labels; and pairs of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from strop.errors import Incomplete, UserError, unknown_name
from strop.store import read_mark

if TYPE_CHECKING:
    from strop.tasks import Answered, Results, Task

SPECIAL = re.compile(r"<\|[^<>|\s]{1,40}\|>")
"""Tokens such as <|startoftext|> that a tokenizer writes out; a judge has no use for them."""


@dataclass(frozen=True)
class Answers:
    """What one model answered greedily to a task, and which answers are right."""

    name: str
    """What the model is called in tables; never shown to a judge."""
    task: str
    fingerprint: str
    """Of the problems and the rules that graded them."""
    items: tuple[str, ...]
    """The problems' ids, in order."""
    questions: tuple[str, ...]
    texts: tuple[str, ...]
    """As they are judged."""
    passed: tuple[bool, ...]
    origin: str
    """Where they come from."""
    notes: tuple[str, ...] = ()
    """What a reader must know of them."""


def paired(one: Answers, other: Answers) -> tuple[Answers, Answers]:
    """The two, if they answer the same problems."""
    if (one.task, one.fingerprint) != (other.task, other.fingerprint):
        raise UserError(
            "The two runs are of different tasks."
            if one.task != other.task
            else "The two runs have different problems, or other rules graded them.",
            where=f"{one.origin} and {other.origin}",
            got=f"{one.task} ({one.fingerprint}) and {other.task} ({other.fingerprint})",
            expected="answers to the same problems",
        )
    if one.items != other.items:
        more = [
            item
            for item in (*one.items, *other.items)
            if (item in one.items) != (item in other.items)
        ]
        raise UserError(
            "The two runs did not answer the same problems.",
            where=f"{one.origin} and {other.origin}",
            got=f"{len(one.items)} and {len(other.items)} problems; only in one of them: "
            + ", ".join(more[:4]),
            fix="run both with the same `limit`",
        )
    if one.name == other.name:
        raise UserError(
            "The two sides have the same name.",
            where=f"{one.origin} and {other.origin}",
            got=one.name,
            fix="name two checkpoints: RUN:LABEL",
        )
    return one, other


def sides_of_runs(sources: Sequence[str], filter: str | None) -> tuple[Answers, Answers] | None:
    """Both sides from task runs; None where the sources are two checkpoints."""
    from strop.tasks import Exam, Results

    places = [_place(one) for one in sources]
    runs = [one for one in places if one is not None]
    if not runs and len(sources) == 2:
        return None
    if len(runs) < len(sources) or not runs:
        raise UserError(
            "Two sides are compared: runs of a task, or checkpoints.",
            where="RUN_A and RUN_B",
            got=", ".join(
                f"{one} ({'a checkpoint' if place is None else 'a run'})"
                for one, place in zip(sources, places, strict=True)
            )
            or "nothing",
            expected="RUN_A RUN_B, one RUN with two checkpoints, or two checkpoints",
        )
    found = []
    for path, label in runs:
        exam = Exam.open(path)
        labels = [one.label for one in exam.candidates]
        if label is not None and label not in labels:
            raise unknown_name("checkpoint", label, labels, where=str(path))
        results = Results.of(exam)
        found += [(results, one) for one in ([label] if label else labels)]
    if len(found) != 2:
        raise UserError(
            "Two sides are compared.",
            where=", ".join(sources),
            got=f"{len(found)} checkpoints: " + ", ".join(label for _, label in found),
            fix="name one of a run's checkpoints: RUN:LABEL",
        )
    first, second = (answers_of(results, label, filter) for results, label in found)
    if first.name == second.name:  # the same checkpoint under two settings
        first, second = (replace(one, name=f"{_shown(one)}:{one.name}") for one in (first, second))
    return first, second


def _shown(one: Answers) -> str:
    return Path(one.origin).resolve().name


def _place(source: str) -> tuple[Path, str | None] | None:
    """A run, and which of its checkpoints; None if the source is no run."""
    if _is_task_run(source):
        return Path(source), None
    path, colon, label = source.rpartition(":")
    if colon and _is_task_run(path):
        return Path(path), label
    if Path(source).is_dir() and not (Path(source) / "config.json").exists():
        from strop.tasks import Exam

        Exam.open(source)  # says what a run is
    return None


def _is_task_run(path: str) -> bool:
    mark = read_mark(path)
    return mark is not None and mark.kind == "task"


def answers_of(results: Results, label: str, filter: str | None = None) -> Answers:
    """What one checkpoint of a task run answered greedily; refused where some of it is missing."""
    from strop.store import Run

    task, path = results.task, results.exam.path
    if filter is not None and filter not in results.filters:
        raise unknown_name("filter", filter, results.filters, where="`filter`")
    name = filter or results.filters[0]
    greedy = [one for one in results.settings if (one.label, one.temperature) == (label, 0)]
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
            got=", ".join(one.sampler.name for one in greedy),
            fix="run the one that is meant into a directory of its own",
        )
    sitting = greedy[0].sittings[0]
    wanted = Run.open(results.exam.run(label).path).wanted()[sitting.cell.id]
    if len(sitting.index) < wanted:
        raise Incomplete(
            f"{wanted - len(sitting.index)} of {wanted} greedy answers of {label} are missing.",
            where=path,
            got=f"{sitting.ungraded} without a verdict, "
            f"{wanted - len(sitting.index) - sitting.ungraded} not drawn",
            fix=f"strop task score {path}, or the command that made the run",
        )
    found = sitting.answered()
    lacking = sum(one.answers[name] is None for one in found)
    told = f"{lacking} answers of {label} have no program in them: judged as they came"
    return Answers(
        label,
        task.name,
        task.fingerprint,
        tuple(one.item.id for one in found),
        tuple(one.item.question for one in found),
        tuple(_text(task, one, name) for one in found),
        tuple(one.passed(name) for one in found),
        str(path),
        (told,) if task.sandboxed and lacking else (),
    )


def _text(task: Task, one: Answered, name: str) -> str:
    """A program as it was run; any other response without what a tokenizer adds to it."""
    program = one.answers[name]
    if task.sandboxed and program is not None:
        return program
    return SPECIAL.sub("", one.response).strip()
