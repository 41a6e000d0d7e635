"""Ask a judge about every group that has no verdict yet.

One group is asked alone until there is a verdict: only then is it known that the judge can give
one, and the rest is asked side by side. A reply that is no verdict is asked again, the same
request, a few times; these content retries are counted apart from the transport's. Every request
is in the journal before it leaves and every reply before the next question, so that a session that
is killed loses no more than what was on its way, and no cap forgets it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from strop.errors import UserError
from strop.groupeval.endpoint import Endpoint, reply_limit
from strop.groupeval.plan import Sheet
from strop.groupeval.profile import messages, prompt_hash
from strop.groupeval.series import Series
from strop.groupeval.verdict import NoVerdict, read_reply
from strop.served.client import Reply
from strop.served.cost import SETTLED, Caps, Exhausted, Tab, guessed_tokens

CONTENT_RETRIES = 3
"""How often the same request is sent again after a reply that is no verdict."""

IN_A_ROW = 5
"""Groups in a row without a verdict, earlier sessions included, after which it is given up."""

Question = tuple[Sheet, int]
"""A sheet, and which repeat of it."""


Answer = Callable[[Sequence[str], Sequence[str], str | None], str]
"""A judge in this process: from ids, texts and their task, if any, to a reply in the schema's form.

It may raise `NoVerdict`, with the reason, where it has none.
"""


@dataclass
class Session:
    """What one run of the command did."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    asked: int = 0
    accepted: int = 0
    stopped: str | None = None
    """Why it ended before its end: a cap, or a judge that gives no verdict."""
    unasked: list[Question] = field(default_factory=list)

    def count(self, asked: Asked, in_a_row: int) -> int:
        """Take note of one question; how many in a row now have no verdict."""
        self.asked += 1
        self.accepted += asked.outcome == "verdict"
        in_a_row = 0 if asked.outcome == "verdict" else in_a_row + 1
        if in_a_row >= IN_A_ROW and self.stopped is None:
            self.stopped = (
                f"{asked.outcome}: {in_a_row} groups in a row have no verdict; "
                f"the last: {asked.detail or 'no detail'}"
            )
        return in_a_row


@dataclass(frozen=True)
class Asked:
    """How one question ended."""

    outcome: str
    detail: str = ""
    reply: str | None = None


@dataclass
class _Work:
    """What all workers of a session share."""

    series: Series
    endpoint: Endpoint
    budget: Caps
    queue: deque[Question]
    in_a_row: int
    session: Session
    told: Callable[[str], None]
    shown: Callable[[Asked], None]


def pending(series: Series, repeats: int = 1) -> list[Question]:
    """Every question without a verdict, in the order of the plan; controls are asked once.

    What failed before comes last, longest ago first, so that a few hopeless ones cannot keep the
    rest waiting, nor each other.
    """
    questions: list[Question] = []
    for repeat in range(repeats):
        done, failed = series.answered(repeat)
        new = [
            (sheet, repeat)
            for sheet in series.plan.sheets
            if sheet.id not in done and (repeat == 0 or sheet.kind == "plan")
        ]
        questions += sorted(new, key=lambda question: failed.get(question[0].id, -1))
    return questions


async def judge_series(
    series: Series,
    endpoint: Endpoint,
    budget: Caps,
    *,
    concurrency: int = 8,
    repeats: int = 1,
    told: Callable[[str], None] = lambda _: None,
    shown: Callable[[Asked], None] = lambda _: None,
) -> Session:
    """Ask until every question has a verdict, has failed for now, or there is no point in more.

    Whoever calls holds the series (`Series.writing`). `told` hears each question's outcome,
    `shown` sees what came back while groups are asked alone.
    """
    queue, session = deque(pending(series, repeats)), Session()
    work = _Work(series, endpoint, budget, queue, series.in_a_row(), session, told, shown)
    tasks: list[asyncio.Task[None]] = []
    try:
        await _alone(work)
        tasks += [asyncio.create_task(_together(work)) for _ in range(min(concurrency, len(queue)))]
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await endpoint.close()
    session.unasked += queue
    _note_unasked(series, session)
    return session


def answer_series(
    series: Series,
    questions: Sequence[Question],
    answer: Answer,
    told: Callable[[str], None] = lambda _: None,
) -> Session:
    """The same for a judge in this process: one question after the other, each once.

    Whoever calls holds the series. `told` hears each question's outcome.
    """
    session, in_a_row = Session(), series.in_a_row()
    for position, (sheet, repeat) in enumerate(questions):
        question_result = _ask_in_process(answer, sheet, series)
        line = {
            "sheet": sheet.id,
            "repeat": repeat,
            "attempt": 1,
            "outcome": question_result.outcome,
        }
        detail = {"detail": question_result.detail} if question_result.detail else {}
        series.append(
            {**line, **detail, "reply": question_result.reply, "model": series.judge.model}
        )
        in_a_row = session.count(question_result, in_a_row)
        told(question_result.outcome)
        if session.stopped is not None:
            session.unasked += questions[position + 1 :]
            break
    return session


def _ask_in_process(answer: Answer, sheet: Sheet, series: Series) -> Asked:
    texts, task = series.sheet_texts(sheet)
    reply = None
    try:
        reply = answer(sheet.labels, texts, task)
        if not isinstance(reply, str):
            raise UserError(
                f"The judge {series.name!r} did not answer with a text.",
                got=type(reply).__name__,
                expected="JSON in the form of the profile's schema",
            )
        read_reply(reply, sheet.labels, series.profile)
    except NoVerdict as error:
        return Asked(error.reason, error.detail, reply)
    return Asked("verdict", "", reply)


async def _alone(work: _Work) -> None:
    while work.queue and work.session.stopped is None and not work.session.accepted:
        asked = await _next(work)
        if asked is not None:
            work.shown(asked)


async def _together(work: _Work) -> None:
    while work.queue and work.session.stopped is None:
        await _next(work)


async def _next(work: _Work) -> Asked | None:
    """Take one question to its end; None if a cap forbids it."""
    session, (sheet, repeat) = work.session, work.queue.popleft()
    try:
        asked = await _ask(work, sheet, repeat)
    except Exhausted as error:
        session.stopped = f"budget_exhausted: {error}"
        session.unasked.append((sheet, repeat))
        return None
    work.in_a_row = session.count(asked, work.in_a_row)
    work.told(asked.outcome)
    return asked


async def _ask(work: _Work, sheet: Sheet, repeat: int) -> Asked:
    """One question until it has a verdict or its content retries are used up."""
    series, session = work.series, work.session
    texts, task = series.sheet_texts(sheet)
    question = messages(series.profile, sheet.labels, texts, task)
    most = {
        "prompt": guessed_tokens(question, cautious=True),
        "completion": reply_limit(series.judge),
    }
    asked = None
    for attempt in range(1, CONTENT_RETRIES + 2):
        line = {"sheet": sheet.id, "repeat": repeat, "attempt": attempt, "session": session.id}
        tab = Tab(work.budget, most, lambda entry, line=line: series.append({**line, **entry}))
        try:
            answer = await work.endpoint.ask(question, tab)
        except Exhausted:
            if asked is None:
                raise
            # Its last reply is on record and says why there is no verdict.
            session.stopped = "budget_exhausted: the cap was reached between two attempts"
            return asked
        except UserError:
            series.append({**line, "outcome": SETTLED, **tab.entry()})
            raise
        asked = _outcome_of(answer, sheet, series)
        series.append(
            {
                **line,
                **answer.record(),
                **tab.entry(),
                "transport_retries": max(0, tab.calls - 1),
                "outcome": asked.outcome,
                "detail": asked.detail,
                "prompt_sha256": prompt_hash(question),
            }
        )
        if answer.capped is not None:
            session.stopped = f"budget_exhausted: {answer.capped}"
        elif answer.trouble is not None and answer.trouble.fate == "unsent":
            session.stopped = f"{asked.outcome}: {asked.detail}"
        if asked.outcome == "verdict" or not answer.delivered or session.stopped:
            break
    assert asked is not None
    return asked


def _outcome_of(answer: Reply, sheet: Sheet, series: Series) -> Asked:
    """`verdict`, or the reason why there is none, and its detail."""
    if answer.failure is not None:
        return Asked(answer.failure, answer.detail, answer.reply)
    try:
        read_reply(answer.reply, sheet.labels, series.profile)
    except NoVerdict as problem:
        if answer.finish_reason == "length":
            limit = reply_limit(series.judge)
            detail = f"the limit of {limit} tokens was reached ({problem.detail[:80]})"
            return Asked("truncated", detail, answer.reply)
        return Asked(problem.reason, problem.detail, answer.reply)
    return Asked("verdict", "", answer.reply)


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
