"""What a task is: one record with prompts, how an answer is found in a response, and its check.

Adding a task is adding a record: `strop.register(Task(...))`, or an entry point of the group
`strop.tasks`. A record knows nothing of models: a response is a text, wherever it came from.
"""

from __future__ import annotations

import hashlib
import json
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, get_args

from strop.registry import Reference, Registry, one_line, resolve

if TYPE_CHECKING:
    from strop.tasks.sandbox import Box

T = TypeVar("T")
SECONDS = 10.0
"""What one filter, or one check, may take for one response."""


class Overtime(BaseException):
    """What is not done in time. No `Exception`: code of others catches those."""

    def __str__(self) -> str:
        return f"does not end within {SECONDS:g} seconds"


def within(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function, or end it with `Overtime`; other threads wait for as long as it takes."""
    if threading.current_thread() is not threading.main_thread():
        return function(*arguments)

    def ring(*_: Any) -> NoReturn:
        raise Overtime

    start = time.monotonic()
    before = signal.signal(signal.SIGALRM, ring)
    pending, _ = signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        try:
            return function(*arguments)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:  # also if it rings on the way out
        signal.signal(signal.SIGALRM, before)
        if pending:  # somebody else's alarm, which may be due by now
            left = pending - (time.monotonic() - start)
            signal.setitimer(signal.ITIMER_REAL, max(left, 1e-6))


Outcome = Literal[
    "passed", "wrong", "error", "ended", "time", "memory", "output", "empty", "invalid", "lost"
]
OUTCOMES: tuple[str, ...] = get_args(Outcome)
"""`wrong`: the tests say no. `error`: the program raised. `ended`: its process went away. `time`,
`memory`, `output`: a limit. `empty`: no response. `invalid`: no answer in it. `lost`: nobody can
say, because the checker gave no verdict."""


@dataclass(frozen=True)
class Verdict:
    """What the check says of one answer."""

    outcome: Outcome
    detail: str = ""
    """In a few words, for people; may quote the program."""
    printed: str = ""
    """What the program wrote to standard output and error while it was judged, cut."""
    raised: bool = False
    """Whether the task's own code failed on the response, or did not end; `detail` says how."""

    @property
    def passed(self) -> bool:
        """Whether the answer is right."""
        return self.outcome == "passed"


@dataclass(frozen=True)
class Item:
    """One problem."""

    id: str
    question: str
    """What is asked, without the shots."""
    reference: str
    """A response that is right."""
    shots: tuple[str, ...] = ()
    """Solved problems that stand before the question, as they stand there."""
    case: Mapping[str, str] = field(default_factory=dict)
    """What the check needs besides the answer, such as a problem's tests."""

    @property
    def prompt(self) -> str:
        """The whole text that a model is given, before any chat template."""
        return "".join(self.shots) + self.question


@dataclass(frozen=True)
class Filter:
    """A named way to find the answer in a response."""

    name: str
    extract: Reference
    """`(item, response) -> str | None`; None where there is no answer."""


@dataclass(frozen=True)
class Found:
    """What a filter made of a response."""

    answer: str | None
    why_none: Verdict = Verdict("invalid", "there is no answer in the response")


@dataclass(frozen=True)
class Task:
    """A set of problems whose answers can be checked."""

    name: str
    summary: str
    """One line."""
    source: str
    """Where the problems come from, and under which licence."""
    items: Reference
    """`() -> Sequence[Item]`, in an order that never changes."""
    filters: tuple[Filter, ...]
    """Every one is reported; the first is the one to compare by."""
    check: Reference
    """`(item, answer, box) -> Verdict`."""
    wrong: Reference
    """`(item, other) -> Mapping[str, str]`: responses that must not pass, by how they are wrong;
    `other` is another item of the same task."""
    stop: tuple[str, ...] = ()
    """Where a response ends, if one of these is in it."""
    length: int = 256
    """Tokens of a response."""
    sandboxed: bool = False
    """Whether answers are programs, which run in a sandbox only."""
    version: str | None = None
    """Another one where the same response may get another verdict."""

    def all_items(self) -> Sequence[Item]:
        """The problems."""
        return _items(self)

    def cut(self, response: str) -> str:
        """A response up to where the task says that it ends; diffusion models write on."""
        ends = [response.find(mark) for mark in self.stop if mark in response]
        return response[: min(ends)] if ends else response

    def find(self, item: Item, response: str) -> dict[str, Found]:
        """What each filter finds in a response, or why it finds nothing; none ends a run."""
        text = self.cut(response)
        return {rule.name: _find_answer(rule, item, text) for rule in self.filters}

    def answers(self, item: Item, response: str) -> dict[str, str | None]:
        """What each filter finds in a response; None where it finds nothing, or fails."""
        return {name: answer.answer for name, answer in self.find(item, response).items()}

    def judge(self, item: Item, answer: Found, box: Box | None) -> Verdict:
        """The verdict on what a filter found; `invalid` where the check itself fails."""
        if answer.answer is None:
            return answer.why_none
        try:
            # In a sandbox the program has limits of its own, and several are judged at a time.
            check, arguments = resolve(self.check), (item, answer.answer, box)
            verdict = check(*arguments) if self.sandboxed else within(check, *arguments)
        except KeyboardInterrupt:
            raise
        except Overtime as error:
            return Verdict("invalid", f"the check {error}", raised=True)
        except BaseException as error:  # one response must not end a run, whatever it contains
            return Verdict("invalid", f"the check raised {one_line(error)}", raised=True)
        if not isinstance(verdict, Verdict) or verdict.outcome not in OUTCOMES:
            reason = f"the check returned {verdict!r}, which is no verdict"[:300]
            return Verdict("invalid", reason, raised=True)
        return verdict

    @property
    def fingerprint(self) -> str:
        """What the results depend on besides the responses: the problems and the rules."""
        content = [
            self.name,
            self.version,
            [rule.name for rule in self.filters],
            self.stop,
            self.length,
        ]
        content += [
            [item.id, item.prompt, item.reference, dict(item.case)] for item in self.all_items()
        ]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "name": self.name,
            "summary": self.summary,
            "source": self.source,
            "items": len(self.all_items()),
            "shots": len(self.all_items()[0].shots),
            "filters": [rule.name for rule in self.filters],
            "sandboxed": self.sandboxed,
            "version": self.version,
            "fingerprint": self.fingerprint,
        }


def _find_answer(rule: Filter, item: Item, text: str) -> Found:
    try:
        return Found(within(resolve(rule.extract), item, text))
    except KeyboardInterrupt:
        raise
    except Overtime as error:
        reason = f"the filter {rule.name} {error}"
    except BaseException as error:
        reason = f"the filter {rule.name} raised {one_line(error)}"
    return Found(None, Verdict("invalid", reason, raised=True))


@cache
def _items(task: Task) -> Sequence[Item]:
    return tuple(resolve(task.items)())


def _builtin() -> Iterable[Task]:
    from strop.tasks.gsm8k import GSM8K
    from strop.tasks.humaneval import HUMANEVAL
    from strop.tasks.sums import SUMS

    return (GSM8K, HUMANEVAL, SUMS)


TASKS = Registry("task", Task, "strop.tasks", _builtin)
