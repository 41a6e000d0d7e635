"""From a denoiser to token ids: one algorithm per file, found through its record.

`dense_batch` follows the public codes; `fast` has the same law at a fraction of the cost. What both
are made of (the reveal grid, the categorical draw, the loops) is in `machinery`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import cast

import torch

from strop.denoisers.base import CausalModel, Denoiser, Model
from strop.errors import UserError
from strop.pool import OnStep, Output
from strop.records import SAMPLERS, default_sampler
from strop.registry import resolve
from strop.rng import derive_seed
from strop.samplers.machinery.dense import DenseRun, DenseSampler
from strop.samplers.machinery.grid import reveal_grid
from strop.samplers.machinery.job import FastSampler, Job
from strop.spec import SamplerSpec

__all__ = ["check_model", "dense_batch", "fast"]


def check_model(model: Model, spec: SamplerSpec) -> None:
    """Refuse a sampler that asks for another kind of model, or that changed since."""
    record = SAMPLERS[spec.name]
    if spec.version != record.version:
        raise UserError(
            f"The sampler {spec.name!r} has changed since these settings were written.",
            where="SamplerSpec.version",
            got=f"version {spec.version}",
            expected=f"version {record.version}, the one that is installed",
            fix="leave `version` out, or install the version that belongs to them",
        )
    if isinstance(model, CausalModel if record.causal else Denoiser):
        return
    wanted = "a causal language model" if record.causal else "a masked denoiser"
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
    on_step: OnStep | None = None,
) -> list[Output]:
    """Outputs first .. first + count - 1, drawn together from one CPU generator.

    The generator of the first batch has the seed itself, as a user of the public code would set it.
    """
    check_model(denoiser, spec)
    generator = torch.Generator()
    generator.manual_seed(seed if first == 0 else derive_seed(seed, "dense", first))
    # A causal model takes the denoiser's place: its sampler knows.
    model = cast(Denoiser, denoiser)
    run = DenseRun(model, spec, reveal_grid(spec), generator, count, length, first, on_step)
    sampler: DenseSampler = resolve(SAMPLERS[spec.name].form("dense"))
    start = time.perf_counter()
    ids = sampler(run).cpu().numpy()
    run.trace.end()
    seconds = (time.perf_counter() - start) / count
    calls, mask = run.calls + run.judge_calls, denoiser.mask_id
    return [
        Output(
            index=first + i,
            ids=row,
            nfe=calls,
            seconds=seconds,
            leftover_masks=0 if mask is None else int((row == mask).sum()),
            changed=run.trace.changed[i],
        )
        for i, row in enumerate(ids)
    ]


def fast(
    denoiser: Model,
    spec: SamplerSpec,
    *,
    seed: int,
    outputs: Iterable[int],
    slots: int,
    length: int,
    on_step: OnStep | None = None,
) -> Iterator[Output]:
    """The given outputs, in the order in which they are finished."""
    check_model(denoiser, spec)
    sampler: FastSampler = resolve(SAMPLERS[spec.name].form("fast"))
    return sampler(Job(denoiser, spec, seed, outputs, slots, length, on_step))
