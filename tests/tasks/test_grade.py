"""Grading: no filter and no check of a task ends or stops a run; what they raise is a verdict."""

from __future__ import annotations

import gzip
import importlib
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strop.errors import CheckFailed, UserError
from strop.tasks import (
    TASKS,
    Filter,
    Item,
    Task,
    Verdict,
    check_task,
    grade,
    grade_all,
    ready,
)
from strop.tasks.sandbox import Box

GRADE = importlib.import_module("strop.tasks.grade")  # the package has a function of this name
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
    monkeypatch.setattr("strop.tasks.task.SECONDS", 0.2)
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
    monkeypatch.setattr("strop.tasks.task.SECONDS", 0.2)
    filters = (Filter("slow", _endless_search), Filter("last", _last))
    task = _task(filters=filters, sandboxed=True)
    found = dict(grade_all(task, [(ITEM, "Paris"), (ITEM, "Rome"), (ITEM, " ")], Box(None)))
    outcomes = [[one.outcome for one in found[i].verdicts.values()] for i in range(3)]
    assert outcomes == [["invalid", "passed"], ["invalid", "wrong"], ["empty", "empty"]]
    with pytest.raises(UserError, match="in a sandbox only"):
        list(grade_all(task, [(ITEM, "Paris")], None))


def test_a_check_in_a_sandbox_has_its_own_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strop.tasks.task.SECONDS", 0.05)

    def slow(*given: Any) -> Verdict:
        time.sleep(0.2)
        return Verdict("passed")

    task = _task(check=slow, sandboxed=True)
    assert grade(task, ITEM, "Paris", Box(None)).passed("last")
    assert not grade(replace(task, sandboxed=False), ITEM, "Paris", None).passed("last")


def test_an_alarm_of_somebody_else_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strop.tasks.task.SECONDS", 0.05)
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


# ---------------------------------------------------------------- a task against itself

CITIES = tuple(Item(f"capitals/{k}", f"{k}?", name) for k, name in enumerate(("Paris", "Rome", "")))


def _first(item: Item, response: str) -> str:
    return response.split()[0]


def _false(item: Item, other: Item) -> dict[str, str]:
    return {"swapped": other.reference, "doubled": f"{item.reference} {item.reference}"}


def _cities(**changes: Any) -> Task:
    filters = (Filter("first", _first), Filter("last", _last))
    return _task(**{"items": lambda: CITIES, "filters": filters, "wrong": _false, **changes})


class _Heard:
    """Progress that keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def start(self, *given: Any) -> None:
        self.calls.append(given)

    def advance(self, *given: Any) -> None:
        self.calls.append(given)


def test_a_check_counts_what_passes_and_names_what_should_not_have() -> None:
    """Twice the right answer passes by both filters; the third reference is empty, and fails."""
    heard: Any = _Heard()
    found = check_task(_cities(), None, progress=heard)
    assert heard.calls == [(None, 9, 0, "checking capitals"), *[(1, 0)] * 9]
    assert found.line == "reference 2 of 3 pass; wrong 2 of 6 pass"
    told = ["passed"] * 4 + ["empty, the response is empty"] * 2
    names = [f"capitals/{k} (doubled" for k in (0, 0, 1, 1)] + ["capitals/2 (reference"] * 2
    assert [str(one) for one in found.surprises] == [
        f"{name}, filter {way}): {outcome}"
        for name, way, outcome in zip(names, ("first", "last") * 3, told, strict=True)
    ]
    assert found.as_dict() == {
        "task": "capitals",
        "reference": {"items": 3, "passed": 2},
        "wrong": {"items": 6, "passed": 2},
        "surprises": [vars(one) for one in found.surprises],
        "sandbox": None,
    }
    with pytest.raises(CheckFailed, match="'capitals' does not hold: reference 2 of 3") as failed:
        found.raise_if_failed()
    assert failed.value.got == "; ".join(str(one) for one in found.surprises[:5])


def test_a_check_of_the_first_items_takes_the_other_answer_from_all_of_them() -> None:
    """The answer of the item that follows; that of the first one for the last."""
    given: list[tuple[str, str]] = []

    def kept(item: Item, other: Item) -> dict[str, str]:
        given.append((item.id, other.id))
        return {"other": "Berlin"}

    found = check_task(_cities(wrong=kept), None, limit=2)
    assert given == [("capitals/0", "capitals/1"), ("capitals/1", "capitals/2")]
    assert (found.references, found.wrong, found.surprises) == (2, 2, ())
    found.raise_if_failed()
    check_task(_cities(wrong=kept), None)
    assert given[-1] == ("capitals/2", "capitals/0")


def test_right_is_what_passes_by_every_filter_and_wrong_what_passes_by_none() -> None:
    """`Paris or Rome` is Paris by one filter; as a reference it does not count as passed."""
    either = Item("capitals/0", "?", "Paris or Rome")
    task = _cities(
        items=lambda: [either],
        check=lambda _, answer, __: Verdict("passed" if answer == "Paris" else "wrong"),
        wrong=lambda *_: {"both": "Rome or Paris", "none": "Oslo"},
    )
    found = check_task(task, None)
    assert found.line == "reference 0 of 1 pass; wrong 1 of 2 pass"
    assert [(one.kind, one.filter) for one in found.surprises] == [
        ("reference", "last"),
        ("both", "last"),
    ]


def test_programs_are_checked_where_the_sandbox_works_and_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probed: list[Any] = []
    monkeypatch.setattr(GRADE, "probe", probed.append)
    monkeypatch.setattr(
        GRADE, "find_box", lambda *, unsafe_run: Box(None if unsafe_run else "bwrap")
    )
    box, programs = Box(None), _cities(sandboxed=True)
    found = check_task(programs, box)
    assert (probed, found.sandbox) == ([box], "none")
    assert found.surprises == check_task(_cities(), None).surprises  # in order, though in parallel
    assert check_task(_cities(), box).sandbox is None
    assert probed == [box]
    assert ready(_cities(), unsafe_run=True) is None
    assert [ready(programs), ready(programs, unsafe_run=True)] == probed[1:]
    assert [one.bubblewrap for one in probed] == [None, "bwrap", None]
    with pytest.raises(UserError, match="in a sandbox only"):
        grade(programs, ITEM, "Paris", None)


@pytest.mark.parametrize(("asked", "cpus", "at_once"), [(3, 7, 3), (None, 2, 2), (None, None, 1)])
def test_as_many_programs_at_a_time_as_were_asked_for_or_as_there_are_processors(
    monkeypatch: pytest.MonkeyPatch, asked: int | None, cpus: int | None, at_once: int
) -> None:
    sizes: list[int] = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, size: int) -> None:
            sizes.append(size)
            super().__init__(size)

    monkeypatch.setattr(GRADE, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr("os.cpu_count", lambda: cpus)
    task = _task(sandboxed=True)
    found = dict(grade_all(task, [(ITEM, "Paris"), (ITEM, "Rome")], Box(None), asked))
    assert [found[k].passed("last") for k in range(2)] == [True, False]
    assert (found[1].item, found[1].response, found[1].answers) == ("one", "Rome", {"last": "Rome"})
    assert sizes == [at_once]


def test_whoever_stops_listening_does_not_wait_for_the_other_programs() -> None:
    begun: list[str] = []

    def slow(item: Item, answer: str, box: Any) -> Verdict:
        begun.append(answer)
        time.sleep(0.05)
        return Verdict("passed")

    task, jobs = _task(check=slow, sandboxed=True), [(ITEM, str(k)) for k in range(50)]
    some = grade_all(task, jobs, Box(None), 1)
    next(some)
    some.close()  # type: ignore[attr-defined]
    time.sleep(0.15)
    assert len(begun) < 10


def test_programs_are_given_the_box() -> None:
    boxes: list[Any] = []
    task = _task(check=lambda *given: boxes.append(given[2]) or Verdict("passed"), sandboxed=True)
    box = Box("bwrap")
    list(grade_all(task, [(ITEM, "Paris")], box))
    grade(task, ITEM, "Paris", box)
    assert [one is box for one in boxes] == [True, True]


def test_the_rows_of_a_shipped_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(GRADE, "ROOT", tmp_path)
    (tmp_path / "tasks").mkdir()
    with gzip.open(tmp_path / "tasks" / "made.jsonl.gz", "wb") as file:
        file.write('{"a": "é"}\n{"a": "b"}\n'.encode())
    assert GRADE.rows("made") == [{"a": "é"}, {"a": "b"}]


def test_an_empty_response_is_told_as_such_by_every_filter() -> None:
    graded = grade(_cities(), ITEM, " \n", None)
    nothing = Verdict("empty", "the response is empty")
    assert graded.verdicts == {"first": nothing, "last": nothing}
    assert graded.answers == {"first": None, "last": None}
