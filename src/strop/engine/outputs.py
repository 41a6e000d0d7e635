"""What the process that was called does while units are drawn: it claims, writes and tells."""

from __future__ import annotations

import datetime
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from strop.engine.plan import Unit, spelled
from strop.pool import Output
from strop.progress import Progress
from strop.spec import CellSpec
from strop.store import Cell
from strop.store.known import Known

__all__ = ["FLUSH_SECONDS", "MemoryDesk", "OutputDesk", "Session"]

FLUSH_SECONDS = 2.0

Order = tuple[int, tuple[int, ...]]
"""Which cell, and which outputs of it are missing."""


class Session:
    """What one worker did for one cell: provenance that grows with its outputs."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self._said = {**facts, "session": uuid.uuid4().hex[:12], "started": now}
        self._indices: set[int] = set()
        self._seconds = 0.0

    def add(self, outputs: Sequence[Output]) -> None:
        """These were drawn in it."""
        self._indices |= {one.index for one in outputs}
        self._seconds += sum(one.seconds for one in outputs)

    def document(self) -> dict[str, Any]:
        """For `cost.json`."""
        return {
            **self._said,
            "outputs": len(self._indices),
            "seconds": self._seconds,
            "indices": spelled(self._indices),
        }


class MemoryDesk:
    """Outputs that go nowhere but into a pool."""

    def __init__(
        self, cells: Sequence[CellSpec], units: Sequence[Unit], progress: Progress
    ) -> None:
        self.units, self._cells, self._progress = units, cells, progress
        self.outputs: dict[int, list[Output]] = defaultdict(list)
        """By cell."""
        self._sessions: dict[tuple[int, int], Session] = {}
        self._had: dict[int, set[int]] = defaultdict(set)

    def sessions(self, cell: int) -> list[dict[str, Any]]:
        """Who drew a cell's outputs."""
        return [one.document() for (c, _), one in self._sessions.items() if c == cell]

    def take(self, unit: Unit) -> Order | tuple[()]:
        """What is missing of a unit: all, unless its worker died."""
        if unit.cell not in self._had:
            total = sum(len(one.indices) for one in self.units if one.cell == unit.cell)
            self._progress.start(self._cells[unit.cell], total, 0)
        missing = tuple(i for i in unit.indices if i not in self._had[unit.cell])
        return (unit.cell, missing) if missing else ()

    def keep(self, unit: Unit, worker: int, facts: Mapping[str, Any], found: list[Output]) -> None:
        """Keep outputs."""
        self.outputs[unit.cell] += found
        self._had[unit.cell] |= {one.index for one in found}
        self._sessions.setdefault((unit.cell, worker), Session(facts)).add(found)
        self._progress.advance(len(found), sum(len(one.ids) for one in found))

    def leave(self, unit: Unit) -> None:
        """Nobody else could take it."""

    def look(self) -> None:
        """Nothing is made durable."""

    def waiting(self, unit: Unit) -> None:
        """Nobody else is there."""


class _Open:
    """A cell that is being drawn here."""

    def __init__(self, cell: Cell, hold: ExitStack) -> None:
        self.cell, self.hold = cell, hold
        cell.sessions()  # a damaged record is better found before hours of work than after
        self.known = Known(cell)
        self.waiting: dict[int, list[Output]] = defaultdict(list)
        """By worker."""
        self.sessions: dict[int, Session] = {}

    def flush(self) -> None:
        for worker, outputs in self.waiting.items():
            if outputs:
                self.known.add(outputs)
                self.sessions[worker].add(outputs)
                outputs.clear()  # before anything else can fail: they are on disk, counted once
                self.cell.record(self.sessions[worker].document())


class OutputDesk:
    """Outputs of cells on disk: any number of processes may sit at such desks of one run."""

    def __init__(
        self,
        cells: Sequence[Cell],
        units: Sequence[Unit],
        progress: Progress,
        *,
        workers: int | None = None,
    ) -> None:
        """`workers`: how many processes draw, under one bar; None: this one, with one per cell."""
        self.units, self._cells, self._progress = units, cells, progress
        self._one_bar = workers is not None
        self._open: dict[int, _Open] = {}
        self._claims: dict[int, ExitStack] = {}
        self._left: dict[int, set[int]] = defaultdict(set)
        """By cell, the units that are not done yet."""
        self._released: list[Unit] = []
        """Units that are done, whose claims are held until their outputs are on disk."""
        self._told: set[int] = set()
        self._last = time.monotonic()
        self._wanted: dict[int, set[int]] = defaultdict(set)
        """By cell, the outputs of its units."""
        for unit in units:
            self._left[unit.cell].add(unit.number)
            self._wanted[unit.cell].update(unit.indices)
        if workers is not None:
            there = [len(mine & cells[i].indices()) for i, mine in self._wanted.items()]
            whole = f"on {workers} workers"
            what = whole if len(cells) == 1 else f"{len(cells)} cells {whole}"
            only = cells[0].spec if len(cells) == 1 else None
            progress.start(only, sum(map(len, self._wanted.values())), sum(there), what)

    def take(self, unit: Unit) -> Order | tuple[()] | None:
        """Claim a unit, unless another process has it or its cell."""
        if unit.number in self._claims:  # its worker died
            self.flush()
        place = self._opened(unit.cell)
        if place is None:
            return None
        if place.known.indices.issuperset(unit.indices):
            return ()
        with ExitStack() as stack:
            if not stack.enter_context(place.cell.claim(unit.first)):
                return None
            there = place.known.look()  # only now: somebody may have done it a moment ago
            missing = tuple(i for i in unit.indices if i not in there)
            if not missing:
                return ()
            self._claims[unit.number] = stack.pop_all()
            self._left[unit.cell].add(unit.number)
        return unit.cell, missing

    def _opened(self, number: int) -> _Open | None:
        if number in self._open:
            return self._open[number]
        cell = self._cells[number]
        with ExitStack() as stack:
            if not stack.enter_context(cell.drawing(wait=False)):
                return None
            place = self._open[number] = _Open(cell, stack)
            there = place.known.look()
            stack.pop_all()
        if not self._one_bar:
            wanted = self._wanted[number]
            self._progress.start(cell.spec, len(wanted), len(wanted & there))
        return place

    def keep(self, unit: Unit, worker: int, facts: Mapping[str, Any], found: list[Output]) -> None:
        """Keep outputs, and make them durable every few seconds."""
        place = self._open[unit.cell]
        place.sessions.setdefault(worker, Session(facts))
        place.waiting[worker] += found
        self._progress.advance(len(found), sum(len(one.ids) for one in found))
        self.look()

    def look(self) -> None:
        """Flush what has waited long enough."""
        if time.monotonic() - self._last > FLUSH_SECONDS:
            self.flush()

    def leave(self, unit: Unit) -> None:
        """Done, or given up; a cell without units that are left is merged."""
        self._left[unit.cell].discard(unit.number)
        if unit.number in self._claims:
            self._released.append(unit)
        if not self._left[unit.cell]:
            self.flush()
            place = self._open.pop(unit.cell)
            with place.hold:
                place.cell.merge()

    def waiting(self, unit: Unit) -> None:
        """Say once per cell what is waited for."""
        if unit.cell not in self._told:
            self._told.add(unit.cell)
            self._progress.waiting(self._cells[unit.cell].spec)

    def flush(self) -> None:
        """Make everything durable, then let go of the units that are done."""
        self._last = time.monotonic()
        for place in self._open.values():
            place.flush()
        for unit in self._released:
            if unit.number in self._claims:
                self._claims.pop(unit.number).close()
        self._released.clear()

    def close(self) -> None:
        """Also when interrupted: what is finished is kept, what is claimed is free again."""
        try:
            self.flush()
        finally:
            for claim in self._claims.values():
                claim.close()
            for place in self._open.values():
                place.hold.close()
