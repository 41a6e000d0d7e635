"""Verdicts on the responses of a cell, kept beside them as scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from strop.engine.plan import Progress
from strop.measure.metric import ENDED, OUTCOME, PASSED, TASK, WRITTEN
from strop.measure.score import Outputs, score_outputs
from strop.spec.value import MetricSpec
from strop.store import Cell
from strop.tasks import Box, Task, grade_all
from strop.tasks.outcome import Entrant
from strop.tasks.task import OUTCOMES

BATCH = 32
"""Programs that are waited for together."""


def task_metric(task: Task, entrant: Entrant, box: Box | None) -> MetricSpec:
    """What verdicts depend on besides the responses."""
    settings = {"task": task.name, "fingerprint": task.fingerprint}
    settings |= {"ends": " ".join(entrant.ends)} if entrant.ends else {}
    settings |= {"sandbox": box.level} if task.sandboxed and box is not None else {}
    return MetricSpec(name=TASK.name, settings=dict(settings))


def grade_cell(
    cell: Cell,
    task: Task,
    entrant: Entrant,
    box: Box | None,
    progress: Progress | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> None:
    """Grade the responses that have no verdict yet; a lost verdict is not kept.

    Where the task's own code failed on some, `note` hears how often, and the first reason.
    """
    grader, metric = Grader(task, entrant, box), task_metric(task, entrant, box)

    def graded(some: Outputs) -> dict[str, NDArray]:
        columns = grader.columns(some.index, some.texts, some.ids)
        cell.add_words(metric, grader.said)  # before the verdicts: what has one has its words
        grader.said.clear()
        return columns

    score_outputs(
        cell,
        metric,
        graded,
        batch=BATCH if task.sandboxed else None,
        progress=progress,
        what=f"grading {task.name}",
    )
    if grader.failures:
        note(
            f"warning: the task's own code failed on {len(grader.failures)} responses of "
            f"{entrant.label}, which count as invalid; the first: {grader.failures[0]}"
        )


@dataclass(frozen=True)
class Grader:
    """What turns responses to a task into columns of verdicts."""

    task: Task
    entrant: Entrant
    box: Box | None
    failures: list[str] = field(default_factory=list)
    """Where the task's own code failed on a response: the problem and the reason."""
    said: dict[int, dict[str, dict[str, str]]] = field(default_factory=dict)
    """Of programs, by response and filter: what they printed, and the reason of the verdict."""

    def columns(
        self, index: NDArray[np.int64], texts: Sequence[str], ids: NDArray[np.int64]
    ) -> dict[str, NDArray]:
        """Of responses number `index`: verdicts, ends and tokens, and which have them (`index`)."""
        task, items = self.task, self.task.all_items()
        pairs = [
            (items[number % len(items)], self.entrant.cut(text))
            for number, text in zip(index.tolist(), texts, strict=True)
        ]
        verdicts = {place: one.verdicts for place, one in grade_all(task, pairs, self.box)}
        self.failures.extend(
            f"{pairs[place][0].id}: {one.detail}"
            for place in sorted(verdicts)
            for one in verdicts[place].values()
            if one.raised
        )
        kept = [
            place
            for place in sorted(verdicts)
            if all(one.outcome != "lost" for one in verdicts[place].values())
        ]
        for place in kept if task.sandboxed else ():
            told = {
                name: {"printed": one.printed, "detail": one.detail}
                for name, one in verdicts[place].items()
                if one.printed or one.detail
            }
            if told:
                self.said[int(index[place])] = told
        columns: dict[str, NDArray] = {"index": index[kept]}
        for name in (one.name for one in task.filters):
            found = [OUTCOMES.index(verdicts[place][name].outcome) for place in kept]
            columns[f"{PASSED}{name}"] = np.array([code == 0 for code in found], np.int64)
            columns[f"{OUTCOME}{name}"] = np.array(found, np.int64)
        ended, tokens = _ends(ids, self.entrant.end_ids)
        stopped = [any(mark in text for mark in task.stop) for text in texts]
        columns[ENDED] = (ended | np.array(stopped, bool))[kept].astype(np.int64)
        columns[WRITTEN] = tokens[kept]
        return columns


def _ends(
    ids: NDArray[np.int64], end_ids: tuple[int, ...]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Whether each row has an end token, and its tokens up to it."""
    found = np.isin(ids, end_ids)
    ended = np.asarray(found.any(1))
    return ended, np.where(ended, found.argmax(1) + 1, (ids >= 0).sum(1))
