"""Grading: no filter and no check of a task ends a run; what they raise is a verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strop.errors import UserError
from strop.tasks import TASKS, Filter, Item, Task, Verdict, grade, grade_all, ready

ITEM = Item("one", "Capital of France?", "Paris")
ERRORS = (
    ValueError("odd\ntext"),
    RecursionError("deep"),
    MemoryError(),
    KeyError("x"),
    UserError("no"),
    SystemExit(3),
    GeneratorExit(),
)


def _last(item: Item, response: str) -> str:
    return response.split()[-1]


def _same(item: Item, answer: str, box: Any) -> Verdict:
    return Verdict("passed" if answer == item.reference else "wrong")


def _raising(error: BaseException) -> Any:
    def fail(*given: Any) -> Any:
        raise error

    return fail


def _task(**changes: Any) -> Task:
    task = Task(
        name="capitals",
        summary="capitals",
        source="our own",
        items=lambda: [ITEM],
        filters=(Filter("last", _last),),
        check=_same,
        wrong=lambda *_: {},
        version="1",
    )
    return replace(task, **changes)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_what_a_filter_raises_is_an_invalid_answer(error: BaseException) -> None:
    task = _task(filters=(Filter("broken", _raising(error)), Filter("last", _last)))
    graded = grade(task, ITEM, "It is Paris", None)
    assert graded.answers == {"broken": None, "last": "Paris"}
    verdict = graded.verdicts["broken"]
    assert (verdict.outcome, verdict.raised) == ("invalid", True)
    told = f"the filter broken raised {type(error).__name__}: {error}"
    assert verdict.detail == told.partition("\n")[0]
    assert graded.verdicts["last"] == Verdict("passed")
    assert task.answers(ITEM, "It is Paris") == graded.answers


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_so_is_what_a_check_raises(error: BaseException) -> None:
    verdict = grade(_task(check=_raising(error)), ITEM, "Paris", None).verdicts["last"]
    assert (verdict.outcome, verdict.raised) == ("invalid", True)
    assert verdict.detail.startswith(f"the check raised {type(error).__name__}: ")


@pytest.mark.parametrize("value", [None, True, "passed", Verdict("right")])  # type: ignore[arg-type]
def test_and_what_is_no_verdict(value: Any) -> None:
    verdict = grade(_task(check=lambda *_: value), ITEM, "Paris", None).verdicts["last"]
    assert (verdict.outcome, verdict.raised) == ("invalid", True)
    assert repr(value) in verdict.detail


def test_the_other_responses_keep_their_verdicts() -> None:
    def some(item: Item, response: str) -> str:
        if "!" in response:
            raise ValueError("!")
        return response

    task = _task(filters=(Filter("some", some),))
    texts = ["Paris", "Paris!", "Rome", "Paris"]
    found = dict(grade_all(task, [(ITEM, text) for text in texts], None))
    outcomes = [found[place].verdicts["some"].outcome for place in range(4)]
    assert outcomes == ["passed", "invalid", "wrong", "passed"]


def test_an_interrupt_is_no_verdict() -> None:
    for changes in (
        {"check": _raising(KeyboardInterrupt())},
        {"filters": (Filter("last", _raising(KeyboardInterrupt())),)},
    ):
        with pytest.raises(KeyboardInterrupt):
            grade(_task(**changes), ITEM, "Paris", None)


def test_no_answer_is_no_failure_of_the_task() -> None:
    verdict = grade(_task(filters=(Filter("last", lambda *_: None),)), ITEM, "x", None)
    assert verdict.verdicts["last"] == Verdict("invalid", "there is no answer in the response")


@pytest.mark.parametrize("reference", ["no_such_module:f", "strop.tasks.gsm8k:nothing", "nonsense"])
def test_a_function_that_is_not_there_is_told_at_once(reference: str) -> None:
    assert ready(TASKS["gsm8k"]) is None
    for changes in ({"check": reference}, {"filters": (Filter("last", reference),)}):
        with pytest.raises(UserError, match="'capitals' cannot be used") as told:
            ready(_task(**changes))
        assert told.value.where == reference
