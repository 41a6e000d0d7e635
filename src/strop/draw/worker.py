"""Drawing one unit's outputs with a model that is loaded here: what a worker of any engine does.

A `DrawJob` tells another process how to load the model that this process has loaded.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch

from strop.checkpoints.checkpoint import fingerprint
from strop.denoisers import Denoiser, Model
from strop.denoisers.device import ENTRY_BYTES, free_bytes, head_rows
from strop.denoisers.load import LoadRecipe
from strop.engine.sink import new_session
from strop.errors import UserError, out_of_memory, whole_number
from strop.pool import OnStep, Output
from strop.prompts.canvas import Canvas, Canvases
from strop.samplers import batches, dense_batch, fast
from strop.spec.generator import CellSpec, CheckpointSpec, SamplerSpec
from strop.spec.value import OUTPUT_LIMIT

AUTO = "auto"
BatchSize = int | Literal["auto"]
FAST_TOKENS = 8192  # tokens per network batch: eight sequences of 1,024
DENSE_ENTRIES = 2**27  # numbers in one [B, L, V] table: half a gigabyte in float32
MOST = 1024
SHARE = {"cpu": 0.5, "cuda": 0.9}
"""Of the memory that is free now."""
STATES, TABLES = 4, 3
"""Copies of a sequence's state, and of its table of scores, that are alive at a time, at most."""
CUDA_STATES = 16
"""Of the state, where the network's own layers count too, and tables do not grow with the batch."""


def checked_batch(
    batch_size: BatchSize | None, specs: Sequence[SamplerSpec], *, sharded: bool = False
) -> BatchSize | None:
    """The batch size, if it is one and the samplers take it."""
    if batch_size is None:
        return None
    if batch_size != AUTO:
        return whole_number("batch_size", batch_size, 1, OUTPUT_LIMIT)
    if any(spec.implementation == "dense" for spec in specs):
        raise UserError(
            "Outputs of a dense batch share random numbers: its size is part of what is drawn.",
            where="`batch_size`",
            got=AUTO,
            expected="a whole number, the same on every machine",
            fix="give a number, or use `implementation=fast`",
        )
    if sharded:  # they cut the same plan without asking each other
        raise UserError(
            "Shards need batches of one size, and what fits differs from machine to machine.",
            where="`batch_size`",
            got=AUTO,
            fix="give a number",
        )
    return AUTO


def default_batch(model: Model, spec: SamplerSpec, length: int) -> int:
    """The batch size by default."""
    if spec.implementation == "dense":
        return max(1, min(64, DENSE_ENTRIES // (length * model.vocab_size)))
    return max(1, min(MOST, FAST_TOKENS // length))


def largest_batch(model: Model, spec: SamplerSpec, length: int) -> int:
    """The most sequences that should fit into the memory that is free now.

    On a CPU no more than usual: there a larger batch is not faster. An estimate, from the state of
    one sequence; `Fitting` corrects it downwards.
    """
    most = default_batch(model, spec, length) if model.device.type == "cpu" else MOST
    free = free_bytes(model.device)
    if free is None:
        return most
    room = int(free * SHARE.get(model.device.type, 0.5))
    if model.device.type == "cuda":  # where the scores of all sequences together are bounded
        room -= head_rows(model.vocab_size, model.device) * model.vocab_size * ENTRY_BYTES
    return max(1, min(most, room // _bytes(model, length)))


def _bytes(model: Model, length: int) -> int:
    """Bytes of one sequence, when all its positions are drawn at once."""
    tables = TABLES * length * model.vocab_size * 4
    if not isinstance(model, Denoiser):
        return tables
    states = STATES
    if model.device.type == "cuda":
        tables, states = 0, CUDA_STATES
    ids = torch.full((1, length), min(model.mask_id, model.vocab_size - 1), device=model.device)
    state = model.hidden(ids, torch.ones(1, device=model.device))
    return tables + states * state.numel() * state.element_size()


class Fitting:
    """Draws in batches of a size, in half of it where memory runs out, and remembers what fits."""

    def __init__(self, size: int, *, auto: bool) -> None:
        self.size, self.auto = size, auto

    def draws(
        self, draw: Callable[[Sequence[int], int], Iterable[Output]], indices: Sequence[int]
    ) -> Iterator[Output]:
        """The outputs of `draw(indices, size)`. What was drawn before a refusal is kept.

        Without `auto` an error is raised: the user asked for the size.
        """
        left = dict.fromkeys(indices)
        while left:
            size = min(self.size, len(left))
            try:
                for output in draw(list(left), size):
                    del left[output.index]
                    yield output
                continue
            except Exception as error:
                if not out_of_memory(error):
                    raise
                if not self.auto or size == 1:
                    raise _refusal(error, size, self.auto) from error
            # Outside of the handler, which keeps the tensors of the failed call alive.
            self.size = size // 2
            warnings.warn(f"Out of memory: going on with batches of {self.size}.", stacklevel=2)
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


def unit_of_auto(n: int, workers: int) -> int:
    """Outputs that a worker is given at a time, where it alone can say how many fit at once."""
    return max(1, min(MOST, -(-n // max(1, workers))))


def _refusal(error: Exception, size: int, auto: bool) -> UserError:
    fix = "use a smaller `length`" if auto or size == 1 else "use `batch_size=auto`, or a smaller"
    return UserError(
        "There is not enough memory for a batch.",
        where="`batch_size`",
        got=f"{size} sequences: {str(error).strip().splitlines()[0][:160] if str(error) else ''}",
        expected="what was drawn before is kept",
        fix=fix + ("" if auto or size == 1 else f" one than {size}"),
    )


@dataclass(frozen=True)
class CellDraw:
    """One cell, how many outputs it has, and how many are drawn at a time."""

    cell: CellSpec
    n: int
    size: int
    auto: bool = False
    """Whether a batch that does not fit is drawn in smaller ones."""


def batches_of(model: Model, cells: Sequence[CellDraw], canvases: Canvases | None) -> Iterator[Any]:
    """The batches of every cell: a function of the cell alone."""
    for draw in cells:
        if draw.cell.batch is not None:
            size = draw.cell.batch.size
            yield [range(k, min(k + size, draw.n)) for k in range(0, draw.n, size)]
        else:
            yield batches(
                model, draw.cell.generator.sampler, range(draw.n), draw.size, canvases=canvases
            )


@dataclass(frozen=True)
class ModelJob:
    """What a worker needs to have a checkpoint loaded, whatever it does with it."""

    recipe: LoadRecipe
    spec: CheckpointSpec
    """What it must have loaded."""
    fingerprint: str
    """SHA-256 of the checkpoint's files."""

    def check(self) -> None:
        """The checkpoint can be read here, and is the same."""
        sha256 = fingerprint(self.recipe.source, self.recipe.revision)
        if sha256 != self.fingerprint:
            raise UserError(
                "The checkpoint's files here differ from those where the command runs.",
                where=self.recipe.source,
                got=f"sha256 {sha256[:16]}",
                expected=f"sha256 {self.fingerprint[:16]}, as where the command runs",
                fix="copy the files, or use a path that all machines share",
            )

    @property
    def needs(self) -> tuple[LoadRecipe, CheckpointSpec, str]:
        """What the job needs loaded: the checkpoint."""
        return self.recipe, self.spec, self.fingerprint

    def load(self, device: str) -> Model:
        """The checkpoint, on a device."""
        how = self.recipe
        model = how.model(device)
        if model.spec != self.spec:
            raise UserError(
                "A worker has loaded a different model.",
                where=how.source,
                got=model.spec.canonical(),
                expected=self.spec.canonical(),
                fix="do not change the checkpoint while the command runs",
            )
        return model


@dataclass(frozen=True)
class DrawJob(ModelJob):
    """What a worker needs to draw units of some cells."""

    cells: tuple[CellDraw, ...]
    canvases: Canvases | None

    def open(self, loaded: Model) -> DrawWorker:
        """A worker with the checkpoint, which other cells may share."""
        worker = DrawWorker(loaded, self.cells, self.canvases)
        worker.facts["checkpoint"] = self.recipe.as_written
        return worker


def recipe_of(model: Model) -> LoadRecipe:
    """How another process loads the same model."""
    recipe = getattr(model, "recipe", None)
    if not isinstance(recipe, LoadRecipe):
        raise UserError(
            "Other processes cannot load this model: it was created in this one.",
            where=model.source,
            expected="a source that strop.load_model knows",
            fix="use `engine=local`, or load the model from a source",
        )
    return recipe


_FINGERPRINTS: WeakKeyDictionary[Model, str] = WeakKeyDictionary()
"""Of models that are loaded: hashing large files takes long, and a search asks in every round."""


def what_to_load(model: Model) -> tuple[LoadRecipe, CheckpointSpec, str]:
    """The fields of a `ModelJob`, for workers that are to load what is loaded here."""
    recipe = recipe_of(model)
    if model not in _FINGERPRINTS:
        _FINGERPRINTS[model] = fingerprint(recipe.source, recipe.revision)
    return recipe, model.spec, _FINGERPRINTS[model]


class DrawWorker:
    """Draws units with a model that is loaded."""

    def __init__(
        self,
        model: Model,
        cells: Sequence[CellDraw],
        canvases: Canvases | None,
        on_step: OnStep | None = None,
    ) -> None:
        self.model, self.cells, self.canvases, self.on_step = model, cells, canvases, on_step
        self.facts = new_session(model)
        self._fitting: dict[int, Fitting] = {}

    def work(self, cell: int, missing: Sequence[int]) -> Iterator[Output]:
        """The outputs of a cell that are missing, with their texts and the prompts they answer."""
        codec, mask_id = self.model.codec, self.model.mask_id

        def text(ids: Sequence[int]) -> str:
            return "" if codec is None else codec.decode(ids, mask_id=mask_id)

        for output in self._draws(cell, missing):
            if self.canvases is None:
                yield replace(output, text=None if codec is None else text(output.ids.tolist()))
                continue
            canvas = self.canvases.prompt_of(output.index)
            pieces = tuple(text(part) for part in _gaps(canvas, output.ids.tolist()))
            words = {} if codec is None else {"text": "".join(pieces), "pieces": pieces}
            yield replace(output, prompt=canvas.id, **words)

    def _draws(self, number: int, missing: Sequence[int]) -> Iterable[Output]:
        cell = self.cells[number].cell
        if cell.batch is not None:
            return self._dense(self.cells[number], cell.batch.size, set(missing))

        def draw(outputs: Sequence[int], slots: int) -> Iterable[Output]:
            return fast(
                self.model,
                cell.generator.sampler,
                seed=cell.seed,
                outputs=outputs,
                slots=slots,
                length=cell.generator.length,
                on_step=self.on_step,
                canvases=self.canvases,
            )

        return self._fitted(number).draws(draw, missing)

    def _fitted(self, number: int) -> Fitting:
        """How many are drawn at once, by the free memory of the GPU that draws them."""
        if number not in self._fitting:
            draw, size = self.cells[number], self.cells[number].size
            if draw.auto:
                most = largest_batch if self.model.device.type == "cuda" else default_batch
                generator = draw.cell.generator
                positions = generator.length if self.canvases is None else self.canvases.positions
                size = min(size, most(self.model, generator.sampler, positions))
            self._fitting[number] = Fitting(size, auto=draw.auto)
        return self._fitting[number]

    def _dense(self, draw: CellDraw, size: int, missing: set[int]) -> Iterator[Output]:
        """The whole batch, because its outputs share random numbers; missing ones are kept."""
        on_step = self.on_step
        first = min(missing) // size * size

        def tell(output: int, *what: Any) -> None:
            if on_step is not None and output in missing:
                on_step(output, *what)

        for output in dense_batch(
            self.model,
            draw.cell.generator.sampler,
            seed=draw.cell.seed,
            first=first,
            count=min(size, draw.n - first),
            length=draw.cell.generator.length,
            on_step=None if on_step is None else tell,
            canvases=self.canvases,
        ):
            if output.index in missing:
                yield output


def _gaps(canvas: Canvas, response: Sequence[int]) -> Iterator[Sequence[int]]:
    """The response cut at what is given: a character never reaches across it."""
    start = 0
    for size in (len(part) for part in canvas.stretches if part[0] is None):
        yield response[start : start + size]
        start += size
