"""The cells of the posterior study: losses in the contexts of one budget, kept block by block.

A block of sequences is a unit of work (`strop.engine`).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from strop.denoisers.base import Denoiser
from strop.drawing import ModelJob, what_to_load
from strop.engine import LOCAL, Engine, Unit, cut
from strop.engine.crew import drive, walk
from strop.engine.hire import hired
from strop.engine.plan import refuse_missing
from strop.metrics.heldout import HeldOutRows
from strop.metrics.posterior import (
    NETWORK_TOKENS,
    Contexts,
    Losses,
    deployed_contexts,
    level_contexts,
    measure,
)
from strop.session import new_session
from strop.spec import CheckpointSpec, Spec
from strop.store import StudyFolder

__all__ = ["LossCell", "LossJob", "Note", "loss_cell", "measured_losses"]

NOTE_SECONDS = 10.0
"""How often a long cell says how far it is."""

Note = Callable[[str], None]


class LossCell(Spec):
    """What one table of losses depends on."""

    checkpoint: CheckpointSpec
    heldout: str
    """SHA-256 of the token ids."""
    sequences: int
    length: int
    kind: Literal["deployed", "profile"]
    """`deployed`: the reveal masses of `count` updates; `profile`: `count` even levels."""
    count: int
    draws: int
    """Contexts per sequence (and level)."""
    temperatures: tuple[float, ...]
    seed: int

    @property
    def label(self) -> str:
        """For people."""
        return f"M = {self.count}" if self.kind == "deployed" else f"{self.count} levels"

    def contexts(self, sequences: NDArray[np.int64]) -> list[Contexts]:
        """All contexts of some sequences."""
        common: dict[str, Any] = {
            "seed": self.seed,
            "sequences": sequences,
            "length": self.length,
        }
        draws = range(self.draws)
        if self.kind == "deployed":
            return [deployed_contexts(self.count, **common, draw=d) for d in draws]
        return [
            level_contexts(k, self.count, **common, draw=d)
            for k in range(self.count)
            for d in draws
        ]


def loss_cell(
    ids: NDArray[np.int64],
    common: Mapping[str, Any],
    kind: Literal["deployed", "profile"],
    count: int,
) -> LossCell:
    """The cell of these sequences."""
    sha = HeldOutRows(ids, 0, 0).sha256
    return LossCell(**common, kind=kind, count=count, heldout=sha, sequences=len(ids))


class Measuring:
    """Measures the losses of some sequences with a model that is loaded."""

    def __init__(
        self, denoiser: Denoiser, cells: Sequence[LossCell], ids: NDArray[np.int64]
    ) -> None:
        self.facts = new_session(denoiser)
        self._denoiser, self._cells, self._ids = denoiser, cells, ids

    def work(self, order: tuple[int, Sequence[int]]) -> Iterator[Any]:
        """One table: all contexts of some sequences of a cell."""
        import pyarrow as pa

        cell, sequences = self._cells[order[0]], np.array(order[1], np.int64)
        ids, taus = self._ids[sequences], cell.temperatures
        yield pa.concat_tables(
            [
                to_table(one, measure(self._denoiser, ids, one, taus), cell)
                for one in cell.contexts(sequences)
            ]
        )


@dataclass(frozen=True, eq=False)
class LossJob(ModelJob):
    """What a worker needs to measure losses."""

    cells: tuple[LossCell, ...]
    ids: NDArray[np.int64]

    def open(self, loaded: Denoiser) -> Measuring:
        """With the checkpoint."""
        found = Measuring(loaded, self.cells, self.ids)
        found.facts["checkpoint"] = self.recipe.said
        return found


class LossDesk:
    """Hands out blocks of sequences and keeps each as a part of its cell."""

    def __init__(
        self, folder: StudyFolder, cells: Sequence[LossCell], engine: Engine, note: Note
    ) -> None:
        self._folder, self._cells, self._note = folder, cells, note
        plan = cut(_blocks(one) for one in cells)
        complete = [folder.cell(one.id) is not None for one in cells]
        mine = [unit for unit in plan if engine.shard is None or engine.shard.has(unit)]
        self.units = [unit for unit in mine if not complete[unit.cell]]
        self.facts: dict[int, Mapping[str, Any]] = {}
        """By worker, of those who measured something."""
        self._left: dict[int, set[int]] = defaultdict(set)
        for unit in self.units:
            self._left[unit.cell].add(unit.number)
        self._began: dict[int, float] = {}
        self._told = time.monotonic()

    def take(self, unit: Unit) -> tuple[int, tuple[int, ...]] | tuple[()]:
        """A block that is on disk is not measured again."""
        self._began.setdefault(unit.cell, time.monotonic())
        self._left[unit.cell].add(unit.number)  # again, if its worker died
        cell = self._cells[unit.cell]
        there = self._folder.part(cell.id, _number(cell, unit)) is not None
        return () if there else (unit.cell, unit.indices)

    def keep(self, unit: Unit, worker: int, facts: Mapping[str, Any], found: list[Any]) -> None:
        """Make a block durable."""
        cell = self._cells[unit.cell]
        for table in found:
            self._folder.keep(cell.id, _number(cell, unit), table)
        self.facts[worker] = facts

    def leave(self, unit: Unit) -> None:
        """Done, or given up; a cell of which all blocks are there is put together."""
        left, cell = self._left[unit.cell], self._cells[unit.cell]
        left.discard(unit.number)
        if not left and _whole(self._folder, cell) is not None:
            seconds = time.monotonic() - self._began[unit.cell]
            self._note(f"{cell.label}: {cell.sequences} sequences, {seconds:.0f} s")
        elif left and time.monotonic() - self._told > NOTE_SECONDS:
            self._told = time.monotonic()
            self._note(f"{cell.label}: {len(left)} of {len(_blocks(cell))} blocks are left")

    def look(self) -> None:
        """Every block is durable at once."""

    def waiting(self, unit: Unit) -> None:
        """Nobody else has it."""


def measured_losses(
    folder: StudyFolder,
    denoiser: Denoiser,
    ids: NDArray[np.int64],
    cells: Sequence[LossCell],
    note: Note,
    engine: Engine = LOCAL,
) -> tuple[list[Losses], Mapping[str, Any]]:
    """Every cell, of the first so many of the sequences, from disk or measured; and where.

    With a shard as `engine`, an `Incomplete` names what other shards have not measured yet.
    """
    desk = LossDesk(folder, cells, engine, lambda text: note(f"{denoiser.source}, {text}"))
    if engine.parallel and desk.units:
        job = LossJob(*what_to_load(denoiser), tuple(cells), ids)
        with hired(engine) as crew:
            drive(crew, job, desk)
    else:
        walk(Measuring(denoiser, cells, ids), desk)
    tables = [_whole(folder, one) for one in cells]
    missing = {
        one.id: set() if table is not None else _missing(folder, one)
        for one, table in zip(cells, tables, strict=True)
    }
    refuse_missing(folder.path, missing, "losses")
    facts = next(iter(desk.facts.values()), None) or new_session(denoiser)
    return [from_table(table, one) for one, table in zip(cells, tables, strict=True)], facts


def _blocks(cell: LossCell) -> list[range]:
    size, n = _block(cell), cell.sequences
    return [range(start, min(start + size, n)) for start in range(0, n, size)]


def _block(cell: LossCell) -> int:
    return max(1, 4 * NETWORK_TOKENS // cell.length)


def _number(cell: LossCell, unit: Unit) -> int:
    return unit.first // _block(cell)


def _missing(folder: StudyFolder, cell: LossCell) -> set[int]:
    """Sequences whose block is not there."""
    return {
        one
        for number, block in enumerate(_blocks(cell))
        if folder.part(cell.id, number) is None
        for one in block
    }


def _whole(folder: StudyFolder, cell: LossCell) -> Any | None:
    """A cell, put together now if all blocks are there; None if some are not."""
    import pyarrow as pa

    table = folder.cell(cell.id)
    if table is None:
        parts = [folder.part(cell.id, number) for number in range(len(_blocks(cell)))]
        if any(one is None for one in parts):
            return folder.cell(cell.id)  # another shard may have put it together meanwhile
        table = pa.concat_tables(parts)
        folder.complete(cell.id, table)
    return table


def to_table(contexts: Contexts, losses: Losses, cell: LossCell) -> Any:
    """One line per context; a column per estimator and temperature."""
    import pyarrow as pa

    columns: dict[str, Any] = {
        "sequence": contexts.sequence,
        "round": contexts.round,
        "level": contexts.level,
        "hidden": contexts.hidden.sum(axis=1),
        "target_position": contexts.target,
    }
    for name, values, slope in (
        ("target", losses.target, losses.target_slope),
        ("masked", losses.masked, losses.masked_slope),
    ):
        columns |= {
            f"{name}_{float(tau)!r}": values[:, k] for k, tau in enumerate(cell.temperatures)
        }
        columns[f"{name}_slope"] = slope
    metadata = {"strop.cell": cell.canonical()}
    return pa.table(columns).replace_schema_metadata(metadata)


def from_table(table: Any, cell: LossCell) -> Losses:
    """Means over the draws: [sequences, (levels,) temperatures] and [sequences, (levels)]."""
    levels = cell.count if cell.kind == "profile" else 1
    n = cell.sequences
    sequence = table["sequence"].to_numpy()
    level = table["round"].to_numpy() if cell.kind == "profile" else np.zeros_like(sequence)

    def column(name: str) -> NDArray[np.float64]:
        sums = np.bincount(sequence * levels + level, table[name].to_numpy(), n * levels)
        return (sums / cell.draws).reshape((n, levels) if cell.kind == "profile" else n)

    def grid(name: str) -> NDArray[np.float64]:
        return np.stack([column(f"{name}_{float(tau)!r}") for tau in cell.temperatures], axis=-1)

    return Losses(grid("target"), grid("masked"), column("target_slope"), column("masked_slope"))
