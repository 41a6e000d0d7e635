"""The only loop over outputs: from a denoiser and a sampler's settings to a pool, in memory or on
disk, continued where it stopped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from strop.denoisers import Model, load_model
from strop.denoisers.base import usable_length
from strop.denoisers.load import ServedModel
from strop.denoisers.prompting import Prompts, canvases_of, pieces_of
from strop.draw.served import ServedWorker
from strop.draw.worker import (
    AUTO,
    BatchSize,
    CellDraw,
    DrawJob,
    DrawWorker,
    batches_of,
    checked_batch,
    default_batch,
    largest_batch,
    recipe_of,
    unit_of_auto,
    what_to_load,
)
from strop.engine.plan import LOCAL, Engine, Progress, cut, refuse_missing, stop_if_planning
from strop.engine.sink import MemoryRows, OutputRows, Sink
from strop.engine.workers import Worker, run_units
from strop.errors import UserError, whole_number
from strop.pool import OnStep, Pool
from strop.prompts.canvas import Canvases
from strop.prompts.rows import Bos, PromptSet
from strop.records.record import SAMPLERS, default_sampler
from strop.runtime import bounded_batch, bounded_outputs
from strop.samplers import check_model
from strop.spec.generator import CellSpec, GeneratorSpec, SamplerSpec
from strop.spec.value import OUTPUT_LIMIT, SEED_LIMIT
from strop.store import Cell, Run

__all__ = ["Progress", "outputs_of", "sample", "sample_cells"]

TRIAL_STEPS = 4
"""Updates of a trial: what a network call costs does not depend on how many there are."""


class DrawOptions(TypedDict, total=False):
    """How `sample_cells` draws."""

    seed: int
    batch_size: BatchSize | None
    out: str | os.PathLike[str] | None
    progress: Progress | None
    on_step: OnStep | None


class Kept(TypedDict, total=False):
    """Where outputs are kept, and what becomes of what is there."""

    out: str | os.PathLike[str] | None
    force: bool
    """Delete what is there and begin again."""
    grow: bool
    """Keep the cells that a run has beside these."""


def sample(
    denoiser: Model | str | os.PathLike[str],
    spec: SamplerSpec | None = None,
    *,
    n: int | None = None,
    length: int | None = None,
    prompts: Prompts | None = None,
    per_prompt: int | None = None,
    chat: bool = False,
    shots: PromptSet | str | os.PathLike[str] | None = None,
    bos: Bos = "tokenizer",
    device: str = "auto",
    dtype: str = "auto",
    engine: Engine | str = LOCAL,
    **drawing: Unpack[DrawOptions],
) -> Pool:
    """Draw n outputs of the generator (denoiser, spec) under a seed; one, if nothing is said.

    With `prompts` (a file, a `PromptSet`, texts, or canvases) output i answers prompt i mod P, and
    `per_prompt` says how many each gets: one, if nothing is said. `length` then counts the tokens
    that follow a prompt without gaps; left out, every prompt has gaps. `chat` puts prompts into the
    tokenizer's own template, `shots` puts worked examples before them; see `strop.prompts`.

    With `out` the outputs go to that run directory, and calling again continues it. `device` and
    `dtype` count only where `denoiser` is a source to load. `on_step` is called whenever tokens of
    an output that is drawn now change. `engine` says where outputs are drawn (`strop.engine`).
    """
    engine = Engine.of(engine)
    if isinstance(denoiser, (str, os.PathLike)):
        denoiser = load_model(denoiser, device=engine.at_home(device), dtype=dtype)
    elif not isinstance(denoiser, Model):
        raise _not_a("denoiser", denoiser, "a denoiser, or a source that load_model knows")
    if spec is not None and not isinstance(spec, SamplerSpec):
        raise _not_a("spec", spec, "a SamplerSpec, e.g. strop.SamplerSpec(steps=64)")
    canvases = None
    if prompts is not None:
        canvases = canvases_of(denoiser, prompts, length=length, chat=chat, shots=shots, bos=bos)
    elif chat or shots is not None:
        raise UserError(
            "There are no prompts to put into a template.", where="`prompts`", fix="say `prompts`"
        )
    specs = [SamplerSpec(name=default_sampler(denoiser.spec.family)) if spec is None else spec]
    count = outputs_of(canvases, n, per_prompt, default=1)
    pools = sample_cells(
        denoiser, specs, n=count, length=length, canvases=canvases, engine=engine, **drawing
    )
    return pools[0]


def outputs_of(
    canvases: Canvases | None, n: int | None, per_prompt: int | None, *, default: int
) -> int:
    """How many outputs a cell gets: `n` of them, or `per_prompt` for each prompt.

    Where neither is given, one for each prompt, or `default` without prompts.
    """
    if per_prompt is None:
        return (default if canvases is None else canvases.outputs(1)) if n is None else n
    if canvases is None or n is not None:
        raise UserError(
            "There are two numbers of outputs." if canvases else "There are no prompts.",
            where="`per_prompt`",
            got=f"`per_prompt` {per_prompt}" + ("" if n is None else f" and `n` {n}"),
            fix="leave out `n`" if canvases else "give `n` or `prompts`",
        )
    return canvases.outputs(per_prompt)


def sample_cells(
    denoiser: Model,
    specs: Sequence[SamplerSpec],
    *,
    n: int | Sequence[int],
    seed: int = 0,
    batch_size: BatchSize | None = None,
    length: int | None = None,
    canvases: Canvases | None = None,
    progress: Progress | None = None,
    on_step: OnStep | None = None,
    engine: Engine | str = LOCAL,
    **keeping: Unpack[Kept],
) -> list[Pool]:
    """One pool per sampler, all from one denoiser and one seed; `n` for all or one per sampler.

    With `canvases` outputs answer prompts, and these say how many tokens they have. With a shard as
    `engine`, an `Incomplete` names what other shards have not drawn yet.
    """
    engine, (out, force, grow) = Engine.of(engine), _where_kept(**keeping)
    engine.refuse_force(force)
    counts = [
        whole_number("n", n_outputs, 1, OUTPUT_LIMIT) for n_outputs in _per_spec(n, len(specs))
    ]
    bounded_outputs(counts)
    seed = whole_number("seed", seed, 0, SEED_LIMIT)
    batch_size = checked_batch(batch_size, specs, sharded=engine.shard is not None)
    length = usable_length(denoiser, length) if canvases is None else canvases.length
    for spec in specs:
        check_model(denoiser, spec)
    specs = [spec.for_length(length) for spec in specs]
    positions = length if canvases is None else canvases.positions
    sizes = _unit_sizes(denoiser, specs, counts, batch_size, positions, engine)
    prompts = None if canvases is None else canvases.spec
    draws = []
    for spec, count, size in zip(specs, counts, sizes, strict=True):
        generator = GeneratorSpec.of(denoiser.spec, spec, length, prompts)
        cell = CellSpec.of(generator, seed, n=count, batch_size=size)
        draws.append(CellDraw(cell, count, size, batch_size == AUTO))
    cells = [draw.cell for draw in draws]
    if draws:
        stop_if_planning(Planned(denoiser, canvases, draws))
    work = _Work(denoiser, canvases, draws, engine, progress, on_step)
    if out is None:
        if engine.shard is not None:
            raise UserError("Shards need an output directory.", where="`shard`", fix="give `out`")
        in_memory = [MemoryRows(cell) for cell in cells]
        work.into(in_memory)
        return [rows.pool() for rows in in_memory]
    request = _request_document(denoiser, specs, max(counts, default=0), seed, length, batch_size)
    if len(set(counts)) > 1:
        request["outputs"] = counts
    if prompts is not None:
        request["prompts"] = prompts.model_dump(mode="json")
    if not force and (complete_pools := _read_only(Path(out), cells, counts)) is not None:
        return complete_pools
    run = Run.prepare(out, request, cells, force=force, grow=grow)
    if denoiser.spec.family == "language":
        run.keep_grammar(denoiser.grammar)  # type: ignore[attr-defined]
    if canvases is not None:
        # Rows of the same ids under other names keep the names that outputs here have already.
        canvases = run.keep_prompts(canvases, pieces_of(denoiser, canvases)).canvases
    on_disk = [run.cell(cell.id) for cell in cells]
    replace(work, canvases=canvases).into([OutputRows(cell) for cell in on_disk])
    if engine.shard is not None:
        _refuse_incomplete(run, on_disk, counts)
    return [cell.pool(count) for cell, count in zip(on_disk, counts, strict=True)]


def _where_kept(
    out: str | os.PathLike[str] | None = None, force: bool = False, grow: bool = False
) -> tuple[str | os.PathLike[str] | None, bool, bool]:
    return out, force, grow


def _unit_sizes(
    denoiser: Model,
    specs: Sequence[SamplerSpec],
    counts: list[int],
    batch_size: BatchSize | None,
    positions: int,
    engine: Engine,
) -> list[int]:
    """How many outputs of each cell a worker draws at a time."""
    if isinstance(denoiser, ServedModel):
        _refuse_workers(engine)
        return counts  # one unit a cell: requests of a unit go side by side, units one by one
    if batch_size == AUTO and denoiser.device.type == "meta":  # its workers will see how many fit
        return [unit_of_auto(count, len(engine.places())) for count in counts]
    if isinstance(batch_size, int):
        bounded_batch(batch_size, positions)
        return [batch_size] * len(specs)
    usual = largest_batch if batch_size == AUTO else default_batch
    return [usual(denoiser, spec, positions) for spec in specs]


def _read_only(path: Path, cells: Sequence[CellSpec], counts: Sequence[int]) -> list[Pool] | None:
    """The outputs of a complete run that cannot be written to; None for any other."""
    as_we_are = os.access in os.supports_effective_ids
    if not path.is_dir() or os.access(path, os.W_OK, effective_ids=as_we_are):
        return None
    stored_cells = {cell.id: cell for cell in Run.open(path).cells()}
    for spec, count in zip(cells, counts, strict=True):
        if spec.id not in stored_cells or not set(range(count)) <= stored_cells[spec.id].indices():
            return None
    return [stored_cells[spec.id].pool(count) for spec, count in zip(cells, counts, strict=True)]


@dataclass(frozen=True)
class Planned:
    """The cells of a call."""

    denoiser: Model
    canvases: Canvases | None
    cells: Sequence[CellDraw]

    def running(self) -> Model:
        """The model where it can draw; if workers load its weights, only a description is here."""
        if self.denoiser.device.type != "meta":
            return self.denoiser
        return recipe_of(self.denoiser).model("auto")

    def pace(self, seconds: float) -> float:
        """Seconds per output and network call, from batches that grow until the time is used up."""
        first_cell = self.cells[0]
        spec = _trial_sampler(first_cell.cell.generator.sampler)
        length = None if self.canvases is not None else first_cell.cell.generator.length
        most, size, began = max(1, min(first_cell.n, first_cell.size)), 1, time.monotonic()
        while True:
            start = time.monotonic()
            [pool] = sample_cells(
                self.denoiser, [spec], n=size, length=length, canvases=self.canvases
            )
            took = time.monotonic() - start
            if size == most or time.monotonic() - began + 2 * took > seconds:
                return took / max(int(pool.nfe.sum()), 1)
            size = min(2 * size, most)


def _trial_sampler(sampler: SamplerSpec) -> SamplerSpec:
    """The sampler with few updates, where it allows few."""
    if SAMPLERS[sampler.name].causal or sampler.grid != "uniform" or sampler.steps <= TRIAL_STEPS:
        return sampler
    try:
        return SamplerSpec(**{**sampler.model_dump(), "steps": TRIAL_STEPS})
    except UserError:  # blocks that need more
        return sampler


@dataclass(frozen=True)
class _Work(Planned):
    """And what all of them share."""

    engine: Engine
    progress: Progress | None
    on_step: OnStep | None

    def into(self, rows: Sequence[MemoryRows]) -> None:
        """Draw the outputs that the cells lack."""
        plan = cut(batches_of(self.denoiser, self.cells, self.canvases))
        sink = Sink(self.engine.own(plan), rows, self.progress)
        run_units(
            sink,
            lambda: self._local_worker([cell_rows.folder for cell_rows in rows]),
            self._job,
            self.engine,
        )

    def _local_worker(self, folders: Sequence[Path | None]) -> Worker:
        if isinstance(self.denoiser, ServedModel):
            return ServedWorker(self.denoiser, self.cells, self.canvases, folders)
        return DrawWorker(self.denoiser, self.cells, self.canvases, self.on_step)

    def _job(self) -> DrawJob:
        """The job for workers that draw instead of this process."""
        if self.on_step is not None:
            raise UserError(
                "Only a sampler in this process can be watched.",
                where="`on_step`",
                fix="use `engine=local`",
            )
        return DrawJob(*what_to_load(self.denoiser), tuple(self.cells), self.canvases)


def _refuse_incomplete(run: Run, cells: Sequence[Cell], counts: Sequence[int]) -> None:
    """Raise `Incomplete` if other shards have not drawn everything yet."""
    missing = {
        cell.id: set(range(count)) - cell.indices()
        for cell, count in zip(cells, counts, strict=True)
    }
    refuse_missing(run.path, missing)


def _refuse_workers(engine: Engine) -> None:
    if engine.parallel or engine.shard is not None:
        raise UserError(
            "A served model is called from one process only.",
            where="`shard`" if engine.shard is not None else "`engine`",
            fix="leave it out; `concurrency` says how many requests are under way at once",
        )


def _per_spec(n: int | Sequence[int], specs: int) -> Sequence[int]:
    """The number of outputs of each cell."""
    if not isinstance(n, (list, tuple)):
        return [n] * specs  # pyright: ignore[reportReturnType]  # whole_number tells a wrong kind
    if len(n) != specs:
        raise UserError(
            "The numbers of outputs do not match the samplers.",
            where="n",
            got=f"{len(n)} numbers for {specs} samplers",
            expected="one number for all, or one per sampler",
        )
    return n


def _not_a(name: str, value: Any, expected: str) -> UserError:
    kind = type(value).__name__
    return UserError(f"The argument {name!r} has the wrong type.", got=kind, expected=expected)


def _request_document(
    denoiser: Model,
    specs: Sequence[SamplerSpec],
    n: int,
    seed: int,
    length: int,
    batch_size: BatchSize | None,
) -> dict[str, Any]:
    return {
        "checkpoint": denoiser.source,
        "weights": denoiser.spec.model_dump(mode="json"),
        "samplers": [spec.model_dump(mode="json") for spec in specs],
        "n": n,
        "seed": seed,
        "length": length,
        "batch_size": batch_size,
    }
