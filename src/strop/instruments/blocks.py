"""What studies measure with a model, a block of outputs at a time: units of `strop.engine`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strop.denoisers.base import Denoiser
from strop.draw.worker import ModelJob, what_to_load
from strop.engine.plan import Engine
from strop.engine.sink import new_session
from strop.engine.workers import Blocks, measure_blocks
from strop.samplers.caches import CacheBench, CachedOutputs, Laws
from strop.store import StudyFolder

if TYPE_CHECKING:
    import pyarrow as pa

Measure = Callable[[Denoiser, int, Sequence[int]], "pa.Table"]
"""From a model, the number of a cell and a block of it to the block's table; it can be pickled."""
PLAIN, OTHER = "none", "other"
"""Without a cache, and the same under another seed."""


class BlockWorker:
    """Measures blocks with a model that is loaded."""

    def __init__(self, model: Denoiser, measure: Measure) -> None:
        self.facts = new_session(model)
        self._model, self._measure = model, measure

    def work(self, cell: int, missing: Sequence[int]) -> Iterator[tuple[int, pa.Table]]:
        """Measure one block of a cell."""
        yield missing[0], self._measure(self._model, cell, missing)


@dataclass(frozen=True, eq=False)
class BlockJob(ModelJob):
    """What a worker needs to measure blocks."""

    measure: Measure

    def open(self, loaded: Denoiser) -> BlockWorker:
        """A worker with the checkpoint loaded."""
        worker = BlockWorker(loaded, self.measure)
        worker.facts["checkpoint"] = self.recipe.as_written
        return worker


def measure_with(
    model: Denoiser,
    measure: Measure,
    cells: Sequence[Blocks],
    folder: StudyFolder,
    engine: Engine,
    note: Callable[[str], None],
    what: str,
) -> Mapping[str, Any] | None:
    """Complete all cells, here or by an engine's workers; the session that measured, if any."""
    return measure_blocks(
        folder,
        cells,
        lambda: BlockWorker(model, measure),
        lambda: BlockJob(*what_to_load(model), measure),
        engine,
        note,
        what,
    )


@dataclass(frozen=True)
class Compared:
    """The same outputs through every cache."""

    outputs: dict[str, CachedOutputs]
    """By cache; also without one, and without one under another seed."""
    laws: dict[str, Laws]
    """How far each cache's laws are from the uncached ones."""

    @classmethod
    def of(cls, bench: CacheBench, caches: Sequence[str]) -> Compared:
        """Measure all caches now."""
        laws = bench.laws(caches)  # first: it also warms the machine up
        outputs = {PLAIN: bench.run(PLAIN), OTHER: bench.run(PLAIN, seed=bench.seed ^ 1)}
        return cls(outputs | {cache: bench.run(cache) for cache in caches}, laws)

    def table(self, index: Sequence[int]) -> pa.Table:
        """A table with a row per output."""
        import pyarrow as pa

        columns: dict[str, Any] = {"index": list(index)}
        for name, outputs in self.outputs.items():
            columns |= {f"{name}.ids": list(outputs.ids), f"{name}.calls": outputs.calls}
            columns[f"{name}.positions"] = outputs.positions
            columns[f"{name}.seconds"] = np.full(len(index), outputs.seconds / len(index))
        for name, laws in self.laws.items():
            columns |= {f"{name}.{key}": list(value) for key, value in vars(laws).items()}
        return pa.table(columns)

    @classmethod
    def read(cls, parts: Sequence[pa.Table], caches: Sequence[str]) -> Compared:
        """All batches, in the order of the outputs."""
        import pyarrow as pa

        table = pa.concat_tables(parts).sort_by("index")

        def arrays(name: str, *keys: str) -> list[NDArray]:
            return [np.array(table[f"{name}.{key}"].to_pylist()) for key in keys]

        outputs = {}
        for name in (PLAIN, OTHER, *caches):
            ids, calls, positions, seconds = arrays(name, "ids", "calls", "positions", "seconds")
            outputs[name] = CachedOutputs(ids, calls, positions, float(seconds.sum()))
        return cls(outputs, {name: Laws(*arrays(name, "kl", "moved", "open")) for name in caches})


Bench = Callable[..., CacheBench]
"""All but the model and the numbers of the outputs."""


def compare_caches(
    benches: Sequence[Bench],
    caches: Sequence[str],
    model: Denoiser,
    cell: int,
    missing: Sequence[int],
) -> pa.Table:
    """One batch of a decoder's outputs."""
    return Compared.of(benches[cell](model, outputs=missing), caches).table(missing)
