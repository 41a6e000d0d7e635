"""Grading by hand: every response meets its own problem, in any batch, order and after growth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from made_runs import cell_spec, made_cell, output
from strop.spec import CheckpointSpec
from strop.tasks import Box, Entrant, Filter, Item, Task, Verdict, grade_all
from strop.tasks.running import Grader, grade_cell, task_metric
from strop.tasks.task import OUTCOMES

PROBLEMS, LENGTH, END, TURN = 5, 6, 9, 10


def _items() -> Sequence[Item]:
    """Problem i is answered by i alone."""
    return [Item(f"p/{i}", f"problem {i}", str(i)) for i in range(PROBLEMS)]


def _check(item: Item, answer: str, box: object) -> Verdict:
    if answer == "lost":
        return Verdict("lost")
    return Verdict("passed" if answer == item.reference else "wrong")


TASK = Task(
    name="numbers",
    summary="",
    source="",
    items=_items,
    filters=(Filter("first", lambda _, text: text), Filter("last", lambda _, text: text[-1:])),
    check=_check,
    wrong=lambda *_: {},
    stop=("###", "@@"),
    length=LENGTH,
)
ENTRANT = Entrant(
    "a",
    "a",
    CheckpointSpec(family="llada", sha256="0" * 64, shape={"vocab_size": 12, "length": 64}),
    False,
    "tokenizer",
    ("<end>", "<turn>"),
    (END, TURN),
)
GRADER = Grader(TASK, ENTRANT, None)
IDS = np.full((1, LENGTH), 1)


def graded(index: Sequence[int], texts: Sequence[str], ids: np.ndarray | None = None):
    rows = IDS.repeat(len(index), 0) if ids is None else ids
    return GRADER.columns(np.array(index, np.int64), texts, rows)


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 4 * PROBLEMS - 1), unique=True, min_size=1, max_size=8),
    st.data(),
)
def test_output_i_answers_problem_i_modulo_their_number(index, data) -> None:
    """Whatever part of a run is graded together, in whatever order."""
    said = [data.draw(st.integers(0, PROBLEMS - 1)) for _ in index]
    found = graded(index, [str(one) for one in said])
    assert found["index"].tolist() == index
    right = [one == number % PROBLEMS for one, number in zip(said, index, strict=True)]
    assert found["passed_first"].tolist() == right
    codes = [OUTCOMES.index("passed" if one else "wrong") for one in right]
    assert found["outcome_first"].tolist() == codes


def test_each_filter_has_its_own_verdict() -> None:
    found = graded([1, 2], ["x1", "2"])
    assert found["passed_first"].tolist() == [0, 1]
    assert found["passed_last"].tolist() == [1, 1]


def test_a_lost_verdict_is_left_out_and_the_others_stay_with_their_numbers() -> None:
    ids = np.array([[1] * LENGTH, [END] + [1] * 5, [1, 1, END, 1, 1, 1]])
    found = graded([7, 3, 4], ["2", "lost", "x"], ids)
    assert found["index"].tolist() == [7, 4]
    assert found["passed_first"].tolist() == [1, 0]
    assert found["written"].tolist() == [6, 3]
    assert found["ended"].tolist() == [0, 1]


def test_of_lost_verdicts_alone_nothing_is_left() -> None:
    found = graded([7, 3], ["lost", "lost"])
    assert len(found) == 7
    assert {(len(one), one.dtype) for one in found.values()} == {(0, np.dtype(np.int64))}
    assert graded([0], ["0"])["passed_first"].dtype == np.int64


def test_what_counts_of_a_response_ends_with_the_first_end() -> None:
    right = ["1<end>2", "1<turn>2<end>", "1<end>2<turn>", "1###2", "1@@2###", "1###2@@", "1"]
    wrong = ["2<end>1", "2<turn>1<end>", "2###1", "2", "1 <end>"]
    found = graded([1] * 12, [*right, *wrong])
    assert found["passed_first"].tolist() == [1] * 7 + [0] * 5
    # A response ends by its ids, or by a mark of the task in its text.
    assert found["ended"].tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 0, 0]


@pytest.mark.parametrize(
    ("row", "ended", "written"),
    [
        ([1, 2, 3, 4, 5, 6], 0, 6),
        ([END, 2, 3, 4, 5, 6], 1, 1),
        ([1, 2, TURN, 4, END, 6], 1, 3),
        ([1, 2, 3, 4, 5, END], 1, 6),
        ([1, 2, 3, -1, -1, -1], 0, 3),
        ([1, END, -1, -1, -1, -1], 1, 2),
        ([0, 0, 1, -1, -1, -1], 0, 3),
    ],
)
def test_tokens_up_to_the_end(row, ended, written) -> None:
    found = graded([0], ["0"], np.array([row]))
    assert (found["ended"].tolist(), found["written"].tolist()) == ([ended], [written])


def test_a_run_that_grows_is_graded_as_one_that_did_not(tmp_path: Path) -> None:
    """The second time the batch begins at output 3: problem 3, then 4, 0, 1, ..."""
    spec, texts = cell_spec(LENGTH), [str(i % PROBLEMS) for i in range(9)]
    texts[6] = "0"  # problem 1: wrong
    for part in (range(3), range(3, 9)):
        cell = made_cell(
            tmp_path / "run", spec, [output(i, [1] * LENGTH, text=texts[i]) for i in part]
        )
        grade_cell(cell, TASK, ENTRANT, None)
        kept = cell.score(task_metric(TASK, ENTRANT, None))
        assert kept is not None
        assert kept.index.tolist() == list(range(part.stop))
        expected = [i != 6 for i in range(part.stop)]
        assert kept.columns["passed_first"].tolist() == expected


def test_verdicts_depend_on_the_task_and_on_what_ends_a_response() -> None:
    plain = task_metric(TASK, ENTRANT, None)
    assert plain.settings["ends"] == "<end> <turn>"
    others = [
        task_metric(TASK, replace(ENTRANT, ends=("<end>",)), None),
        task_metric(TASK, replace(ENTRANT, ends=()), None),
        task_metric(replace(TASK, version="2"), ENTRANT, None),
        task_metric(replace(TASK, stop=()), ENTRANT, None),
    ]
    assert len({plain.id, *(one.id for one in others)}) == 5


def test_a_metric_says_all_that_verdicts_depend_on() -> None:
    told = {"task": "numbers", "fingerprint": TASK.fingerprint}
    metric = task_metric(TASK, ENTRANT, Box("bwrap"))
    assert (metric.name, metric.settings) == ("task", {**told, "ends": "<end> <turn>"})
    programs, plain = replace(TASK, sandboxed=True), replace(ENTRANT, ends=())
    assert task_metric(programs, plain, Box("bwrap")).settings == {**told, "sandbox": "bubblewrap"}
    assert task_metric(programs, plain, Box(None)).settings == {**told, "sandbox": "none"}
    assert task_metric(programs, plain, None).settings == told


def test_what_a_tasks_own_code_fails_on_is_told_once(tmp_path: Path) -> None:
    def odd(item: Item, answer: str, box: object) -> Verdict:
        if answer == "!":
            raise ValueError(item.id)
        return _check(item, answer, box)

    task, notes = replace(TASK, check=odd, filters=TASK.filters[:1]), list[str]()
    texts = ["0", "!", "!", "3"]
    cell = made_cell(
        tmp_path, cell_spec(LENGTH), [output(i, [1] * LENGTH, text=t) for i, t in enumerate(texts)]
    )
    grade_cell(cell, task, ENTRANT, None, note=notes.append)
    assert notes == [
        "warning: the task's own code failed on 2 responses of a, which count as invalid; the "
        "first: p/1: the check raised ValueError: p/1"
    ]
    kept = cell.score(task_metric(task, ENTRANT, None))
    assert kept is not None
    assert kept.columns["passed_first"].tolist() == [1, 0, 0, 1]
    grade_cell(cell, task, ENTRANT, None, note=notes.append)
    assert len(notes) == 1  # nothing was left to grade
    grade_cell(cell, replace(task, version="2"), ENTRANT, None)  # and nobody has to listen


@pytest.mark.parametrize(("sandboxed", "batches"), [(True, [32, 8]), (False, [40])])
def test_programs_are_graded_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sandboxed: bool, batches: list[int]
) -> None:
    sizes: list[tuple[int, object]] = []
    heard: list[object] = []

    def counted(task: Task, pairs: Sequence[object], box: object) -> object:
        sizes.append((len(pairs), box))
        return grade_all(task, pairs, box)  # type: ignore[arg-type]

    class Heard:
        def __getattr__(self, name: str) -> object:
            return lambda *given: heard.append((name, given))

    monkeypatch.setattr("strop.tasks.running.grade_all", counted)
    task, box = replace(TASK, sandboxed=sandboxed), Box(None)
    cell = made_cell(
        tmp_path, cell_spec(LENGTH), [output(i, [1] * LENGTH, text="0") for i in range(40)]
    )
    grade_cell(cell, task, ENTRANT, box, Heard())  # type: ignore[arg-type]
    assert sizes == [(size, box) for size in batches]
    kept = cell.score(task_metric(task, ENTRANT, box))
    assert kept is not None
    assert {values.dtype for values in kept.columns.values()} == {np.dtype(np.int64)}
    assert ("start", (cell.spec, 40, 0, "grading numbers")) in heard
