"""Responses to verdicts; programs several at a time.

A task is also checked against itself: reference answers must pass the whole pipeline, wrong ones
must not.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from strop.assets import ROOT
from strop.engine.plan import Progress, Silent
from strop.errors import CheckFailed, UserError
from strop.registry import one_line, resolve
from strop.tasks.sandbox import Box, find_box, probe
from strop.tasks.task import Found, Item, Task, Verdict

REFERENCE = "reference"


@dataclass(frozen=True)
class Surprise:
    """A reference that does not pass, or a wrong answer that does."""

    item: str
    kind: str
    """`reference`, or how the answer is wrong."""
    filter: str
    outcome: str
    detail: str

    def __str__(self) -> str:
        words = f"{self.item} ({self.kind}, filter {self.filter}): {self.outcome}"
        return f"{words}, {self.detail}" if self.detail else words


@dataclass(frozen=True)
class TaskCheck:
    """What came of it."""

    task: str
    references: int
    references_passed: int
    wrong: int
    wrong_passed: int
    surprises: tuple[Surprise, ...]
    sandbox: str | None
    """What stood between the programs and this machine; None for answers that are no programs."""

    @property
    def line(self) -> str:
        """The result in one line."""
        return (
            f"reference {self.references_passed} of {self.references} pass; "
            f"wrong {self.wrong_passed} of {self.wrong} pass"
        )

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "task": self.task,
            "reference": {"items": self.references, "passed": self.references_passed},
            "wrong": {"items": self.wrong, "passed": self.wrong_passed},
            "surprises": [vars(surprise) for surprise in self.surprises],
            "sandbox": self.sandbox,
        }

    def raise_if_failed(self) -> None:
        """An error that names what should not have happened."""
        if self.surprises:
            raise CheckFailed(
                f"The task {self.task!r} does not hold: {self.line}.",
                got="; ".join(str(surprise) for surprise in self.surprises[:5]),
                expected="all references pass, and nothing else does",
            )


def check_task(
    task: Task, box: Box | None, *, limit: int | None = None, progress: Progress | None = None
) -> TaskCheck:
    """Send references and wrong answers through everything that a model's response goes through."""
    if task.sandboxed and box is not None:
        probe(box)
    progress = progress or Silent()
    jobs = _jobs(task, limit)
    progress.start(None, len(jobs), 0, f"checking {task.name}")
    passed, surprises = {REFERENCE: 0, "wrong": 0}, []
    responses = [(item, response) for item, _, response in jobs]
    for job, graded in grade_all(task, responses, box):
        kind = jobs[job][1]
        right = kind == REFERENCE
        verdicts = graded.verdicts
        odd = [name for name in verdicts if graded.passed(name) != right]
        # Right is what passes by every filter; a wrong answer must not pass by any.
        passed[REFERENCE if right else "wrong"] += bool(odd) != right
        surprises += [
            (job, Surprise(graded.item, kind, n, verdicts[n].outcome, verdicts[n].detail))
            for n in odd
        ]
        progress.advance(1, 0)
    references = sum(1 for _, kind, _ in jobs if kind == REFERENCE)
    return TaskCheck(
        task.name,
        references,
        passed[REFERENCE],
        len(jobs) - references,
        passed["wrong"],
        tuple(surprise for _, surprise in sorted(surprises, key=lambda pair: pair[0])),
        box.level if task.sandboxed and box is not None else None,
    )


def _jobs(task: Task, limit: int | None) -> list[tuple[Item, str, str]]:
    """Item, kind and response of everything that is sent."""
    everything = task.all_items()
    jobs = []
    for position, item in enumerate(everything[:limit]):
        other = everything[(position + 1) % len(everything)]
        jobs.append((item, REFERENCE, item.reference))
        wrong = resolve(task.wrong)(item, other)
        jobs += [(item, kind, response) for kind, response in wrong.items()]
    return jobs


def rows(name: str) -> list[dict[str, Any]]:
    """The rows of one of the shipped files."""
    with gzip.open(ROOT / "tasks" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@dataclass(frozen=True)
class Graded:
    """One response, what was found in it, and what the check says."""

    item: str
    response: str
    answers: Mapping[str, str | None]
    """By filter."""
    verdicts: Mapping[str, Verdict]
    """By filter."""

    def passed(self, name: str) -> bool:
        """Whether the answer of one filter is right."""
        return self.verdicts[name].passed


def grade(task: Task, item: Item, response: str, box: Box | None) -> Graded:
    """Find the answers in a response, and check them; an empty response is told as such.

    Whatever the task's filters and its check raise is an `invalid` answer with that reason, and so
    is what does not end (`overtime.py`; of a call in the main thread).
    """
    _refuse_open(task, box)
    return _grade_answers(task, item, response, _find_answers(task, item, response), box)


def _refuse_open(task: Task, box: Box | None) -> None:
    if task.sandboxed and box is None:
        raise UserError("Programs of a model run in a sandbox only.", expected="a `Box`")


def _find_answers(task: Task, item: Item, response: str) -> dict[str, Found]:
    """What each filter finds; nothing in an empty response."""
    if response.strip():
        return task.find(item, response)
    nothing = Found(None, Verdict("empty", "the response is empty"))
    return dict.fromkeys((rule.name for rule in task.filters), nothing)


def _grade_answers(
    task: Task, item: Item, response: str, by_filter: Mapping[str, Found], box: Box | None
) -> Graded:
    answers = {name: answer.answer for name, answer in by_filter.items()}
    verdicts = {name: task.judge(item, answer, box) for name, answer in by_filter.items()}
    return Graded(item.id, response, answers, verdicts)


def ready(task: Task, *, unsafe_run: bool = False) -> Box | None:
    """Where a task's programs run, None where it has none; what is missing is told at once.

    For whoever is about to draw responses: hours later is too late.
    """
    for reference in (task.check, *(rule.extract for rule in task.filters)):
        try:
            resolve(reference)
        except (ImportError, AttributeError, ValueError) as error:
            raise UserError(
                f"The task {task.name!r} cannot be used.",
                where=str(reference),
                got=one_line(error),
                expected="`package.module:name` of a function",
            ) from error
    if not task.sandboxed:
        return None
    box = find_box(unsafe_run=unsafe_run)
    probe(box)
    return box


def grade_all(
    task: Task, responses: Sequence[tuple[Item, str]], box: Box | None, workers: int | None = None
) -> Iterator[tuple[int, Graded]]:
    """All of them as they get done, each with its place in the list; programs in parallel.

    What a task does itself runs in the thread that calls, where it can be ended.
    """
    if not task.sandboxed:
        for position, (item, response) in enumerate(responses):
            yield position, grade(task, item, response, box)
        return
    _refuse_open(task, box)
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        try:
            positions = {
                pool.submit(
                    _grade_answers, task, item, text, _find_answers(task, item, text), box
                ): position
                for position, (item, text) in enumerate(responses)
            }
            for done in as_completed(positions):
                yield positions[done], done.result()
        finally:  # whoever stops listening must not wait for all the others
            pool.shutdown(wait=False, cancel_futures=True)
