"""From a denoiser to token ids: one algorithm per file, found through its record.

`dense_batch` follows the public codes; `fast` has the same law at a fraction of the cost. What both
are made of (the reveal grid, the categorical draw, the loops) is in `machinery`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch

from strop.denoisers.base import CausalModel, Denoiser, Model, PaddingDenoiser
from strop.errors import UserError
from strop.pool import OnStep, Output
from strop.prompts.canvas import Canvases
from strop.records.record import SAMPLERS, default_sampler
from strop.registry import resolve
from strop.rng import derive_seed
from strop.samplers.machinery.categorical import Normalisers
from strop.samplers.machinery.dense import DenseRun, DenseSampler
from strop.samplers.machinery.packed import FastDraw, FastSampler
from strop.samplers.machinery.start import by_shape, reveal_grid
from strop.spec.generator import SamplerSpec, check_prompts

__all__ = ["batches", "check_model", "dense_batch", "fast"]


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
    if model.spec.family == record.family == "served":
        return
    if isinstance(model, CausalModel if record.causal else Denoiser):
        return
    kind = "a causal language model" if record.causal else "a masked denoiser"
    raise UserError(
        f"The sampler {spec.name!r} needs {kind}.",
        where=model.source,
        got=f"a checkpoint of the family {model.spec.family!r}",
        fix=f"use `sampler={default_sampler(model.spec.family)}`",
    )


def _pads(model: Model, spec: SamplerSpec) -> bool:
    """Whether shorter sequences may join a batch; a plug-in may not expect it."""
    record = SAMPLERS[spec.name]
    built_in = record.version is None and record.padding
    return built_in and isinstance(model, PaddingDenoiser) and not model.time_conditioned


def batches(
    model: Model,
    spec: SamplerSpec,
    outputs: Sequence[int],
    size: int,
    *,
    canvases: Canvases | None = None,
) -> list[Sequence[int]]:
    """The outputs in groups of up to `size` that a fast sampler can draw in one batch."""
    groups: list[Sequence[int]] = [outputs]
    if canvases is not None:
        shapes = by_shape(canvases, outputs, padding=_pads(model, spec))
        groups = [group for _, group in shapes]
    return [group[k : k + size] for group in groups for k in range(0, len(group), size)]


def _check(model: Model, spec: SamplerSpec, canvases: Canvases | None) -> None:
    check_model(model, spec)
    if canvases is not None:
        check_prompts(spec.name, canvases.spec)


def dense_batch(
    denoiser: Model,
    spec: SamplerSpec,
    *,
    seed: int,
    first: int,
    count: int,
    length: int,
    on_step: OnStep | None = None,
    canvases: Canvases | None = None,
) -> list[Output]:
    """Outputs first .. first + count - 1, drawn together from one generator, where `noise` says.

    The generator of the first batch has the seed itself, as a user of the public code would set it.
    With `canvases` outputs answer prompts, and those of one shape share a generator; `length`
    counts for nothing then.
    """
    _check(denoiser, spec, canvases)
    outputs = range(first, first + count)
    groups = [(length, [*outputs])] if canvases is None else by_shape(canvases, outputs)
    done = [
        output
        for positions, group in groups
        for output in _dense_group(denoiser, spec, seed, group, positions, on_step, canvases)
    ]
    return sorted(done, key=lambda output: output.index)


def _dense_group(
    denoiser: Model,
    spec: SamplerSpec,
    seed: int,
    outputs: Sequence[int],
    length: int,
    on_step: OnStep | None,
    canvases: Canvases | None,
) -> list[Output]:
    """Sequences of one length, which share random numbers."""
    device = denoiser.device if spec.noise == "device" else torch.device("cpu")
    generator, first = torch.Generator(device), outputs[0]
    generator.manual_seed(seed if first == 0 else derive_seed(seed, "dense", first))
    # A causal model takes the denoiser's place: its sampler knows.
    model, numbers = cast(Denoiser, denoiser), np.array(outputs, np.int64)
    grid = reveal_grid(spec)
    run = DenseRun(model, spec, grid, numbers, length, on_step, canvases, generator=generator)
    sampler: DenseSampler = resolve(SAMPLERS[spec.name].form("dense"))
    traced = Normalisers().fetched(sampler(run), run.trace.chance)
    shared = np.full(run.batch, run.calls + run.judge_calls)
    return list(run.done(*traced, shared if run.row_calls is None else run.row_calls))


def fast(
    denoiser: Model,
    spec: SamplerSpec,
    *,
    seed: int,
    outputs: Iterable[int],
    slots: int,
    length: int,
    on_step: OnStep | None = None,
    canvases: Canvases | None = None,
) -> Iterator[Output]:
    """The given outputs, in the order in which they are finished.

    With `canvases` they answer prompts, those of one shape together, or of like lengths where the
    network can tell padding from text; `length` counts for nothing then.
    """
    _check(denoiser, spec, canvases)
    sampler: FastSampler = resolve(SAMPLERS[spec.name].form("fast"))
    draw = FastDraw(denoiser, spec, seed, outputs, slots, length, on_step, canvases)
    if canvases is None:
        return sampler(draw)
    return (
        output
        for positions, group in by_shape(canvases, outputs, padding=_pads(denoiser, spec))
        for output in sampler(
            replace(draw, outputs=group, slots=min(slots, len(group)), length=positions)
        )
    )
