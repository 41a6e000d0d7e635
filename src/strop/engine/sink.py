"""Where the rows that workers make go: units are claimed, their rows are written, claims end.

A `Sink` stays with the process that was called, and takes in the rows of all its units. It alone
says when to look up what is missing, when to write and when a claim ends; where rows lie is said by
one small `CellRows` per cell. There are four kinds: outputs in memory and on disk (here), scores
(`strop.measure.score`), and blocks of the tables that studies measure (`strop.engine.workers`).

For all of them, on one machine or on many that share a disk:

- one process at a time works on a unit, and asks what is missing of it after it has the claim;
- a claim ends when the unit's rows are durable, or with its process, however that ends;
- what is finished waits for a few seconds at most, and is written also after an interrupt.

With the rows goes where and with what they were made: provenance, never identity.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import platform
import subprocess
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strop.disk import CLAIM
from strop.engine.plan import Progress, Silent, Unit, spelled
from strop.pool import Output, Pool
from strop.spec.generator import CellSpec
from strop.spec.value import MetricSpec
from strop.store import Cell
from strop.store.folder import SCORES
from strop.version import __version__

if TYPE_CHECKING:
    import torch

    from strop.denoisers import Model

PACKAGES = ("strop", "torch", "transformers", "numpy", "tokenizers", "safetensors", "pyarrow")


def new_session(denoiser: Model, device: torch.device | None = None) -> dict[str, Any]:
    """Where and with what the outputs of this session are drawn; `device`: not the model's."""
    import torch

    device = denoiser.device if device is None else device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()
    return {
        "session": uuid.uuid4().hex[:12],
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "checkpoint": denoiser.source,
        "host": platform.node(),
        "device": str(device),
        "device_name": name or platform.machine(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": dict(_versions()),
        "code": _commit(),
    }


class WorkerSession:
    """What one worker did for one cell: provenance that grows with its outputs."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self._said = {**facts, "session": uuid.uuid4().hex[:12], "started": now}
        self._indices: set[int] = set()
        self._seconds = 0.0

    def add(self, outputs: Sequence[Output]) -> None:
        """These were drawn in it."""
        self._indices |= {output.index for output in outputs}
        self._seconds += sum(output.seconds for output in outputs)

    def document(self) -> dict[str, Any]:
        """For `cost.json`."""
        return {
            **self._said,
            "outputs": len(self._indices),
            "seconds": self._seconds,
            "indices": spelled(self._indices),
        }


@functools.cache
def _versions() -> Mapping[str, str | None]:
    """Asked once: a process goes on with what it has loaded."""
    installed: dict[str, str | None] = dict.fromkeys(PACKAGES)
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[package] = metadata.version(package)
    return installed


@functools.cache
def _commit() -> str:
    """The version, and the commit (with `-dirty` after changes) where it runs from a checkout."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return __version__
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return __version__
    return f"{__version__}+{answer.stdout.strip()}"


FLUSH_SECONDS = 2.0
"""How long rows wait to be written."""
TAKEN: Any = object()
"""Another process is at work on a unit."""


class CellRows:
    """Where the rows of one cell lie; as it stands here, where no other process can come."""

    spec: CellSpec | None = None
    """For the bar."""

    def hold(self) -> AbstractContextManager[bool]:
        """While this process works on the cell; False: another has it for itself."""
        return nullcontext(True)

    def claim(self, unit: Unit) -> AbstractContextManager[bool]:
        """While this process works on a unit; False: another does."""
        del unit
        return nullcontext(True)

    def look(self) -> None:
        """See what is durable by now, whoever made it."""

    def missing(self, unit: Unit) -> Sequence[int]:
        """What of a unit was not durable at the last look, and was not written since."""
        raise NotImplementedError

    def counted(self, units: Collection[Unit]) -> tuple[int, int]:
        """How many outputs some of its units have, and how many of them are durable."""
        total = sum(len(unit.indices) for unit in units)
        return total, total - sum(len(self.missing(unit)) for unit in units)

    def given(self, missing: Sequence[int]) -> Any:
        """What a worker gets to make them."""
        return missing

    def size(self, rows: Sequence[Any]) -> tuple[int, int]:
        """How many outputs and tokens they are, for the bar."""
        return len(rows), 0

    def write(self, rows: Sequence[Any]) -> None:
        """Make rows durable: all, or it raises."""
        raise NotImplementedError

    def record(self, worker: int, facts: Mapping[str, Any], rows: Sequence[Any]) -> None:
        """Who made rows that are durable now."""

    def done(self, left: int) -> None:
        """A unit is done and so many are left; if none are, all rows are durable."""

    def waiting(self, progress: Progress) -> None:
        """Say that another process is at work on it, and that there is nothing else to do."""
        if self.spec is not None:
            progress.waiting(self.spec)


class Sink:
    """Hands out the units of some cells and makes what comes back durable every few seconds."""

    def __init__(
        self,
        units: Sequence[Unit],
        cells: Sequence[CellRows],
        progress: Progress | None = None,
        what: str = "",
        *,
        seconds: float | None = None,
        share: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`units` are those that this process may take, of `cells` by number.

        Rows wait `seconds`, and `share` times as long as the last flush took.
        """
        self.units, self._cells = units, cells
        self._progress, self._what = Silent() if progress is None else progress, what
        self._seconds, self._share, self._clock = seconds, share, clock
        self._together = False
        self._held: dict[int, ExitStack] = {}
        self._claims: dict[int, ExitStack] = {}
        self._left: dict[int, dict[int, Unit]] = defaultdict(dict)
        """By cell and number, the units that are not done."""
        for unit in units:
            self._left[unit.cell][unit.number] = unit
        self._rows: dict[int, dict[int, list[Any]]] = {}
        """What is not written yet, by cell and worker."""
        self._facts: dict[int, Mapping[str, Any]] = {}
        self._done: list[Unit] = []
        """Units whose claims end when their rows are written."""
        self._told: set[int] = set()
        self._flushed, self._pause = clock(), 0.0

    def complete(self) -> bool:
        """Whether nothing is missing: then nobody has to load anything."""
        for number in self._left:
            self._cells[number].look()
        return not any(self._cells[unit.cell].missing(unit) for unit in self.units)

    def one_bar(self, workers: int) -> None:
        """So many workers do the units at once: there is one bar for all cells."""
        self._together = True
        counts = [self._cells[number].counted(left.values()) for number, left in self._left.items()]
        cells = f"{len(self._cells)} cells " if len(self._cells) > 1 else ""
        words = [*filter(None, [self._what]), f"{cells}on {workers} workers"]
        only = self._cells[0].spec if len(self._cells) == 1 else None
        total, present = (sum(count[k] for count in counts) for k in range(2))
        self._progress.start(only, total, present, ", ".join(words))

    def expect(self) -> None:
        """Say which cells come; what of them is on disk is said when they begin."""
        cells = [(number, self._cells[number]) for number in self._left]
        sizes = [cell.counted(self._left[number].values()) for number, cell in cells]
        self._progress.expect(
            [
                (cell.spec, total - present)
                for (_, cell), (total, present) in zip(cells, sizes, strict=True)
            ],
            self._what,
        )

    def claim(self, unit: Unit) -> Any:
        """What is missing of a unit, for a worker; empty: nothing; `TAKEN`: another process has it.

        One that this process has already is asked for again when its worker died.
        """
        cell = self._cells[unit.cell]
        claimed = unit.number in self._claims
        if claimed:
            self.flush()  # what the worker had sent
        elif not self._hold(unit.cell):
            return TAKEN
        if not cell.missing(unit):
            return ()
        with ExitStack() as stack:
            if not claimed and not stack.enter_context(cell.claim(unit)):
                return TAKEN
            cell.look()  # only now: another process may have done it a moment ago
            missing = cell.missing(unit)
            if not missing:
                return ()
            self._claims.setdefault(unit.number, stack.pop_all())
        return cell.given(missing)

    def _hold(self, number: int) -> bool:
        """Begin with a cell, unless this process has, or another has it for itself."""
        if number in self._held:
            return True
        cell = self._cells[number]
        with ExitStack() as stack:
            if not stack.enter_context(cell.hold()):
                return False
            cell.look()
            self._held[number] = stack.pop_all()
        if not self._together:
            self._progress.start(cell.spec, *cell.counted(self._left[number].values()), self._what)
        return True

    def keep(self, unit: Unit, rows: Sequence[Any], worker: int, facts: Mapping[str, Any]) -> None:
        """Some of a unit is finished."""
        self._facts[worker] = facts
        self._rows.setdefault(unit.cell, {}).setdefault(worker, []).extend(rows)
        self._progress.advance(*self._cells[unit.cell].size(rows))
        self.tick()

    def tick(self) -> None:
        """Called now and then: write what has waited long enough."""
        seconds = FLUSH_SECONDS if self._seconds is None else self._seconds
        if self._clock() - self._flushed >= max(seconds, self._pause):
            self.flush()

    def done(self, unit: Unit) -> None:
        """A unit is finished: its claim ends once its rows are durable."""
        left = self._left[unit.cell]
        left.pop(unit.number, None)
        self._done.append(unit)
        if not left:
            self.flush()
        self._cells[unit.cell].done(len(left))
        if not left and unit.cell in self._held:
            self._held.pop(unit.cell).close()

    def waiting(self, unit: Unit) -> None:
        """Another process has a unit, and there is nothing else to do: said once per cell."""
        if unit.cell not in self._told:
            self._told.add(unit.cell)
            self._cells[unit.cell].waiting(self._progress)

    def flush(self) -> None:
        """Make everything durable, then let go of the units that are done."""
        began = self._clock()
        for number in list(self._rows):
            cell = self._cells[number]
            cell.write([row for rows in self._rows[number].values() for row in rows])
            written = self._rows.pop(number)  # before anything else can fail: nothing counts twice
            for worker, outputs in written.items():
                cell.record(worker, self._facts[worker], outputs)
        while self._done:
            claim = self._claims.pop(self._done.pop().number, None)
            if claim is not None:
                claim.close()
        self._flushed = self._clock()
        self._pause = self._share * (self._flushed - began)

    def close(self) -> None:
        """Also when interrupted: what is finished is written, what is claimed is free again."""
        try:
            self.flush()
        finally:
            for claim in (*self._claims.values(), *self._held.values()):
                claim.close()


def forget_claims(folder: Path, name: str) -> None:
    """Remove the files of claims that killed processes left, of something that is complete."""
    with suppress(OSError):
        for leftover in folder.glob(f"{CLAIM}{name}-*"):
            leftover.unlink(missing_ok=True)


class Known:
    """What is on disk of a cell; every file is read once, however often one looks."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.indices: set[int] = set()
        self._seen: set[tuple[str, int, int]] = set()

    def look(self) -> set[int]:
        """The outputs that are there now."""
        while new := [path for path in self.cell.files() if _stamp(path) not in self._seen]:
            for path in new:
                stamp = _stamp(path)  # before reading: what replaces it meanwhile is read again
                try:
                    self.indices |= self.cell.indices_of(path)
                except FileNotFoundError:
                    break  # merged since: the merged file has its rows
                self._seen.add(stamp)
        return self.indices

    def add(self, rows: Iterable[Output]) -> None:
        """Make outputs durable, and know them without reading them again."""
        rows = list(rows)
        path = self.cell.add(rows)
        if path is not None:
            self.indices |= {row.index for row in rows}
            self._seen.add(_stamp(path))


class KnownScores:
    """Which outputs of a cell have a score; the file is read when it has changed."""

    def __init__(self, cell: Cell, metric: MetricSpec) -> None:
        self._cell, self._metric = cell, metric
        self._path = cell.path / SCORES / f"{metric.id}.parquet"
        self._index, self._seen = np.zeros(0, np.int64), (self._path.name, -1, -1)

    def look(self) -> np.ndarray:
        """Their numbers now."""
        stamp = _stamp(self._path)  # before reading, as above
        if stamp != self._seen:
            table = self._cell.score(self._metric)
            self._index = np.zeros(0, np.int64) if table is None else table.index
            self._seen = stamp
        return self._index


def _stamp(path: Path) -> tuple[str, int, int]:
    """Changes whenever a file is replaced; none changes in place."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return path.name, -1, -1
    return path.name, status.st_ino, status.st_mtime_ns


class MemoryRows(CellRows):
    """Outputs that go nowhere but into a pool."""

    def __init__(self, spec: CellSpec) -> None:
        self.spec = self._made = spec
        self.sessions: dict[int, WorkerSession] = {}
        """By worker."""
        self._outputs: dict[int, Output] = {}

    folder: Path | None = None
    """Where the cell lies; None in memory."""

    def missing(self, unit: Unit) -> tuple[int, ...]:
        """What was not drawn."""
        return tuple(index for index in unit.indices if index not in self._outputs)

    def size(self, rows: Sequence[Output]) -> tuple[int, int]:
        """Every output has tokens."""
        return len(rows), sum(len(row.ids) for row in rows)

    def write(self, rows: Sequence[Output]) -> None:
        """As durable as this process."""
        self._outputs |= {row.index: row for row in rows}

    def record(self, worker: int, facts: Mapping[str, Any], rows: Sequence[Output]) -> None:
        """One session per worker."""
        self.sessions.setdefault(worker, WorkerSession(facts)).add(rows)

    def pool(self) -> Pool:
        """All of them."""
        provenance = [session.document() for session in self.sessions.values()]
        return Pool.of(self._made, list(self._outputs.values()), provenance)


class OutputRows(MemoryRows):
    """Outputs of a cell on disk, which any number of processes may draw together."""

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell.spec)
        self._cell, self._known = cell, Known(cell)
        self.folder = cell.path

    @contextmanager
    def hold(self) -> Iterator[bool]:
        """Nobody starts the cell anew meanwhile."""
        with self._cell.drawing(wait=False) as acquired:
            if acquired:
                self._cell.sessions()  # damage is better found before hours of work than after
                self._known = Known(self._cell)
            yield acquired

    def claim(self, unit: Unit) -> AbstractContextManager[bool]:
        """By the unit's first output."""
        return self._cell.claim(unit.first)

    def look(self) -> None:
        """Read the files that were not read yet."""
        self._known.look()

    def missing(self, unit: Unit) -> tuple[int, ...]:
        """What is not on disk."""
        return tuple(index for index in unit.indices if index not in self._known.indices)

    def write(self, rows: Sequence[Output]) -> None:
        """In a file of their own."""
        self._known.add(rows)

    def record(self, worker: int, facts: Mapping[str, Any], rows: Sequence[Output]) -> None:
        """Also in the cell's record of cost."""
        super().record(worker, facts, rows)
        self._cell.record(self.sessions[worker].document())

    def done(self, left: int) -> None:
        """Fold the files into one when this process has nothing left to do."""
        if not left:
            self._cell.merge()
