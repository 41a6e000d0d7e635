"""Grading: no filter and no check of a task ends or stops a run; what they raise is a verdict."""

from __future__ import annotations

import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from strop.errors import UserError
from strop.tasks import TASKS, Filter, Item, Task, Verdict, grade, grade_all, overtime, ready
from strop.tasks.sandbox import Box

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


def _endless_search(*given: Any) -> Any:
    return re.search(r"(a|aa)+$", "a" * 60 + "b")


def _endless_loop(*given: Any) -> Any:
    while True:
        with suppress(Exception):
            time.sleep(0.001)


@pytest.mark.parametrize("endless", [_endless_search, _endless_loop])
def test_what_does_not_end_is_an_invalid_answer(
    monkeypatch: pytest.MonkeyPatch, endless: Any
) -> None:
    """Filters and checks, of one response and of many; those beside it keep their verdicts."""
    monkeypatch.setattr(overtime, "SECONDS", 0.2)
    task, start = _task(filters=(Filter("slow", endless), Filter("last", _last))), time.monotonic()
    first, second = (
        grade(task, ITEM, "Paris", None),
        dict(grade_all(task, [(ITEM, "Paris")], None))[0],
    )
    assert first == second
    assert first.answers == {"slow": None, "last": "Paris"}
    told = "does not end within 0.2 seconds"
    assert first.verdicts["slow"] == Verdict("invalid", f"the filter slow {told}", raised=True)
    assert first.verdicts["last"] == Verdict("passed")
    verdict = grade(_task(check=endless), ITEM, "Paris", None).verdicts["last"]
    assert verdict == Verdict("invalid", f"the check {told}", raised=True)
    assert time.monotonic() - start < 20


def test_filters_of_programs_end_too_before_a_sandbox_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Programs are judged in other threads, where nothing could end a filter."""
    monkeypatch.setattr(overtime, "SECONDS", 0.2)
    filters = (Filter("slow", _endless_search), Filter("last", _last))
    task = _task(filters=filters, sandboxed=True)
    found = dict(grade_all(task, [(ITEM, "Paris"), (ITEM, "Rome"), (ITEM, " ")], Box(None)))
    outcomes = [[one.outcome for one in found[i].verdicts.values()] for i in range(3)]
    assert outcomes == [["invalid", "passed"], ["invalid", "wrong"], ["empty", "empty"]]
    with pytest.raises(UserError, match="in a sandbox only"):
        list(grade_all(task, [(ITEM, "Paris")], None))


def test_a_check_in_a_sandbox_has_its_own_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overtime, "SECONDS", 0.05)

    def slow(*given: Any) -> Verdict:
        time.sleep(0.2)
        return Verdict("passed")

    task = _task(check=slow, sandboxed=True)
    assert grade(task, ITEM, "Paris", Box(None)).passed("last")
    assert not grade(replace(task, sandboxed=False), ITEM, "Paris", None).passed("last")


def test_an_alarm_of_somebody_else_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overtime, "SECONDS", 0.05)
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: rung.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 50.0)
        grade(_task(check=_endless_loop), ITEM, "Paris", None)
        assert 40 < signal.getitimer(signal.ITIMER_REAL)[0] < 49.96
        signal.setitimer(signal.ITIMER_REAL, 0.01)  # due while the check runs
        grade(_task(check=_endless_loop), ITEM, "Paris", None)
        time.sleep(0.05)
        assert rung == [signal.SIGALRM]
        signal.setitimer(signal.ITIMER_REAL, 0)
        grade(_task(), ITEM, "Paris", None)
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0  # nothing rings later
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_in_another_thread_there_is_no_limit_and_no_error() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(grade, _task(), ITEM, "Paris", None).result().passed("last")


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
