"""What every sink promises, whatever its rows are: claims, look-ups, durability, flush times."""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from strop.engine import LOCAL, Unit, cut, workers
from strop.engine.plan import Silent
from strop.engine.sink import FLUSH_SECONDS, TAKEN, CellRows, MemoryRows, OutputRows, Sink
from strop.engine.workers import BlockRows, Blocks, Event, run_by, run_here, run_units
from strop.errors import UserError
from strop.measure.score import FLUSH_SHARE, Outputs, ScoreRows, Scoring, score_sink
from strop.pool import Output
from strop.spec import CellSpec, CheckpointSpec, GeneratorSpec, MetricSpec, SamplerSpec
from strop.store import Cell, Run, StudyFolder

UNITS = cut([[range(3), range(3, 5)]])
FIRST, SECOND = UNITS
ALL = {0, 1, 2, 3, 4}
FACTS = {"host": "here"}
METRIC = MetricSpec(name="twice")


def output(index: int) -> Output:
    ids = np.array([index, 1, 2, 3], np.int64)
    changed = np.arange(4, dtype=np.int32)
    return Output(index, ids, index, 0.5, 0, changed=changed, text=f"text {index}")


def a_cell(path: Path) -> Cell:
    checkpoint = CheckpointSpec(family="tabular", sha256="0" * 64, shape={"length": 4})
    generator = GeneratorSpec(checkpoint=checkpoint, sampler=SamplerSpec(steps=4), length=4)
    spec = CellSpec(generator=generator, seed=0)
    asked = {"checkpoint": "somewhere", "samplers": [], "n": 5, "seed": 0}
    run = Run.prepare(path, asked, [spec])
    return run.cell(spec.id)


class Place:
    """Where rows of one kind lie. `cell` is what a process makes to write there."""

    others = True
    """Whether another process can come there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def cell(self) -> CellRows:
        raise NotImplementedError

    def made(self, indices: Any) -> list[Any]:
        return [output(index) for index in indices]

    def durable(self) -> set[int]:
        raise NotImplementedError

    def claims(self) -> list[Path]:
        return [one for one in self.path.rglob(".claim-*") if one.name != ".claim-files"]


class InMemory(Place):
    others = False

    def cell(self) -> CellRows:
        self.rows = MemoryRows(a_cell(self.path).spec)
        return self.rows

    def durable(self) -> set[int]:
        return {int(row[0]) for row in self.rows.pool().ids}


class OnDisk(Place):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.on_disk = a_cell(path)

    def cell(self) -> CellRows:
        return OutputRows(self.on_disk)

    def durable(self) -> set[int]:
        return self.on_disk.indices()


class Scored(OnDisk):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.on_disk.add(output(index) for index in sorted(ALL))

    def cell(self) -> CellRows:
        return ScoreRows(Scoring(self.on_disk, METRIC))

    def made(self, indices: Any) -> list[Any]:
        index = np.array(indices)
        return [({"index": index, "twice": 2 * index}, 4 * len(index))]

    def durable(self) -> set[int]:
        table = self.on_disk.score(METRIC)
        return set() if table is None else set(table.index.tolist())


class InBlocks(Place):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.folder = StudyFolder(path, "study", "measured")
        with self.folder.writing({}):
            pass

    def cell(self) -> CellRows:
        def join(parts: list[pa.Table]) -> list[pa.Table]:
            return [pa.concat_tables(parts)]

        blocks = [unit.indices for unit in UNITS]
        return BlockRows(self.folder, Blocks(["a" * 16], "five", blocks, join))

    def made(self, indices: Any) -> list[Any]:
        return [(min(indices), pa.table({"index": list(indices)}))]

    def durable(self) -> set[int]:
        tables = [self.folder.cell("a" * 16), *(self.folder.part("a" * 16, k) for k in range(2))]
        return {one for table in tables if table is not None for one in table["index"].to_pylist()}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(params=[InMemory, OnDisk, Scored, InBlocks])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return request.param(tmp_path / "place")


@pytest.fixture
def shared(place: Place) -> Place:
    """Memory is nobody else's."""
    return place if place.others else pytest.skip("no other process can come there")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sinks(place: Place, clock: Clock) -> Iterator[Callable[..., Sink]]:
    """Sinks as other processes have them: the locks tell two open files apart in one process, too.

    They are closed at the end.
    """
    made: list[Sink] = []

    def sink(cell: CellRows | None = None, **more: Any) -> Sink:
        made.append(Sink(UNITS, [place.cell() if cell is None else cell], clock=clock, **more))
        return made[-1]

    yield sink
    for one in made:
        one.close()


def numbers(given: Any) -> list[int]:
    return given.index.tolist() if isinstance(given, Outputs) else list(given)


def keep(sink: Sink, place: Place, unit: Unit, worker: int = 0) -> None:
    """All that is missing of a unit that is claimed."""
    sink.keep(unit, place.made(unit.indices), worker, FACTS)


def finish(sink: Sink, place: Place, *units: Unit) -> None:
    for unit in units:
        if numbers(sink.claim(unit)):
            keep(sink, place, unit)
        sink.done(unit)


def killed(sink: Sink) -> None:
    """What is left of a process that was killed: its open files are closed, nothing else is."""
    vars(sink).clear()
    gc.collect()


@contextmanager
def full_disk() -> Iterator[None]:
    """The operating system refuses to write into files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# ---------------------------------------------------------------- claims


def test_a_claim_is_what_is_missing_and_done_leaves_nothing(
    place: Place, sinks: Callable[..., Sink]
) -> None:
    sink = sinks()
    assert not sink.complete()
    assert numbers(sink.claim(FIRST)) == [0, 1, 2]
    assert numbers(sink.claim(SECOND)) == [3, 4]
    finish(sink, place, FIRST, SECOND)
    assert place.durable() == ALL
    assert not place.claims()
    if place.others:
        again = sinks()
        assert again.complete()
        assert [again.claim(unit) for unit in UNITS] == [(), ()]


def test_a_unit_that_is_claimed_twice_lacks_what_its_dead_worker_had_not_sent(
    place: Place, sinks: Callable[..., Sink]
) -> None:
    sink = sinks()
    sink.claim(FIRST)
    sent = [] if isinstance(place, InBlocks) else [0, 2]  # a block comes whole
    if sent:
        sink.keep(FIRST, place.made(sent), 0, FACTS)
    assert numbers(sink.claim(FIRST)) == [i for i in range(3) if i not in sent]
    assert place.durable() == set(sent)
    if place.others:
        assert sinks().claim(FIRST) is TAKEN, "it was let go between two workers"
    keep(sink, place, FIRST)
    assert sink.claim(FIRST) == ()


def test_what_another_process_has_is_taken(shared: Place, sinks: Callable[..., Sink]) -> None:
    one, other = sinks(), sinks()
    assert numbers(one.claim(FIRST)) == [0, 1, 2]
    assert other.claim(FIRST) is TAKEN
    assert numbers(other.claim(SECOND)) == [3, 4]
    assert one.claim(SECOND) is TAKEN
    one.close()
    assert numbers(other.claim(FIRST)) == [0, 1, 2], "given up, not done"


def test_what_is_missing_is_looked_up_again_after_the_lock(
    shared: Place, sinks: Callable[..., Sink], monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = shared.cell()
    late, other = sinks(cell), sinks()
    assert numbers(late.claim(SECOND)) == [3, 4]
    lock = cell.claim

    def meanwhile(unit: Unit) -> Any:
        """Between the first look-up and the lock."""
        finish(other, shared, FIRST)
        other.flush()
        return lock(unit)

    monkeypatch.setattr(cell, "claim", meanwhile)
    assert late.claim(FIRST) == ()
    assert shared.durable() == {0, 1, 2}
    late.done(FIRST)
    assert other.claim(SECOND) is TAKEN


def test_nothing_is_claimed_where_nothing_is_missing(
    shared: Place, sinks: Callable[..., Sink], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finished run can be read where it cannot be written."""
    with closing(sinks()) as sink:
        finish(sink, shared, FIRST)
    cell = shared.cell()
    monkeypatch.setattr(cell, "claim", lambda _: pytest.fail("a claim writes a file"))
    assert sinks(cell).claim(FIRST) == ()


def test_a_cell_that_somebody_holds_alone_is_taken(tmp_path: Path, clock: Clock) -> None:
    place = OnDisk(tmp_path / "run")
    with closing(Sink(UNITS, [place.cell()], clock=clock)) as sink:
        with place.on_disk.writing():
            assert [sink.claim(unit) for unit in UNITS] == [TAKEN, TAKEN]
        assert numbers(sink.claim(FIRST)) == [0, 1, 2]


# ---------------------------------------------------------------- durability


def test_a_process_that_is_killed_before_it_is_done_leaves_its_unit_missing(
    shared: Place, sinks: Callable[..., Sink]
) -> None:
    dying = Sink(UNITS, [shared.cell()], clock=Clock())
    dying.claim(FIRST)
    keep(dying, shared, FIRST)
    other = sinks()
    assert other.claim(FIRST) is TAKEN
    killed(dying)
    assert shared.durable() == set()
    assert numbers(other.claim(FIRST)) == [0, 1, 2]
    finish(other, shared, *UNITS)
    assert shared.durable() == ALL
    assert not shared.claims()


def test_what_was_durable_before_a_kill_is_not_made_again(
    shared: Place, sinks: Callable[..., Sink]
) -> None:
    dying = Sink(UNITS, [shared.cell()], clock=Clock())
    dying.claim(FIRST)
    keep(dying, shared, FIRST)
    dying.flush()  # and not done: its claim's file stays behind
    assert len(shared.claims()) == 1
    killed(dying)
    other = sinks()
    assert other.claim(FIRST) == ()
    finish(other, shared, *UNITS)
    assert shared.durable() == ALL
    assert not shared.claims()


def test_a_claim_ends_only_when_its_rows_are_durable(
    shared: Place, sinks: Callable[..., Sink], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = shared.cell()
    sink, other, seen = sinks(cell), sinks(), []
    finish(sink, shared, FIRST)
    assert shared.durable() == set()
    assert other.claim(FIRST) is TAKEN, "it is done, and nothing of it is on disk"
    write = cell.write

    def watched(rows: Any) -> None:
        seen.append(other.claim(FIRST))
        write(rows)
        seen.append(other.claim(FIRST))

    monkeypatch.setattr(cell, "write", watched)
    clock.now += FLUSH_SECONDS
    sink.tick()
    assert seen[0] is TAKEN, "let go before its rows are written"
    assert shared.durable() == {0, 1, 2}
    assert other.claim(FIRST) == ()


def test_closing_writes_everything_and_lets_go(place: Place, sinks: Callable[..., Sink]) -> None:
    sink = sinks()
    for worker, unit in enumerate(UNITS):
        sink.claim(unit)
        keep(sink, place, unit, worker)
    assert place.durable() == set()
    sink.close()
    assert place.durable() == ALL
    assert not place.claims()


def test_an_interrupt_keeps_what_is_finished(place: Place, clock: Clock) -> None:
    class Interrupted:
        facts = FACTS

        def work(self, _: int, missing: Any) -> Iterator[Any]:
            if numbers(missing) == [3, 4]:
                raise KeyboardInterrupt
            yield from place.made(numbers(missing))

    with pytest.raises(KeyboardInterrupt):
        run_units(Sink(UNITS, [place.cell()], clock=clock), Interrupted, None, LOCAL)
    assert place.durable() == {0, 1, 2}
    assert not place.claims()


def test_rows_wait_for_a_few_seconds(
    place: Place, sinks: Callable[..., Sink], clock: Clock
) -> None:
    sink = sinks()
    sink.claim(FIRST)
    clock.now += FLUSH_SECONDS - 0.01
    keep(sink, place, FIRST)
    assert place.durable() == set()
    clock.now += 0.01
    sink.tick()
    assert place.durable() == {0, 1, 2}
    sink.claim(SECOND)
    keep(sink, place, SECOND)
    assert place.durable() == {0, 1, 2}, "time counts from the last flush"
    clock.now += FLUSH_SECONDS
    sink.tick()
    assert place.durable() == ALL


def test_where_writing_takes_long_it_is_seldom(
    place: Place, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, writes = place.cell(), []

    def slow(rows: Any) -> None:
        writes.append(clock.now)
        clock.now += 3.0

    monkeypatch.setattr(cell, "write", slow)
    sink = Sink(UNITS, [cell], share=20.0, clock=clock)
    for _ in range(200):
        keep(sink, place, FIRST)
        clock.now += 1.0
    assert writes == [102.0, 165.0, 228.0, 291.0], "at least twenty times three seconds between"


def test_scores_are_written_seldom_and_blocks_at_once(tmp_path: Path, clock: Clock) -> None:
    scored, blocks = Scored(tmp_path / "run"), InBlocks(tmp_path / "study")
    sink = score_sink([Scoring(scored.on_disk, METRIC)], None, "", LOCAL)
    assert sink._share == FLUSH_SHARE == 20
    with closing(Sink(UNITS, [blocks.cell()], seconds=0.0, clock=clock)) as at_once:
        at_once.claim(FIRST)
        keep(at_once, blocks, FIRST)
        assert blocks.durable() == {0, 1, 2}


def test_a_full_disk_loses_nothing_that_can_be_kept(
    shared: Place, sinks: Callable[..., Sink]
) -> None:
    sink, other = sinks(), sinks()
    for unit in UNITS:
        sink.claim(unit)
        keep(sink, shared, unit)
    sink.done(FIRST)
    with full_disk(), pytest.raises(UserError, match="disk is full"):
        sink.flush()
    assert shared.durable() == set()
    assert other.claim(FIRST) is TAKEN
    sink.close()  # there is room again
    assert shared.durable() == ALL
    assert other.claim(FIRST) == ()


def test_a_disk_that_stays_full_leaves_units_to_others(
    shared: Place, sinks: Callable[..., Sink]
) -> None:
    sink, other = Sink(UNITS, [shared.cell()]), sinks()
    sink.claim(FIRST)
    keep(sink, shared, FIRST)
    with full_disk(), pytest.raises(UserError, match="disk is full"):
        sink.close()
    assert numbers(other.claim(FIRST)) == [0, 1, 2]


def test_rows_are_written_once_though_their_record_fails(
    place: Place, sinks: Callable[..., Sink], monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, written = place.cell(), []
    write = cell.write

    def fails(*_: Any) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(cell, "write", count)
        raise UserError("The record cannot be written.")

    def count(rows: Any) -> None:
        written.append(len(rows))
        write(rows)

    monkeypatch.setattr(cell, "write", count)
    monkeypatch.setattr(cell, "record", fails)
    sink = sinks(cell)
    sink.claim(FIRST)
    keep(sink, place, FIRST)
    with pytest.raises(UserError, match="record"):
        sink.flush()
    sink.close()
    assert written == [len(place.made(FIRST.indices))]
    assert place.durable() == {0, 1, 2}


def test_who_made_outputs_is_counted_once_per_worker(tmp_path: Path) -> None:
    place = OnDisk(tmp_path / "run")
    with closing(Sink(UNITS, [place.cell()], seconds=0.0)) as sink:
        for worker, unit in enumerate(UNITS):
            sink.claim(unit)
            for row in place.made(unit.indices):
                sink.keep(unit, [row], worker, {"host": f"host-{worker}"})
            sink.done(unit)
    said = [(one["host"], one["outputs"], one["indices"]) for one in place.on_disk.sessions()]
    assert said == [("host-0", 3, "0-2"), ("host-1", 2, "3-4")]
    assert [one["seconds"] for one in place.on_disk.sessions()] == [1.5, 1.0]


# ---------------------------------------------------------------- who does the units


class Told(Silent):
    def __init__(self) -> None:
        self.said: list[Any] = []

    def start(self, cell: CellSpec | None, total: int, done: int, what: str = "") -> None:
        self.said.append((cell is not None, total, done, what))

    def waiting(self, _: CellSpec) -> None:
        self.said.append("waiting")


def test_free_units_come_first_and_taken_ones_are_waited_for(
    shared: Place, sinks: Callable[..., Sink], monkeypatch: pytest.MonkeyPatch
) -> None:
    progress, other, did = Told(), sinks(), []
    assert numbers(other.claim(FIRST)) == [0, 1, 2]

    class Here:
        facts = FACTS

        def work(self, _: int, missing: Any) -> Iterator[Any]:
            did.append(numbers(missing))
            yield from shared.made(numbers(missing))

    def finishes(_: float) -> None:
        keep(other, shared, FIRST)
        other.done(FIRST)
        other.flush()

    monkeypatch.setattr(workers.time, "sleep", finishes)
    with closing(sinks(progress=progress)) as sink:
        run_here(Here, sink)
    assert did == [[3, 4]]
    assert shared.durable() == ALL
    assert progress.said.count("waiting") == (0 if isinstance(shared, InBlocks) else 1)


def test_nobody_loads_anything_where_nothing_is_missing(
    shared: Place, sinks: Callable[..., Sink]
) -> None:
    with closing(sinks()) as sink:
        finish(sink, shared, *UNITS)
    with closing(sinks()) as sink:
        run_here(lambda: pytest.fail("a model is loaded"), sink)


def test_bars_say_what_is_missing(place: Place, sinks: Callable[..., Sink]) -> None:
    one, all_ = Told(), Told()
    with closing(sinks()) as sink:
        finish(sink, place, FIRST)
    there = 3 if place.others else 0
    cell = not isinstance(place, InBlocks)
    sinks(progress=one, what="twice").claim(SECOND)
    assert one.said == [(cell, 5, there, "twice")]
    sink = sinks(progress=all_, what="twice")
    assert not sink.complete()
    sink.one_bar(2)
    sink.claim(SECOND)
    assert all_.said == [(cell, 5, there, "twice, on 2 workers")]


class Scripted:
    """Two workers, of which the first dies at its first unit after it has sent an output."""

    size = 2

    def __init__(self, place: Place) -> None:
        self.place, self.heard, self.given = place, [], []

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing runs."""

    def begin(self, _: Any) -> None:
        self.heard = [Event(worker, "ready", FACTS) for worker in range(2)]

    def give(self, worker: int, _: int, missing: Any) -> None:
        wanted = numbers(missing)
        self.given.append((worker, wanted))
        if len(self.given) == 1:
            sent = [] if isinstance(self.place, InBlocks) else [Event(worker, "found",
                    self.place.made(wanted[:1]))]  # fmt: skip
            self.heard += [*sent, Event(worker, "died", "killed"), Event(worker, "ready", FACTS)]
        else:
            self.heard += [Event(worker, "found", self.place.made(wanted)), Event(worker, "done")]

    def events(self, _: float) -> list[Event]:
        heard, self.heard = self.heard, []
        return heard


def test_a_dead_worker_s_unit_is_done_again_as_far_as_it_is_missing(
    place: Place, sinks: Callable[..., Sink]
) -> None:
    some = Scripted(place)
    with closing(sinks()) as sink:
        run_by(some, None, sink)  # type: ignore[arg-type]
    whole = isinstance(place, InBlocks)
    assert some.given[:2] == [(0, [0, 1, 2]), (1, [3, 4])]
    assert [wanted for _, wanted in some.given[2:]] == [[0, 1, 2] if whole else [1, 2]]
    assert place.durable() == ALL
    assert not place.claims()
