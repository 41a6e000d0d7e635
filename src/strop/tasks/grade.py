"""Responses to verdicts, several at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from strop.errors import UserError
from strop.registry import one_line, resolve
from strop.tasks.sandbox import Box, find_box
from strop.tasks.task import Item, Task, Verdict
from strop.tasks.trial import probe


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

    Whatever the task's filters and its check raise is an `invalid` answer with that reason.
    """
    if task.sandboxed and box is None:
        raise UserError("Programs of a model run in a sandbox only.", expected="a `Box`")
    if not response.strip():
        nothing = Verdict("empty", "the response is empty")
        names = [one.name for one in task.filters]
        return Graded(item.id, response, dict.fromkeys(names), dict.fromkeys(names, nothing))
    found = task.find(item, response)
    answers = {name: one.answer for name, one in found.items()}
    verdicts = {name: task.judge(item, one, box) for name, one in found.items()}
    return Graded(item.id, response, answers, verdicts)


def ready(task: Task, *, unsafe_run: bool = False) -> Box | None:
    """Where a task's programs run, None where it has none; what is missing is told at once.

    For whoever is about to draw responses: hours later is too late.
    """
    for reference in (task.check, *(one.extract for one in task.filters)):
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
    task: Task,
    responses: Sequence[tuple[Item, str]],
    box: Box | None,
    workers: int | None = None,
) -> Iterator[tuple[int, Graded]]:
    """All of them in parallel, as they get done, each with its place in the list."""
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        places = {
            pool.submit(grade, task, item, response, box): place
            for place, (item, response) in enumerate(responses)
        }
        try:
            for done in as_completed(places):
                yield places[done], done.result()
        finally:  # whoever stops listening must not wait for all the others
            pool.shutdown(wait=False, cancel_futures=True)
