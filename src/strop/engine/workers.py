"""Do the units of a sink: in this process, or by the workers of an engine, all kept busy.

A worker takes a job, with a model loaded, and does one unit after the other.

Cells of a study that are tables are measured in blocks; each is kept as a part until all are there.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from strop.disk import CLAIM, claimed
from strop.engine.plan import Engine, Progress, Unit, cut, refuse_missing, stop_if_planning
from strop.engine.sink import TAKEN, CellRows, Sink, forget_claims
from strop.errors import Incomplete
from strop.store import StudyFolder
from strop.store.folder import PARTS

if TYPE_CHECKING:
    import pyarrow as pa

POLL_SECONDS = 0.2
"""How often a unit that another process has is asked for again."""

_KEPT: ContextVar[dict[Engine, Workers] | None] = ContextVar("kept", default=None)
"""Workers without work, by engine; None: workers end with the call that started them."""


@contextmanager
def keep_workers() -> Iterator[None]:
    """Workers that are started inside, and what they have loaded, stay until its end.

    For whoever draws or scores several times: starting workers and loading models take seconds.
    """
    if _KEPT.get() is not None:  # whoever is outside keeps them longer
        yield
        return
    kept: dict[Engine, Workers] = {}
    token = _KEPT.set(kept)
    try:
        yield
    finally:
        _KEPT.reset(token)
        with ExitStack() as stack:
            for idle in kept.values():
                stack.push(idle)


@contextmanager
def workers(engine: Engine) -> Iterator[Workers]:
    """Those of an engine that is not local. After an error they end: some may be busy."""
    kept = _KEPT.get()
    with ExitStack() as stack:
        idle = None if kept is None else kept.pop(engine, None)
        running = stack.enter_context(_start_workers(engine) if idle is None else idle)
        yield running
        if kept is not None:
            kept[engine] = running
            stack.pop_all()


def _start_workers(engine: Engine) -> Workers:
    if engine.kind == "ray":
        from strop.engine.rays import Actors

        return Actors(engine)
    from strop.engine.devices import Processes, counted

    return Processes(counted(engine.places()))


class Lost(Incomplete):
    """All workers died, and none may be started any more."""


def run_units(
    sink: Sink, here: Callable[[], Worker], job: Callable[[], Job] | None, engine: Engine
) -> None:
    """Do what is missing of all units: `here`, or, where there is a `job`, as the engine says."""
    if job is not None and engine.parallel and not sink.complete():
        work = job()
        with workers(engine) as crew, closing(sink):
            sink.one_bar(crew.size)
            run_by(crew, work, sink)
    else:
        with closing(sink):
            sink.expect()
            run_here(here, sink)


def run_here(here: Callable[[], Worker], sink: Sink) -> None:
    """Do all units in this process, those that are free first; no worker without a unit to do."""
    worker: Worker | None = None

    def taken(unit: Unit) -> bool:
        nonlocal worker
        missing = sink.claim(unit)
        if missing is TAKEN:
            return True
        if missing:
            worker = worker or here()
            for row in worker.work(unit.cell, missing):
                sink.keep(unit, [row], 0, worker.facts)
        sink.done(unit)
        return False

    blocked = [unit for unit in sink.units if taken(unit)]
    while blocked:
        sink.tick()
        sink.waiting(blocked[0])
        before, blocked = blocked, [unit for unit in blocked if taken(unit)]
        if len(blocked) == len(before):
            time.sleep(POLL_SECONDS)


def run_by(crew: Workers, job: Job, sink: Sink) -> None:
    """Keep every worker busy until all units are done; a dead worker's unit is done again."""
    crew.begin(job)
    _Driving(crew, sink).run()


class _Driving:
    def __init__(self, crew: Workers, sink: Sink) -> None:
        self.workers, self.sink = crew, sink
        self.queue, self.taken = deque(sink.units), deque[Unit]()
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
            for event in self.workers.events(POLL_SECONDS):
                self._hear(event)
            self.sink.tick()

    def _hand_out(self) -> None:
        while self.idle and (unit := self._next()) is not None:
            missing = self.sink.claim(unit)
            if missing is TAKEN:
                self.taken.append(unit)
            elif not missing:
                self.sink.done(unit)
            else:
                worker = self.idle.pop(0)
                self.at[worker] = unit
                self.workers.give(worker, unit.cell, missing)

    def _next(self) -> Unit | None:
        """The next one of the plan; now and then those again that another process had."""
        if not self.queue and self.taken and time.monotonic() >= self.next_look:
            self.next_look = time.monotonic() + POLL_SECONDS
            if not self.at:
                self.sink.waiting(self.taken[0])
            self.queue, self.taken = self.taken, deque()
        return self.queue.popleft() if self.queue else None

    def _hear(self, event: Event) -> None:
        worker = event.worker
        if event.kind == "ready":
            self.facts[worker] = event.value
            self.idle.append(worker)
        elif event.kind == "found":
            self.sink.keep(self.at[worker], event.value, worker, self.facts[worker])
        elif event.kind == "done":
            self.sink.done(self.at.pop(worker))
            self.idle.append(worker)
        elif event.kind == "failed":
            raise event.value
        else:
            self._lose(worker, event)

    def _lose(self, worker: int, event: Event) -> None:
        if worker in self.idle:
            self.idle.remove(worker)
        if worker in self.at:
            self.queue.appendleft(self.at.pop(worker))  # it stays claimed
        if event.kind == "gone":
            self.gone[worker] = str(event.value)
        if len(self.gone) == self.workers.size:
            raise Lost(
                "All workers died.",
                got="; ".join(dict.fromkeys(self.gone.values())),
                fix="run the same command again; if they die again, check the free memory",
            )


SEND_SECONDS = 1.0
"""How long a worker may keep what it has finished to itself."""


class Worker(Protocol):
    """Somebody who has a model loaded."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Provenance: device, host, packages."""
        ...

    def work(self, cell: int, missing: Any) -> Iterator[Any]:
        """Do what is missing of a unit of a cell; its rows, as they are finished."""
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

    def open(self, loaded: Any) -> Worker:
        """Ready for units, with what was loaded for this job or one that needs the same."""
        ...


class ModelSlot:
    """Where one worker works: its device, and what is loaded there from job to job."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._loaded: dict[type[Job], tuple[Any, Any]] = {}

    def open(self, job: Job) -> Worker:
        """Take a job up."""
        if self._device.startswith("cuda:"):
            import torch

            torch.cuda.set_device(self._device)  # for libraries that ask which one is current
        kind, needs = type(job), job.needs
        if kind not in self._loaded or self._loaded[kind][0] != needs:
            # One model of a kind at a time, as a process alone has: there may be no room for two.
            self._loaded.pop(kind, None)
            gc.collect()
            self._loaded[kind] = needs, job.load(self._device)
        return job.open(self._loaded[kind][1])


@dataclass(frozen=True)
class Event:
    """What a worker has to say."""

    worker: int
    kind: Literal["ready", "found", "done", "died", "gone", "failed"]
    """ready: it has loaded (value: its facts); found: some rows of its unit; done with its unit;
    died: another takes its place; gone: none does; failed: its work raised (value: the exception).
    """
    value: Any = None


class Workers(AbstractContextManager["Workers"], Protocol):
    """Told apart by number; a worker that died comes back under its number.

    They do one job after the other, and end with this.
    """

    @property
    def size(self) -> int:
        """How many."""
        ...

    def begin(self, job: Job) -> None:
        """Let everybody take a job up; nobody is at work on another. Who has is `ready`."""
        ...

    def give(self, worker: int, cell: int, missing: Any) -> None:
        """Let a worker that is ready do what is missing of a unit of a cell."""
        ...

    def events(self, seconds: float) -> list[Event]:
        """What happened; waits up to `seconds` for something."""
        ...


def in_parts(rows: Iterator[Any]) -> Iterator[list[Any]]:
    """What is finished within a while of each other, together."""
    waiting: list[Any] = []
    last = time.monotonic()
    for row in rows:
        waiting.append(row)
        if time.monotonic() - last > SEND_SECONDS:
            yield waiting
            waiting, last = [], time.monotonic()
    if waiting:
        yield waiting


NOTE_SECONDS = 10.0
"""How often a long cell says how far it is."""


@dataclass(frozen=True)
class Blocks:
    """Tables of a study that are measured together, and what is measured of them at a time."""

    ids: Sequence[str]
    """Of the tables; the parts are kept under the last."""
    label: str
    """For people."""
    blocks: Sequence[Sequence[int]]
    """A block is a unit."""
    join: Callable[[list[pa.Table]], Sequence[pa.Table]]
    """From all parts to the tables."""


@dataclass(frozen=True)
class PlannedBlocks:
    """What a dry run notes in place of measuring."""

    cells: Sequence[Blocks]
    here: Callable[[], Worker]


class BlockRows(CellRows):
    """Blocks of tables: a row is a block's first index and its part."""

    def __init__(
        self, folder: StudyFolder, cell: Blocks, note: Callable[[str], None] = lambda _: None
    ) -> None:
        self.cell, self._folder, self._note = cell, folder, note
        self.facts: Mapping[str, Any] | None = None
        """Who measured some of it, if anybody did."""
        self._id = cell.ids[-1]
        self._number = {block[0]: number for number, block in enumerate(cell.blocks)}
        self._began = self._told = 0.0

    def hold(self) -> AbstractContextManager[bool]:
        """Time counts from here."""
        self._began = self._told = time.monotonic()
        return super().hold()

    def claim(self, unit: Unit) -> AbstractContextManager[bool]:
        """By the number of the part."""
        name = f"{CLAIM}{self._id}-{self._number[unit.first]:05d}"
        return claimed(self._folder.path / PARTS / name)

    def missing(self, unit: Unit) -> Sequence[int]:
        """All of it, until its part is there, or the tables that all parts became."""
        present = self._part(unit.first) is not None or self._folder.cell(self._id) is not None
        return () if present else unit.indices

    def _part(self, first: int) -> pa.Table | None:
        return self._folder.part(self._id, self._number[first])

    def write(self, rows: Sequence[tuple[int, pa.Table]]) -> None:
        """A file per part."""
        for first, table in rows:
            self._folder.keep(self._id, self._number[first], table)

    def record(self, worker: int, facts: Mapping[str, Any], rows: Sequence[Any]) -> None:
        """The first one tells where it was measured."""
        del worker, rows
        self.facts = self.facts or facts

    def done(self, left: int) -> None:
        """Put the tables together once all parts are there."""
        now = time.monotonic()
        if not left and self.joined():
            self._note(f"{self.cell.label}, {now - self._began:.0f} s")
        elif left and now - self._told > NOTE_SECONDS:
            self._told = now
            self._note(f"{self.cell.label}, {left} of {len(self.cell.blocks)} blocks are left")

    def waiting(self, progress: Progress) -> None:
        """In a note: there is no bar."""
        del progress
        self._note(f"{self.cell.label}: another process is at work on it, waiting")

    def joined(self) -> bool:
        """Whether the tables are there; put together now, if all parts are."""

        def complete() -> bool:
            return all(self._folder.cell(id_) is not None for id_ in self.cell.ids)

        if complete():
            return True
        parts = [part for first in self._number if (part := self._part(first)) is not None]
        if len(parts) < len(self._number):
            return complete()  # another shard may have put them together meanwhile
        for id_, table in zip(self.cell.ids, self.cell.join(parts), strict=True):
            self._folder.complete(id_, table)
        forget_claims(self._folder.path / PARTS, self._id)
        return True

    def absent(self) -> set[int]:
        """What others have not measured."""
        if self.joined():
            return set()
        return {
            index for block in self.cell.blocks if self._part(block[0]) is None for index in block
        }


def measure_blocks(
    folder: StudyFolder,
    cells: Sequence[Blocks],
    here: Callable[[], Worker],
    job: Callable[[], Job],
    engine: Engine,
    note: Callable[[str], None],
    what: str,
) -> Mapping[str, Any] | None:
    """Complete all cells: `here`, or by the workers of an engine. Who did something, if anybody.

    A worker yields one row per unit (`BlockRows`). A shard that has done its part names what others
    have not.
    """
    stop_if_planning(PlannedBlocks(cells, here))
    rows = [BlockRows(folder, cell, note) for cell in cells]
    plan = engine.own(cut(row.blocks for row in cells))
    begun = [not row.joined() for row in rows]
    units = [unit for unit in plan if begun[unit.cell]]
    run_units(Sink(units, rows, seconds=0.0), here, job, engine)  # each block is durable at once
    refuse_missing(folder.path, {row.cell.ids[-1]: row.absent() for row in rows}, what)
    return next((row.facts for row in rows if row.facts is not None), None)
