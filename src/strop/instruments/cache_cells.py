"""What the cache study measures, a batch of outputs at a time: a unit of work (`strop.engine`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strop.denoisers.base import Denoiser
from strop.draw.worker import ModelJob
from strop.engine.provenance import new_session
from strop.samplers.caches import CacheBench, CachedOutputs, Laws
from strop.spec import SamplerSpec

if TYPE_CHECKING:
    import pyarrow as pa

PLAIN, OTHER = "none", "other"
"""Without a cache, and the same under another seed."""


@dataclass(frozen=True)
class Decoding:
    """A decoder at work, all but the model and the cache."""

    spec: SamplerSpec
    length: int
    outputs: int
    seed: int
    prompts: tuple[tuple[int, ...], ...]
    batch_size: int

    def bench(self, model: Denoiser, outputs: Sequence[int] | None = None) -> CacheBench:
        """Some of the outputs, or all."""
        numbers = range(self.outputs) if outputs is None else outputs
        return CacheBench(
            model, self.spec, self.length, numbers, self.seed, self.prompts, self.batch_size
        )

    def blocks(self, model: Denoiser) -> list[list[int]]:
        """The outputs of each batch."""
        return [batch.tolist() for batch in self.bench(model).batches()]


@dataclass(frozen=True)
class Compared:
    """The same outputs through everything."""

    outputs: dict[str, CachedOutputs]
    """By cache; also without one, and without one under another seed."""
    laws: dict[str, Laws]
    """By cache."""

    @classmethod
    def of(cls, bench: CacheBench, caches: Sequence[str]) -> Compared:
        """Measured now."""
        laws = bench.laws(caches)  # first: it also warms the machine up
        found = {PLAIN: bench.run(PLAIN), OTHER: bench.run(PLAIN, seed=bench.seed ^ 1)}
        return cls(found | {cache: bench.run(cache) for cache in caches}, laws)

    def table(self, index: Sequence[int]) -> pa.Table:
        """A line per output."""
        import pyarrow as pa

        columns: dict[str, Any] = {"index": list(index)}
        for name, one in self.outputs.items():
            columns |= {f"{name}.ids": list(one.ids), f"{name}.calls": one.calls}
            columns[f"{name}.positions"] = one.positions
            columns[f"{name}.seconds"] = np.full(len(index), one.seconds / len(index))
        for name, laws in self.laws.items():
            columns |= {f"{name}.{key}": list(value) for key, value in vars(laws).items()}
        return pa.table(columns)

    @classmethod
    def read(cls, parts: Sequence[pa.Table], caches: Sequence[str]) -> Compared:
        """All batches, in the order of the outputs."""
        import pyarrow as pa

        table = pa.concat_tables(parts).sort_by("index")

        def array(name: str) -> NDArray:
            return np.array(table[name].to_pylist())

        outputs = {
            name: CachedOutputs(
                array(f"{name}.ids"),
                array(f"{name}.calls"),
                array(f"{name}.positions"),
                float(array(f"{name}.seconds").sum()),
            )
            for name in (PLAIN, OTHER, *caches)
        }
        laws = {
            name: Laws(*(array(f"{name}.{key}") for key in ("kl", "moved", "open")))
            for name in caches
        }
        return cls(outputs, laws)


class CacheWorker:
    """Measures batches with a model that is loaded."""

    def __init__(
        self, model: Denoiser, decodings: Sequence[Decoding], caches: Sequence[str]
    ) -> None:
        self.facts = new_session(model)
        self._model, self._decodings, self._caches = model, decodings, caches

    def work(self, cell: int, missing: Sequence[int]) -> Iterator[tuple[int, pa.Table]]:
        """One batch of a decoder's outputs."""
        bench = self._decodings[cell].bench(self._model, missing)
        yield missing[0], Compared.of(bench, self._caches).table(missing)


@dataclass(frozen=True)
class CacheJob(ModelJob):
    """What a worker needs to compare caches."""

    decodings: tuple[Decoding, ...]
    caches: tuple[str, ...]

    def open(self, loaded: Denoiser) -> CacheWorker:
        """With the checkpoint."""
        return CacheWorker(loaded, self.decodings, self.caches)
