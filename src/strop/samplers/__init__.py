"""From a denoiser to token ids: one algorithm per file, the categorical draw in one place.

`dense_batch` follows the public codes; `fast` has the same law at a fraction of the cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import torch

from strop.denoisers.base import Denoiser
from strop.rng import derive_seed
from strop.samplers import analytic, ancestral, duo, remdm
from strop.samplers.dense import DenseRun, DenseSampler
from strop.samplers.grid import reveal_grid
from strop.samplers.lattice import BITS
from strop.samplers.lattice_race import LatticeRace
from strop.samplers.packed import Finished, Law, Packed
from strop.samplers.reveal_first import RevealFirst
from strop.samplers.revising import Revising
from strop.spec import SamplerSpec

__all__ = ["DENSE", "Finished", "dense_batch", "fast"]

DENSE: dict[str, DenseSampler] = {
    "ancestral": ancestral.cached,
    "ancestral-uncached": ancestral.uncached,
    "analytic": analytic.analytic,
    "ancestral-duo": duo.ancestral,
    "analytic-duo": duo.analytic,
    "ancestral-remdm": ancestral.cached,
    "remdm-cap": remdm.remdm,
    "remdm-rescale": remdm.remdm,
    "remdm-conf": remdm.remdm,
    "remdm-loop": remdm.remdm,
}


def _ancestral(packed: Packed, seed: int, bits: int) -> Law:
    if packed.spec.precision == "float64":
        return RevealFirst(packed, seed)
    return LatticeRace(packed, seed, bits)


FAST: dict[str, Callable[[Packed, int, int], Law]] = {
    "ancestral": _ancestral,
    "ancestral-remdm": _ancestral,
    "remdm-cap": Revising,
    "remdm-rescale": Revising,
    "remdm-conf": Revising,
    "remdm-loop": Revising,
}


def dense_batch(
    denoiser: Denoiser,
    spec: SamplerSpec,
    *,
    seed: int,
    first: int,
    count: int,
    length: int,
    bits: int = BITS,
) -> list[Finished]:
    """Outputs first .. first + count - 1, drawn together from one CPU generator.

    The generator of the first batch has the seed itself, as a user of the public code would set it.
    """
    generator = torch.Generator()
    generator.manual_seed(seed if first == 0 else derive_seed(seed, "dense", first))
    run = DenseRun(denoiser, spec, reveal_grid(spec), generator, count, length, bits)
    start = time.perf_counter()
    ids = DENSE[spec.name](run).cpu().numpy()
    seconds = (time.perf_counter() - start) / count
    return [
        Finished(first + i, row, run.calls, seconds, int((row == denoiser.mask_id).sum()))
        for i, row in enumerate(ids)
    ]


def fast(
    denoiser: Denoiser,
    spec: SamplerSpec,
    *,
    seed: int,
    outputs: Iterable[int],
    slots: int,
    length: int,
    bits: int = BITS,
) -> Iterator[Finished]:
    """The given outputs, in the order in which they are finished."""
    packed = Packed(denoiser, spec, reveal_grid(spec), slots, length)
    return packed.run(outputs, FAST[spec.name](packed, seed, bits))
