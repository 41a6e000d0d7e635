"""The cells of the posterior study: losses in the contexts of one budget, kept block by block.

A block of sequences is a unit of work (`strop.engine`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from strop.denoisers.base import Denoiser
from strop.draw.worker import ModelJob, what_to_load
from strop.engine import LOCAL, Engine
from strop.engine.blocks import Blocks, measure_blocks
from strop.engine.provenance import new_session
from strop.instruments.posterior import (
    NETWORK_TOKENS,
    Contexts,
    Losses,
    deployed_contexts,
    level_contexts,
    measure,
)
from strop.measure.heldout import HeldOutRows
from strop.spec import CheckpointSpec, Spec
from strop.store import StudyFolder

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


class LossWorker:
    """Measures the losses of some sequences with a model that is loaded."""

    def __init__(
        self, denoiser: Denoiser, cells: Sequence[LossCell], ids: NDArray[np.int64]
    ) -> None:
        self.facts = new_session(denoiser)
        self._denoiser, self._cells, self._ids = denoiser, cells, ids

    def work(self, cell: int, missing: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """One table: all contexts of some sequences of a cell."""
        import pyarrow as pa

        spec, sequences = self._cells[cell], np.array(missing, np.int64)
        ids, taus = self._ids[sequences], spec.temperatures
        tables = [
            to_table(one, measure(self._denoiser, ids, one, taus), spec)
            for one in spec.contexts(sequences)
        ]
        yield missing[0], pa.concat_tables(tables)


@dataclass(frozen=True, eq=False)
class LossJob(ModelJob):
    """What a worker needs to measure losses."""

    cells: tuple[LossCell, ...]
    ids: NDArray[np.int64]

    def open(self, loaded: Denoiser) -> LossWorker:
        """With the checkpoint."""
        found = LossWorker(loaded, self.cells, self.ids)
        found.facts["checkpoint"] = self.recipe.said
        return found


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
    facts = measure_blocks(
        folder,
        [_as_blocks(one) for one in cells],
        lambda: LossWorker(denoiser, cells, ids),
        lambda: LossJob(*what_to_load(denoiser), tuple(cells), ids),
        engine,
        lambda text: note(f"{denoiser.source}, {text}"),
        "losses",
    )
    found = [from_table(folder.cell(one.id), one) for one in cells]
    return found, facts or new_session(denoiser)


def _as_blocks(cell: LossCell) -> Blocks:
    size, n = max(1, 4 * NETWORK_TOKENS // cell.length), cell.sequences
    blocks = [range(start, min(start + size, n)) for start in range(0, n, size)]
    return Blocks([cell.id], f"{cell.label}: {n} sequences", blocks, _joined)


def _joined(parts: list[Any]) -> list[Any]:
    import pyarrow as pa

    return [pa.concat_tables(parts)]


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
