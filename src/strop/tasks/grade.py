"""Responses to verdicts; programs several at a time.

A task is also checked against itself: reference answers must pass the whole pipeline, wrong ones
must not.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.assets import ROOT
from strop.engine.plan import Progress, Silent
from strop.errors import CheckFailed, UserError
from strop.measure.metric import ENDED, OUTCOME, PASSED, TASK, WRITTEN
from strop.measure.score import Outputs, score_outputs
from strop.registry import one_line, resolve
from strop.spec.value import MetricSpec
from strop.store import Cell
from strop.tasks import Box, Task, grade_all
from strop.tasks.outcome import Entrant
from strop.tasks.sandbox import Box, find_box, probe
from strop.tasks.task import OUTCOMES, Found, Item, Task, Verdict

# ------------------------------------------------------------------------------------ cell_grades

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


# ------------------------------------------------------------------------------------------ grade

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
        told = f"{self.item} ({self.kind}, filter {self.filter}): {self.outcome}"
        return f"{told}, {self.detail}" if self.detail else told


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
            "surprises": [vars(one) for one in self.surprises],
            "sandbox": self.sandbox,
        }

    def raise_if_failed(self) -> None:
        """An error that names what should not have happened."""
        if self.surprises:
            raise CheckFailed(
                f"The task {self.task!r} does not hold: {self.line}.",
                got="; ".join(str(one) for one in self.surprises[:5]),
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
    for place, graded in grade_all(task, responses, box):
        kind = jobs[place][1]
        right = kind == REFERENCE
        verdicts = graded.verdicts
        odd = [name for name in verdicts if graded.passed(name) != right]
        # Right is what passes by every filter; a wrong answer must not pass by any.
        passed[REFERENCE if right else "wrong"] += bool(odd) != right
        surprises += [
            (place, Surprise(graded.item, kind, n, verdicts[n].outcome, verdicts[n].detail))
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
        tuple(one for _, one in sorted(surprises, key=lambda pair: pair[0])),
        box.level if task.sandboxed and box is not None else None,
    )


def _jobs(task: Task, limit: int | None) -> list[tuple[Item, str, str]]:
    """Item, kind and response of everything that is sent."""
    everything = task.all_items()
    jobs = []
    for place, item in enumerate(everything[:limit]):
        other = everything[(place + 1) % len(everything)]
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
    task: Task, responses: Sequence[tuple[Item, str]], box: Box | None, workers: int | None = None
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
