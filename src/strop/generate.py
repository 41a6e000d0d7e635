"""The only loop over outputs: from a denoiser and a sampler's settings to a pool, in memory or on
disk, continued where it stopped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from strop.batches import AUTO, BatchSize, checked_batch, default_batch, halving, largest_batch
from strop.denoisers import Model, load_model
from strop.denoisers.base import usable_length
from strop.denoisers.prompting import Prompts, canvases_of, pieces_of
from strop.errors import UserError, whole_number
from strop.pool import OnStep, Output, Pool
from strop.progress import Progress, Silent
from strop.prompts import Bos, Canvas, Canvases, PromptSet
from strop.records import default_sampler
from strop.samplers import check_model, dense_batch, fast
from strop.session import new_session
from strop.spec import (
    OUTPUT_LIMIT,
    SAMPLERS,
    SEED_LIMIT,
    CellSpec,
    DenseBatch,
    GeneratorSpec,
    PromptSpec,
    SamplerSpec,
)
from strop.store import Cell, Run

__all__ = [
    "UNSAID",
    "Progress",
    "cell_spec",
    "outputs_of",
    "sample",
    "sample_cells",
]

UNSAID: Any = object()
"""No number of outputs was asked for: what that means depends on whether there are prompts."""
FLUSH_SECONDS = 2.0


def sample(
    denoiser: Model | str | os.PathLike[str],
    spec: SamplerSpec | None = None,
    *,
    n: int = UNSAID,
    seed: int = 0,
    batch_size: BatchSize | None = None,
    length: int | None = None,
    prompts: Prompts | None = None,
    per_prompt: int | None = None,
    chat: bool = False,
    shots: PromptSet | str | os.PathLike[str] | None = None,
    bos: Bos = "tokenizer",
    out: str | os.PathLike[str] | None = None,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress | None = None,
    on_step: OnStep | None = None,
) -> Pool:
    """Draw n outputs of the generator (denoiser, spec) under a seed; one, if nothing is said.

    With `prompts` (a file, a `PromptSet`, texts, or canvases) output i answers prompt i mod P, and
    `per_prompt` says how many each gets: one, if nothing is said. `length` then counts the tokens
    that follow a prompt; without it every prompt has gaps. `chat` puts prompts into the tokenizer's
    own template, `shots` puts worked examples before them; see `strop.prompts`.

    With `out` the outputs go to that run directory, and calling again continues it. `device` and
    `dtype` count only where `denoiser` is a source to load. `on_step` is called whenever tokens of
    an output that is drawn now change.
    """
    if isinstance(denoiser, (str, os.PathLike)):
        denoiser = load_model(denoiser, device=device, dtype=dtype)
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
    pools = sample_cells(
        denoiser,
        [SamplerSpec(name=default_sampler(denoiser.spec.family)) if spec is None else spec],
        n=outputs_of(canvases, n, per_prompt, default=1),
        seed=seed,
        batch_size=batch_size,
        length=length,
        canvases=canvases,
        out=out,
        progress=progress,
        on_step=on_step,
    )
    return pools[0]


def outputs_of(canvases: Canvases | None, n: int, per_prompt: int | None, *, default: int) -> int:
    """How many outputs a cell gets: `n` of them, or `per_prompt` for each prompt."""
    if per_prompt is None:
        return (default if canvases is None else canvases.outputs(1)) if n is UNSAID else n
    if canvases is None or n is not UNSAID:
        raise UserError(
            "There are two numbers of outputs." if canvases else "There are no prompts.",
            where="`per_prompt`",
            got=f"`per_prompt` {per_prompt}" + ("" if n is UNSAID else f" and `n` {n}"),
            fix="leave out `n`" if canvases else "say `n`, or say `prompts`",
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
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    grow: bool = False,
    progress: Progress | None = None,
    on_step: OnStep | None = None,
) -> list[Pool]:
    """One pool per sampler, all from one denoiser and one seed; `n` for all or one per sampler.

    With `canvases` outputs answer prompts, and these say how many tokens they have. A run that may
    `grow` keeps the cells that it has beside these.
    """
    progress = Silent() if progress is None else progress
    counts = [whole_number("n", one, 1, OUTPUT_LIMIT) for one in _per_spec(n, len(specs))]
    seed = whole_number("seed", seed, 0, SEED_LIMIT)
    batch_size = checked_batch(batch_size, specs)
    length = usable_length(denoiser, length) if canvases is None else canvases.length
    for spec in specs:
        check_model(denoiser, spec)
    specs = [_with_steps(spec, length) for spec in specs]
    positions = length if canvases is None else canvases.positions
    auto = batch_size == AUTO
    usual = largest_batch if auto else default_batch
    given = None if auto else batch_size
    sizes = [given or usual(denoiser, spec, positions) for spec in specs]
    prompts = None if canvases is None else canvases.spec
    cells = [
        cell_spec(
            denoiser, spec, n=count, seed=seed, batch_size=size, length=length, prompts=prompts
        )
        for spec, count, size in zip(specs, counts, sizes, strict=True)
    ]
    work = _Work(denoiser, canvases, progress, on_step, auto)
    if out is None:
        return [
            _in_memory(work, cell, count, size)
            for cell, count, size in zip(cells, counts, sizes, strict=True)
        ]
    asked = _asked(denoiser, specs, max(counts, default=0), seed, length, batch_size)
    if len(set(counts)) > 1:
        asked["outputs"] = counts
    if prompts is not None:
        asked["prompts"] = prompts.model_dump(mode="json")
    run = Run.prepare(out, asked, cells, force=force, grow=grow)
    if canvases is not None:
        # Rows of the same ids under other names keep the names that outputs here have already.
        kept = run.keep_prompts(canvases, pieces_of(denoiser, canvases))
        work = replace(work, canvases=kept.canvases)
    mine = [run.cell(cell.id) for cell in cells]
    on_disk = list(zip(mine, counts, sizes, strict=True))
    # Another process may be at work here: take what is free first, then wait for the rest.
    waiting = on_disk
    for wait in (False, True):
        taken = []
        for cell, count, size in waiting:
            if wait:
                progress.waiting(cell.spec)
            with cell.writing(wait=wait) as mine:
                if mine:
                    _to_disk(work, cell, count, size)
                else:
                    taken.append((cell, count, size))
        waiting = taken
    return [cell.pool(count) for cell, count, _ in on_disk]


@dataclass(frozen=True)
class _Work:
    """What all cells of a call share."""

    denoiser: Model
    canvases: Canvases | None
    progress: Progress
    on_step: OnStep | None
    auto: bool
    """Whether a batch that does not fit is halved."""


def cell_spec(
    denoiser: Model,
    sampler: SamplerSpec,
    *,
    n: int,
    seed: int,
    batch_size: int,
    length: int,
    prompts: PromptSpec | None = None,
) -> CellSpec:
    """What determines the outputs; the batch belongs to it only where it shares random numbers."""
    batch = None
    if sampler.implementation == "dense":
        size = min(batch_size, n)
        batch = DenseBatch(size=size, ragged_total=n if n % size else None)
    generator = GeneratorSpec(
        checkpoint=denoiser.spec, sampler=sampler, length=length, prompts=prompts
    )
    return CellSpec(generator=generator, seed=seed, batch=batch)


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


def _with_steps(spec: SamplerSpec, length: int) -> SamplerSpec:
    """A causal sampler has a step per token, so its steps are known once the length is."""
    if SAMPLERS[spec.name].causal and spec.steps == 0:
        return spec.model_copy(update={"steps": length})
    return spec


def _not_a(name: str, value: Any, expected: str) -> UserError:
    kind = type(value).__name__
    return UserError(f"The argument {name!r} is of a wrong kind.", got=kind, expected=expected)


def _asked(
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


def _in_memory(work: _Work, cell: CellSpec, n: int, batch_size: int) -> Pool:
    work.progress.start(cell, n, 0)
    session = new_session(work.denoiser)
    outputs = []
    for one in _outputs(work, cell, range(n), n, batch_size):
        outputs.append(one)
        work.progress.advance(1, len(one.ids))
    session |= {"outputs": n, "seconds": sum(one.seconds for one in outputs)}
    return Pool.of(cell, outputs, [session])


def _to_disk(work: _Work, cell: Cell, n: int, batch_size: int) -> None:
    """Draw what is missing, making it durable every few seconds."""
    cell.sessions()  # a damaged record is better found before hours of work than after
    done = cell.indices()
    missing = [index for index in range(n) if index not in done]
    work.progress.start(cell.spec, n, n - len(missing))
    if not missing:
        cell.merge()
        return
    session = {**new_session(work.denoiser), "outputs": 0, "seconds": 0.0}
    waiting: list[Output] = []
    last = time.monotonic()

    def flush() -> None:
        nonlocal last
        cell.add(waiting)
        session["outputs"] += len(waiting)
        session["seconds"] += sum(one.seconds for one in waiting)
        waiting.clear()  # before anything else can fail: they are on disk, and counted once
        last = time.monotonic()
        cell.record(session)

    try:
        for one in _outputs(work, cell.spec, missing, n, batch_size):
            waiting.append(one)
            work.progress.advance(1, len(one.ids))
            if time.monotonic() - last > FLUSH_SECONDS:
                flush()
    finally:
        if waiting:  # also when interrupted: what is finished is kept
            flush()
    cell.merge()


def _outputs(
    work: _Work, cell: CellSpec, indices: Sequence[int], n: int, batch_size: int
) -> Iterator[Output]:
    """The outputs of a cell that are missing, with their texts and the prompts they answer."""
    codec, mask_id = work.denoiser.codec, work.denoiser.mask_id

    def text(ids: Sequence[int]) -> str:
        return "" if codec is None else codec.decode(ids, mask_id=mask_id)

    for one in _draws(work, cell, indices, n, batch_size):
        if work.canvases is None:
            yield replace(one, text=None if codec is None else text(one.ids.tolist()))
            continue
        canvas = work.canvases.prompt_of(one.index)
        pieces = tuple(text(part) for part in _gaps(canvas, one.ids.tolist()))
        words = {} if codec is None else {"text": "".join(pieces), "pieces": pieces}
        yield replace(one, prompt=canvas.id, **words)


def _gaps(canvas: Canvas, response: Sequence[int]) -> Iterator[Sequence[int]]:
    """The response cut at what is given: a character never reaches across it."""
    start = 0
    for size in (len(part) for part in canvas.stretches if part[0] is None):
        yield response[start : start + size]
        start += size


def _draws(
    work: _Work, cell: CellSpec, indices: Sequence[int], n: int, batch_size: int
) -> Iterable[Output]:
    if cell.batch is not None:
        return _dense_draws(work, cell, cell.batch.size, set(indices), n)

    def draw(some: Sequence[int], slots: int) -> Iterable[Output]:
        return fast(
            work.denoiser,
            cell.generator.sampler,
            seed=cell.seed,
            outputs=some,
            slots=slots,
            length=cell.generator.length,
            on_step=work.on_step,
            canvases=work.canvases,
        )

    return halving(draw, indices, batch_size, auto=work.auto)


def _dense_draws(
    work: _Work, cell: CellSpec, size: int, wanted: set[int], n: int
) -> Iterator[Output]:
    """Whole batches, because their outputs share random numbers; only missing ones are kept."""
    on_step = work.on_step

    def tell(output: int, *what: Any) -> None:
        if on_step is not None and output in wanted:
            on_step(output, *what)

    for first in range(0, n, size):
        count = min(size, n - first)
        if wanted.isdisjoint(range(first, first + count)):
            continue
        for one in dense_batch(
            work.denoiser,
            cell.generator.sampler,
            seed=cell.seed,
            first=first,
            count=count,
            length=cell.generator.length,
            on_step=None if on_step is None else tell,
            canvases=work.canvases,
        ):
            if one.index in wanted:
                yield one
