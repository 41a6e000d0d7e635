"""Responses to verdicts; programs several at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from strop.errors import UserError
from strop.registry import one_line, resolve
from strop.tasks.sandbox import Box, find_box
from strop.tasks.task import Found, Item, Task, Verdict
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

    Whatever the task's filters and its check raise is an `invalid` answer with that reason, and so
    is what does not end (`overtime.py`; of a call in the main thread).
    """
    _refuse_open(task, box)
    return _judged(task, item, response, _found(task, item, response), box)


def _refuse_open(task: Task, box: Box | None) -> None:
    if task.sandboxed and box is None:
        raise UserError("Programs of a model run in a sandbox only.", expected="a `Box`")


def _found(task: Task, item: Item, response: str) -> dict[str, Found]:
    """What each filter finds; nothing in an empty response."""
    if response.strip():
        return task.find(item, response)
    nothing = Found(None, Verdict("empty", "the response is empty"))
    return dict.fromkeys((one.name for one in task.filters), nothing)


def _judged(
    task: Task, item: Item, response: str, found: Mapping[str, Found], box: Box | None
) -> Graded:
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
    """All of them as they get done, each with its place in the list; programs in parallel.

    What a task does itself runs in the thread that calls, where it can be ended.
    """
    if not task.sandboxed:
        for place, (item, response) in enumerate(responses):
            yield place, grade(task, item, response, box)
        return
    _refuse_open(task, box)
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        try:
            places = {
                pool.submit(_judged, task, item, text, _found(task, item, text), box): place
                for place, (item, text) in enumerate(responses)
            }
            for done in as_completed(places):
                yield places[done], done.result()
        finally:  # whoever stops listening must not wait for all the others
            pool.shutdown(wait=False, cancel_futures=True)
