"""From a denoiser to token ids: one algorithm per file, the categorical draw in one place.

`dense_batch` follows the public codes; `fast` has the same law at a fraction of the cost.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import torch

from strop.denoisers.base import Denoiser
from strop.rng import derive_seed
from strop.samplers import (
    analytic,
    ancestral,
    didi,
    didi_fast,
    duo,
    sedd,
    sedd_fast,
    uniform_fast,
    uniform_state,
)
from strop.samplers.dense import DenseRun, DenseSampler
from strop.samplers.grid import reveal_grid
from strop.samplers.lattice import BITS
from strop.samplers.lattice_race import LatticeRace
from strop.samplers.lockstep import LockstepSampler, lockstep
from strop.samplers.packed import Finished, Packed
from strop.samplers.reveal_first import RevealFirst
from strop.spec import SamplerSpec

__all__ = ["DENSE", "LOCKSTEP", "Finished", "dense_batch", "fast"]

DENSE: dict[str, DenseSampler] = {
    "ancestral": ancestral.cached,
    "ancestral-uncached": ancestral.uncached,
    "analytic": analytic.analytic,
    "ancestral-duo": duo.ancestral,
    "analytic-duo": duo.analytic,
    "sedd-analytic": sedd.analytic,
    "sedd-euler": sedd.euler,
    "sedd-analytic-duo": sedd.analytic_duo,
    "duo-ancestral": uniform_state.ancestral,
    "didi-guided": didi.guided,
    "didi-ancestral": didi.ancestral,
    "didi-guided-literal": didi.guided_literal,
    "didi-ancestral-literal": didi.ancestral_literal,
}

LOCKSTEP: dict[str, LockstepSampler] = {
    "sedd-analytic": sedd_fast.analytic,
    "sedd-euler": sedd_fast.euler,
    "duo-ancestral": uniform_fast.ancestral,
    "didi-guided": didi_fast.guided,
    "didi-ancestral": didi_fast.ancestral,
}
"""Fast forms of samplers that go through all updates together."""


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
    calls = run.calls + run.judge_calls
    return [
        Finished(first + i, row, calls, seconds, int((row == denoiser.mask_id).sum()))
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
    if spec.name in LOCKSTEP:
        return lockstep(
            LOCKSTEP[spec.name],
            denoiser,
            spec,
            seed=seed,
            outputs=outputs,
            slots=slots,
            length=length,
            bits=bits,
        )
    packed = Packed(denoiser, spec, reveal_grid(spec), slots, length)
    law = (
        RevealFirst(packed, seed)
        if spec.precision == "float64"
        else LatticeRace(packed, seed, bits)
    )
    return packed.run(outputs, law)
