"""Who does the work, and the loop that keeps everybody busy."""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from strop.engine.plan import Unit
from strop.errors import Incomplete

__all__ = ["Crew", "Desk", "Event", "Hand", "Job", "Lost", "Seat", "drive", "in_parts", "walk"]

SEND_SECONDS = 1.0
"""How long a worker may keep what it has finished to itself."""
POLL_SECONDS = 0.2
"""How often a unit that another process has is asked for again."""


class Hand(Protocol):
    """Somebody who has a model loaded."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Provenance: device, host, packages."""
        ...

    def work(self, order: Any) -> Iterator[Any]:
        """Do one unit; what it consists of, as it is finished."""
        ...


class Job(Protocol):
    """What a worker needs to begin. It can be pickled."""

    @property
    def needs(self) -> Any:
        """Says which model it is: jobs of one kind with equal needs share what is loaded."""
        ...

    def check(self) -> None:
        """Say with a `UserError` what of it this machine lacks, before anything is loaded."""
        ...

    def load(self, device: str) -> Any:
        """The model, which takes long."""
        ...

    def open(self, loaded: Any) -> Hand:
        """Ready for orders, with what was loaded for this job or one that needs the same."""
        ...


class Seat:
    """Where one worker works: its device, and what is loaded there from job to job."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._loaded: dict[type[Job], tuple[Any, Any]] = {}

    def open(self, job: Job) -> Hand:
        """Take a job up."""
        kind, needs = type(job), job.needs
        if kind not in self._loaded or self._loaded[kind][0] != needs:
            # One model of a kind at a time, as a process alone has: there may be no room for two.
            self._loaded.pop(kind, None)
            gc.collect()
            self._loaded[kind] = needs, job.load(self._device)
        return job.open(self._loaded[kind][1])


class Desk(Protocol):
    """Hands out units and keeps what was made of them."""

    @property
    def units(self) -> Sequence[Unit]:
        """Those that this process may take."""
        ...

    def take(self, unit: Unit) -> Any | None:
        """Claim a unit: the order for a worker, or None where another process has it.

        An empty order means that nothing of it is missing.
        """
        ...

    def keep(self, unit: Unit, worker: int, facts: Mapping[str, Any], found: list[Any]) -> None:
        """Some of a unit is finished."""
        ...

    def leave(self, unit: Unit) -> None:
        """A unit is finished, or given up: somebody may take it (again)."""
        ...

    def look(self) -> None:
        """Called now and then: make durable what has waited long enough."""
        ...

    def waiting(self, unit: Unit) -> None:
        """Another process is at work on a unit, and there is nothing else to do."""
        ...


@dataclass(frozen=True)
class Event:
    """What a worker has to say."""

    worker: int
    kind: Literal["ready", "found", "done", "died", "gone", "failed"]
    """ready: it has loaded (value: its facts); found: some of its unit; done with its unit; died:
    another takes its place; gone: none does; failed: its work raised (value: the exception)."""
    value: Any = None


class Crew(AbstractContextManager["Crew"], Protocol):
    """Workers, told apart by number; a worker that died comes back under its number.

    They do one job after the other, and end with the crew.
    """

    @property
    def size(self) -> int:
        """How many."""
        ...

    def begin(self, job: Job) -> None:
        """Let everybody take a job up; nobody is at work on another. Who has is `ready`."""
        ...

    def give(self, worker: int, order: Any) -> None:
        """Let a worker that is ready do a unit."""
        ...

    def events(self, seconds: float) -> list[Event]:
        """What happened; waits up to `seconds` for something."""
        ...


class Lost(Incomplete):
    """All workers died, and none may be started any more."""


def walk(hand: Hand, desk: Desk) -> None:
    """Do all units in this process, those that are free first."""
    taken = [unit for unit in desk.units if not _walked(hand, desk, unit)]
    while taken:
        desk.look()
        desk.waiting(taken[0])
        rest = [unit for unit in taken if not _walked(hand, desk, unit)]
        if len(rest) == len(taken):
            time.sleep(POLL_SECONDS)
        taken = rest


def _walked(hand: Hand, desk: Desk, unit: Unit) -> bool:
    order = desk.take(unit)
    if order:
        for one in hand.work(order):
            desk.keep(unit, 0, hand.facts, [one])
    if order is not None:
        desk.leave(unit)
    return order is not None


def drive(crew: Crew, job: Job, desk: Desk) -> None:
    """Keep every worker busy until all units are done; a dead worker's unit is done again."""
    crew.begin(job)
    _Driving(crew, desk).run()


class _Driving:
    def __init__(self, crew: Crew, desk: Desk) -> None:
        self.crew, self.desk = crew, desk
        self.queue, self.taken = deque(desk.units), deque[Unit]()
        self.facts: dict[int, Mapping[str, Any]] = {}
        self.idle: list[int] = []
        self.at: dict[int, Unit] = {}
        self.gone: dict[int, str] = {}
        self.next_look = 0.0

    def run(self) -> None:
        while self.queue or self.taken or self.at:
            self._hand_out()
            if not (self.queue or self.taken or self.at):
                return  # the last ones were complete
            for event in self.crew.events(POLL_SECONDS):
                self._hear(event)
            self.desk.look()

    def _hand_out(self) -> None:
        while self.idle and (unit := self._next()) is not None:
            order = self.desk.take(unit)
            if order is None:
                self.taken.append(unit)
            elif not order:
                self.desk.leave(unit)
            else:
                worker = self.idle.pop(0)
                self.at[worker] = unit
                self.crew.give(worker, order)

    def _next(self) -> Unit | None:
        """The next one of the plan; now and then those again that another process had."""
        if not self.queue and self.taken and time.monotonic() >= self.next_look:
            self.next_look = time.monotonic() + POLL_SECONDS
            if not self.at:
                self.desk.waiting(self.taken[0])
            self.queue, self.taken = self.taken, deque()
        return self.queue.popleft() if self.queue else None

    def _hear(self, event: Event) -> None:
        worker = event.worker
        if event.kind == "ready":
            self.facts[worker] = event.value
            self.idle.append(worker)
        elif event.kind == "found":
            self.desk.keep(self.at[worker], worker, self.facts[worker], event.value)
        elif event.kind == "done":
            self.desk.leave(self.at.pop(worker))
            self.idle.append(worker)
        elif event.kind == "failed":
            raise event.value
        else:
            self._lose(worker, event)

    def _lose(self, worker: int, event: Event) -> None:
        if worker in self.idle:
            self.idle.remove(worker)
        if worker in self.at:
            unit = self.at.pop(worker)
            self.desk.leave(unit)
            self.queue.appendleft(unit)
        if event.kind == "gone":
            self.gone[worker] = str(event.value)
        if len(self.gone) == self.crew.size:
            raise Lost(
                "All workers died.",
                got="; ".join(dict.fromkeys(self.gone.values())),
                fix="run the same command again; if they die again, look whether memory suffices",
            )


def in_parts(found: Iterator[Any]) -> Iterator[list[Any]]:
    """What is finished within a while of each other, together."""
    waiting: list[Any] = []
    last = time.monotonic()
    for one in found:
        waiting.append(one)
        if time.monotonic() - last > SEND_SECONDS:
            yield waiting
            waiting, last = [], time.monotonic()
    if waiting:
        yield waiting
