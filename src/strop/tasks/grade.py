"""Responses to verdicts, several at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from strop.tasks.sandbox import Box
from strop.tasks.task import Item, Task, Verdict

__all__ = ["Graded", "grade", "grade_all"]


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
    """Find the answers in a response, and check them; an empty response is told as such."""
    if not response.strip():
        nothing = Verdict("empty", "the response is empty")
        names = [one.name for one in task.filters]
        return Graded(item.id, response, dict.fromkeys(names), dict.fromkeys(names, nothing))
    answers = task.answers(item, response)
    verdicts = {name: task.judge(item, answer, box) for name, answer in answers.items()}
    return Graded(item.id, response, answers, verdicts)


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
