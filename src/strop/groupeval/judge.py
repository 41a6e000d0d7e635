"""Ask a judge about every group that has no verdict yet.

A reply that is no verdict is asked again, the same request, a few times; these content retries
are counted apart from the transport's. Every reply is in the journal before the next question,
so that a session that is killed loses no more than what was on its way.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from strop.groupeval.budget import Budget, Exhausted, guessed_tokens
from strop.groupeval.endpoint import Endpoint, Reply
from strop.groupeval.payload import Messages, messages, prompt_hash
from strop.groupeval.plan import Sheet
from strop.groupeval.series import Series
from strop.groupeval.validate import Problem, read_reply

__all__ = ["CONTENT_RETRIES", "Session", "judge_series", "pending"]

CONTENT_RETRIES = 3
"""How often the same request is sent again after a reply that is no verdict."""

TRANSPORT = ("rate_limited", "timeout", "server_error")

Question = tuple[Sheet, int]
"""A sheet, and which repeat of it."""


@dataclass
class Session:
    """What one run of the command did."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    asked: int = 0
    accepted: int = 0
    stopped: str | None = None
    """Why it ended before its end: a cap, or a server that does not answer."""
    unasked: list[Question] = field(default_factory=list)


def pending(series: Series, repeats: int = 1) -> list[Question]:
    """Every question without a verdict, in the order of the plan; controls are asked once.

    What failed before comes last, so that a few hopeless ones cannot keep the rest waiting.
    """
    questions: list[Question] = []
    for repeat in range(repeats):
        done, failed = series.answered(repeat)
        new = [
            (sheet, repeat)
            for sheet in series.plan.sheets
            if sheet.id not in done and (repeat == 0 or sheet.kind == "plan")
        ]
        questions += sorted(new, key=lambda question: question[0].id in failed)
    return questions


async def judge_series(
    series: Series,
    endpoint: Endpoint,
    budget: Budget,
    *,
    concurrency: int = 8,
    repeats: int = 1,
    told: Callable[[str], None] | None = None,
) -> Session:
    """Ask until every question has a verdict, has failed for now, or a cap is reached.

    Whoever calls holds the series (`Series.writing`). `told` hears each question's outcome.
    """
    session = Session()
    queue = deque(pending(series, repeats))
    workers = [
        _work(series, endpoint, budget, queue, session, max(5, concurrency), told)
        for _ in range(min(concurrency, len(queue)))
    ]
    tasks = [asyncio.create_task(worker) for worker in workers]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await endpoint.close()
    session.unasked += queue
    _note_unasked(series, session)
    return session


async def _work(
    series: Series,
    endpoint: Endpoint,
    budget: Budget,
    queue: deque[Question],
    session: Session,
    patience: int,
    told: Callable[[str], None] | None,
) -> None:
    while queue and session.stopped is None:
        sheet, repeat = queue.popleft()
        try:
            outcome = await _ask(series, endpoint, budget, sheet, repeat, session)
        except Exhausted as error:
            session.stopped = f"budget_exhausted: {error}"
            session.unasked.append((sheet, repeat))
            return
        session.asked += 1
        session.accepted += outcome == "verdict"
        endpoint.silent = endpoint.silent + 1 if outcome in TRANSPORT else 0
        if endpoint.silent >= patience:
            session.stopped = f"{outcome}: {endpoint.silent} questions in a row got no reply"
        if told is not None:
            told(outcome)


async def _ask(
    series: Series,
    endpoint: Endpoint,
    budget: Budget,
    sheet: Sheet,
    repeat: int,
    session: Session,
) -> str:
    """One question until it has a verdict or its content retries are used up."""
    texts, task = series.sheet_texts(sheet)
    question = messages(series.profile, sheet.labels, texts, task)
    most = budget.reserve(
        guessed_tokens(question, cautious=True), series.judge["decoding"]["max_tokens"]
    )
    outcome = ""
    for attempt in range(1, CONTENT_RETRIES + 2):
        try:
            answer = await endpoint.ask(
                question,
                lambda: budget.admit(most),
                lambda tokens, delivered: budget.settle(most, tokens, delivered),
            )
        except Exhausted:
            if outcome:  # its last reply is on record and says why there is no verdict
                session.stopped = "budget_exhausted: the cap was reached between two attempts"
                return outcome
            raise
        outcome, detail = _outcome(answer, sheet, series)
        series.append(_entry(answer, outcome, detail, question, sheet, repeat, attempt, session))
        if outcome == "verdict" or not answer.delivered:
            break
    return outcome


def _outcome(answer: Reply, sheet: Sheet, series: Series) -> tuple[str, str]:
    """`verdict`, or the reason why there is none, and its detail."""
    if answer.failure is not None:
        return answer.failure, answer.detail
    try:
        read_reply(answer.reply, sheet.labels, series.profile)
    except Problem as problem:
        if answer.finish_reason == "length":
            limit = series.judge["decoding"]["max_tokens"]
            return "truncated", f"the limit of {limit} tokens was reached ({problem.detail[:80]})"
        return problem.reason, problem.detail
    return "verdict", ""


def _entry(
    answer: Reply,
    outcome: str,
    detail: str,
    question: Messages,
    sheet: Sheet,
    repeat: int,
    attempt: int,
    session: Session,
) -> dict[str, Any]:
    record = asdict(answer)
    del record["failure"], record["delivered"]
    return {
        **record,
        "sheet": sheet.id,
        "repeat": repeat,
        "attempt": attempt,
        "transport_retries": max(0, answer.calls - 1),
        "outcome": outcome,
        "detail": detail,
        "prompt_sha256": prompt_hash(question),
        "session": session.id,
    }


def _note_unasked(series: Series, session: Session) -> None:
    """One line for all that a cap kept from being asked, so that each has its reason."""
    if session.stopped is None or not session.stopped.startswith("budget_exhausted"):
        return
    for repeat in sorted({repeat for _, repeat in session.unasked}):
        series.append(
            {
                "sheets": [sheet.id for sheet, r in session.unasked if r == repeat],
                "repeat": repeat,
                "outcome": "budget_exhausted",
                "detail": session.stopped.partition(": ")[2],
                "session": session.id,
            }
        )
