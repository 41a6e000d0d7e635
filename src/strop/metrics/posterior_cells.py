"""The cells of the posterior study: losses in the contexts of one budget, kept block by block."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from strop.denoisers.base import Denoiser
from strop.metrics.heldout import HeldOutRows
from strop.metrics.posterior import (
    NETWORK_TOKENS,
    Contexts,
    Losses,
    deployed_contexts,
    level_contexts,
    measure,
)
from strop.spec import CheckpointSpec, Spec
from strop.store import StudyFolder

__all__ = ["LossCell", "Note", "measured_cell"]

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


def measured_cell(
    folder: StudyFolder,
    denoiser: Denoiser,
    ids: NDArray[np.int64],
    common: dict[str, Any],
    kind: Literal["deployed", "profile"],
    count: int,
    note: Note,
) -> Losses:
    """One cell from disk, or measured block by block; a block that is on disk is not done again."""
    sha = HeldOutRows(ids, 0, 0).sha256
    cell = LossCell(**common, kind=kind, count=count, heldout=sha, sequences=len(ids))
    table = folder.cell(cell.id)
    if table is None:
        table = _measured(folder, denoiser, ids, cell, note)
        folder.complete(cell.id, table)
    return from_table(table, cell)


def _measured(
    folder: StudyFolder, denoiser: Denoiser, ids: NDArray[np.int64], cell: LossCell, note: Note
) -> Any:
    import pyarrow as pa

    block = max(1, 4 * NETWORK_TOKENS // cell.length)
    tables, told, started = [], time.monotonic(), time.monotonic()
    for number, start in enumerate(range(0, len(ids), block)):
        table = folder.part(cell.id, number)
        if table is None:
            sequences = np.arange(start, min(start + block, len(ids)))
            table = pa.concat_tables(
                [
                    to_table(one, measure(denoiser, ids[sequences], one, cell.temperatures), cell)
                    for one in cell.contexts(sequences)
                ]
            )
            folder.keep(cell.id, number, table)
        tables.append(table)
        if time.monotonic() - told > NOTE_SECONDS:
            told = time.monotonic()
            done = min(start + block, len(ids))
            note(f"{denoiser.source}, {cell.label}: {done} of {len(ids)} sequences")
    note(
        f"{denoiser.source}, {cell.label}: {len(ids)} sequences, {time.monotonic() - started:.0f} s"
    )
    return pa.concat_tables(tables)


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
