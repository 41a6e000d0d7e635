"""One unit's outputs, from a model that is loaded here: what a worker of any engine does.

And how a worker loads the model that this process has loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from strop.checkpoints.checkpoint import fingerprint
from strop.denoisers import Model
from strop.denoisers.load import LoadRecipe
from strop.draw.batch_size import Fitting, default_batch, largest_batch
from strop.engine.provenance import new_session
from strop.errors import UserError
from strop.pool import OnStep, Output
from strop.prompts import Canvas, Canvases
from strop.samplers import batches, dense_batch, fast
from strop.spec import CellSpec, CheckpointSpec


@dataclass(frozen=True)
class CellDraw:
    """One cell, how many outputs it has, and how many are drawn at a time."""

    cell: CellSpec
    n: int
    size: int
    auto: bool = False
    """Whether a batch that does not fit is drawn in smaller ones."""


def batches_of(model: Model, cells: Sequence[CellDraw], canvases: Canvases | None) -> Iterator[Any]:
    """The batches of every cell: a function of the cell, whoever draws it."""
    for one in cells:
        if one.cell.batch is not None:
            size = one.cell.batch.size
            yield [range(k, min(k + size, one.n)) for k in range(0, one.n, size)]
        else:
            yield batches(
                model, one.cell.generator.sampler, range(one.n), one.size, canvases=canvases
            )


@dataclass(frozen=True)
class ModelJob:
    """What a worker needs to have a checkpoint loaded, whatever it does with it."""

    recipe: LoadRecipe
    spec: CheckpointSpec
    """What it must have loaded."""
    fingerprint: str
    """Of the checkpoint's files."""

    def check(self) -> None:
        """The checkpoint can be read here, and is the same."""
        found = fingerprint(self.recipe.source, self.recipe.revision)
        if found != self.fingerprint:
            raise UserError(
                "The checkpoint's files are other ones here.",
                where=self.recipe.source,
                got=f"sha256 {found[:16]}",
                expected=f"sha256 {self.fingerprint[:16]}, as where the command runs",
                fix="copy the files, or name a place that all machines share",
            )

    @property
    def needs(self) -> tuple[LoadRecipe, CheckpointSpec, str]:
        """The checkpoint."""
        return self.recipe, self.spec, self.fingerprint

    def load(self, device: str) -> Model:
        """The checkpoint, on a device."""
        how = self.recipe
        model = how.model(device)
        if model.spec != self.spec:
            raise UserError(
                "A worker has loaded another model.",
                where=how.source,
                got=model.spec.canonical(),
                expected=self.spec.canonical(),
                fix="let nobody change the checkpoint meanwhile",
            )
        return model


@dataclass(frozen=True)
class DrawJob(ModelJob):
    """What a worker needs to draw units of some cells."""

    cells: tuple[CellDraw, ...]
    canvases: Canvases | None

    def open(self, loaded: Model) -> DrawWorker:
        """With the checkpoint, which other cells may have been drawn from."""
        found = DrawWorker(loaded, self.cells, self.canvases)
        found.facts["checkpoint"] = self.recipe.said
        return found


def recipe_of(model: Model) -> LoadRecipe:
    """How another process loads the same model."""
    found = getattr(model, "recipe", None)
    if not isinstance(found, LoadRecipe):
        raise UserError(
            "Other processes cannot load this model: it was made here.",
            where=model.source,
            expected="a source that strop.load_model knows",
            fix="use `engine=local`, or load the model from a source",
        )
    return found


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

        for one in self._draws(cell, missing):
            if self.canvases is None:
                yield replace(one, text=None if codec is None else text(one.ids.tolist()))
                continue
            canvas = self.canvases.prompt_of(one.index)
            pieces = tuple(text(part) for part in _gaps(canvas, one.ids.tolist()))
            words = {} if codec is None else {"text": "".join(pieces), "pieces": pieces}
            yield replace(one, prompt=canvas.id, **words)

    def _draws(self, number: int, missing: Sequence[int]) -> Iterable[Output]:
        cell = self.cells[number].cell
        if cell.batch is not None:
            return self._dense(self.cells[number], cell.batch.size, set(missing))

        def draw(some: Sequence[int], slots: int) -> Iterable[Output]:
            return fast(
                self.model,
                cell.generator.sampler,
                seed=cell.seed,
                outputs=some,
                slots=slots,
                length=cell.generator.length,
                on_step=self.on_step,
                canvases=self.canvases,
            )

        return self._fitted(number).draws(draw, missing)

    def _fitted(self, number: int) -> Fitting:
        """How many go at once; a GPU is asked here, whoever cut the plan."""
        if number not in self._fitting:
            one, size = self.cells[number], self.cells[number].size
            if one.auto:
                most = largest_batch if self.model.device.type == "cuda" else default_batch
                generator = one.cell.generator
                positions = generator.length if self.canvases is None else self.canvases.positions
                size = min(size, most(self.model, generator.sampler, positions))
            self._fitting[number] = Fitting(size, auto=one.auto)
        return self._fitting[number]

    def _dense(self, one: CellDraw, size: int, wanted: set[int]) -> Iterator[Output]:
        """The whole batch, because its outputs share random numbers; missing ones are kept."""
        on_step = self.on_step
        first = min(wanted) // size * size

        def tell(output: int, *what: Any) -> None:
            if on_step is not None and output in wanted:
                on_step(output, *what)

        for output in dense_batch(
            self.model,
            one.cell.generator.sampler,
            seed=one.cell.seed,
            first=first,
            count=min(size, one.n - first),
            length=one.cell.generator.length,
            on_step=None if on_step is None else tell,
            canvases=self.canvases,
        ):
            if output.index in wanted:
                yield output


def _gaps(canvas: Canvas, response: Sequence[int]) -> Iterator[Sequence[int]]:
    """The response cut at what is given: a character never reaches across it."""
    start = 0
    for size in (len(part) for part in canvas.stretches if part[0] is None):
        yield response[start : start + size]
        start += size
