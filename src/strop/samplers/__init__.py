"""From a denoiser to token ids: one algorithm per file, the categorical draw in one place.

`dense_batch` follows the public codes; `fast` has the same law at a fraction of the cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from strop.denoisers.base import CausalModel, Denoiser, Model
from strop.errors import UserError
from strop.facts import default_sampler
from strop.rng import derive_seed
from strop.samplers import (
    analytic,
    ancestral,
    autoregressive,
    didi,
    didi_fast,
    duo,
    remdm,
    sedd,
    sedd_fast,
    uniform_fast,
    uniform_state,
)
from strop.samplers.lattice_race import LatticeRace
from strop.samplers.machinery.dense import DenseRun, DenseSampler
from strop.samplers.machinery.grid import reveal_grid
from strop.samplers.machinery.lattice import BITS
from strop.samplers.machinery.lockstep import LockstepSampler, lockstep
from strop.samplers.machinery.packed import Finished, Law, Packed
from strop.samplers.reveal_first import RevealFirst
from strop.samplers.revising import Revising
from strop.spec import SAMPLERS, SamplerSpec

__all__ = ["DENSE", "FAST", "LOCKSTEP", "Finished", "check_model", "dense_batch", "fast"]

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
    "autoregressive": autoregressive.dense,
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


def check_model(model: Model, spec: SamplerSpec) -> None:
    """Refuse a sampler that asks for another kind of model."""
    causal = SAMPLERS[spec.name].causal
    if isinstance(model, CausalModel if causal else Denoiser):
        return
    wanted = "a causal language model" if causal else "a masked denoiser"
    raise UserError(
        f"The sampler {spec.name!r} needs {wanted}.",
        where=model.source,
        got=f"a checkpoint of the family {model.spec.family!r}",
        fix=f"use `sampler={default_sampler(model.spec.family)}`",
    )


def dense_batch(
    denoiser: Model,
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
    check_model(denoiser, spec)
    run = DenseRun(
        cast(Denoiser, denoiser), spec, reveal_grid(spec), generator, count, length, bits
    )
    start = time.perf_counter()
    ids = DENSE[spec.name](run).cpu().numpy()
    seconds = (time.perf_counter() - start) / count
    calls = run.calls + run.judge_calls
    return [
        Finished(first + i, row, calls, seconds, _masks(row, denoiser)) for i, row in enumerate(ids)
    ]


def _masks(row: NDArray[np.int64], model: Model) -> int:
    return 0 if model.mask_id is None else int((row == model.mask_id).sum())


def fast(
    denoiser: Model,
    spec: SamplerSpec,
    *,
    seed: int,
    outputs: Iterable[int],
    slots: int,
    length: int,
    bits: int = BITS,
) -> Iterator[Finished]:
    """The given outputs, in the order in which they are finished."""
    if isinstance(denoiser, CausalModel):
        return autoregressive.fast(
            denoiser, spec, seed=seed, outputs=outputs, slots=slots, length=length, bits=bits
        )
    if spec.name in LOCKSTEP:
        return lockstep(
            LOCKSTEP[spec.name],
            cast(Denoiser, denoiser),
            spec,
            seed=seed,
            outputs=outputs,
            slots=slots,
            length=length,
            bits=bits,
        )
    packed = Packed(cast(Denoiser, denoiser), spec, reveal_grid(spec), slots, length)
    return packed.run(outputs, FAST[spec.name](packed, seed, bits))
