"""Draw the responses of checkpoints to a task's problems, and grade them.

Verdicts on the responses of a cell are kept beside them as scores.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, get_args

import numpy as np
from numpy.typing import NDArray

from strop.checkpoints.checkpoint import locate
from strop.denoisers import Model, load_model
from strop.denoisers.prompting import reader_of
from strop.denoisers.tokenizer import end_ids
from strop.draw import sample_cells
from strop.draw.worker import BatchSize
from strop.engine.plan import LOCAL, Elsewhere, Engine, Progress
from strop.errors import UserError, unknown_name, whole_number
from strop.measure.metric import ENDED, OUTCOME, PASSED, TASK, WRITTEN
from strop.measure.score import Outputs, score_outputs
from strop.prompts.canvas import Canvases, resolve
from strop.prompts.chat import ChatTemplate
from strop.prompts.rows import Bos, PromptSet, Template
from strop.records.record import FAMILIES, SAMPLERS, Precision, default_sampler
from strop.runtime import MOST_LENGTH, bounded_outputs
from strop.samplers import check_model
from strop.served.address import ServerAddress, is_served
from strop.spec.generator import SamplerSpec, swept
from strop.spec.value import (
    MOST_STEPS,
    OUTPUT_LIMIT,
    SEED_LIMIT,
    Cooling,
    MetricSpec,
    number_or_schedule,
)
from strop.store import Cell, Folder, Run
from strop.tasks import TASKS, Box, Task, grade_all, ready
from strop.tasks.outcome import OWNER, Entrant, Results, TaskRun, label_of, ungraded
from strop.tasks.tables import write_result
from strop.tasks.task import OUTCOMES

# ------------------------------------------------------------------------------------ cell_grades

BATCH = 32
"""Programs that are waited for together."""


def task_metric(task: Task, entrant: Entrant, box: Box | None) -> MetricSpec:
    """What verdicts depend on besides the responses."""
    settings = {"task": task.name, "fingerprint": task.fingerprint}
    settings |= {"ends": " ".join(entrant.ends)} if entrant.ends else {}
    settings |= {"sandbox": box.level} if task.sandboxed and box is not None else {}
    return MetricSpec(name=TASK.name, settings=dict(settings))


def grade_cell(
    cell: Cell,
    task: Task,
    entrant: Entrant,
    box: Box | None,
    progress: Progress | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> None:
    """Grade the responses that have no verdict yet; a lost verdict is not kept.

    Where the task's own code failed on some, `note` hears how often, and the first reason.
    """
    grader, metric = Grader(task, entrant, box), task_metric(task, entrant, box)

    def graded(outputs: Outputs) -> dict[str, NDArray]:
        columns = grader.columns(outputs.index, outputs.texts, outputs.ids)
        cell.add_words(metric, grader.said)  # before the verdicts: what has one has its words
        grader.said.clear()
        return columns

    score_outputs(
        cell,
        metric,
        graded,
        batch=BATCH if task.sandboxed else None,
        progress=progress,
        what=f"grading {task.name}",
    )
    if grader.failures:
        note(
            f"warning: the task's own code failed on {len(grader.failures)} responses of "
            f"{entrant.label}, which count as invalid; the first: {grader.failures[0]}"
        )


@dataclass(frozen=True)
class Grader:
    """What turns responses to a task into columns of verdicts."""

    task: Task
    entrant: Entrant
    box: Box | None
    failures: list[str] = field(default_factory=list)
    """Where the task's own code failed on a response: the problem and the reason."""
    said: dict[int, dict[str, dict[str, str]]] = field(default_factory=dict)
    """Of programs, by response and filter: what they printed, and the reason of the verdict."""

    def columns(
        self, index: NDArray[np.int64], texts: Sequence[str], ids: NDArray[np.int64]
    ) -> dict[str, NDArray]:
        """Of responses number `index`: verdicts, ends and tokens, and which have them (`index`)."""
        task, items = self.task, self.task.all_items()
        pairs = [
            (items[number % len(items)], self.entrant.cut(text))
            for number, text in zip(index.tolist(), texts, strict=True)
        ]
        verdicts = {row: graded.verdicts for row, graded in grade_all(task, pairs, self.box)}
        self.failures.extend(
            f"{pairs[row][0].id}: {verdict.detail}"
            for row in sorted(verdicts)
            for verdict in verdicts[row].values()
            if verdict.raised
        )
        judged = [
            row
            for row in sorted(verdicts)
            if all(verdict.outcome != "lost" for verdict in verdicts[row].values())
        ]
        for row in judged if task.sandboxed else ():
            words = {
                name: {"printed": verdict.printed, "detail": verdict.detail}
                for name, verdict in verdicts[row].items()
                if verdict.printed or verdict.detail
            }
            if words:
                self.said[int(index[row])] = words
        columns: dict[str, NDArray] = {"index": index[judged]}
        for name in (rule.name for rule in task.filters):
            codes = [OUTCOMES.index(verdicts[row][name].outcome) for row in judged]
            columns[f"{PASSED}{name}"] = np.array([code == 0 for code in codes], np.int64)
            columns[f"{OUTCOME}{name}"] = np.array(codes, np.int64)
        ended, tokens = _ends(ids, self.entrant.end_ids)
        stopped = [any(mark in text for mark in task.stop) for text in texts]
        columns[ENDED] = (ended | np.array(stopped, bool))[judged].astype(np.int64)
        columns[WRITTEN] = tokens[judged]
        return columns


def _ends(
    ids: NDArray[np.int64], end_ids: tuple[int, ...]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Whether each row has an end token, and its tokens up to it."""
    is_end = np.isin(ids, end_ids)
    ended = np.asarray(is_end.any(1))
    return ended, np.where(ended, is_end.argmax(1) + 1, (ids >= 0).sum(1))


# ---------------------------------------------------------------------------------------- running

BASE = re.compile(r"(?i)(^|[-_.])base($|[-_.\d])")
TEMPERATURES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
"""The paper's."""
Source = Model | str | os.PathLike[str]


class TaskSettings(TypedDict, total=False):
    """How checkpoints are loaded and asked, by the keywords of `run_task`; see `_Asked`."""

    temperatures: Sequence[float | str]
    seeds: int
    limit: int | None
    length: int | None
    sampler: str | None
    steps: Sequence[int] | None
    precision: Precision | None
    settings: Mapping[str, Any] | None
    implementation: Literal["fast", "dense"]
    chat: bool | None
    bos: Bos | None
    batch_size: BatchSize | None
    device: str
    dtype: str
    revision: str | None
    load: Mapping[str, Any] | None


@dataclass(frozen=True)
class _Asked:
    """The same with what holds where nothing is said."""

    temperatures: Sequence[Any] = TEMPERATURES
    seeds: int = 3
    limit: int | None = None
    """Problems, from the first; None is all."""
    length: int | None = None
    """Tokens of a response; None is the task's."""
    sampler: str | None = None
    """Of the diffusion models; None is each family's own."""
    steps: Sequence[int] | None = None
    """Of the diffusion models; None is one token per call."""
    precision: Precision | None = None
    """Of the draw; None is what each family's public code has."""
    settings: Mapping[str, Any] | None = None
    """Of the diffusion models' sampler."""
    implementation: Literal["fast", "dense"] = "fast"
    chat: bool | None = None
    bos: Bos | None = None
    batch_size: BatchSize | None = None
    device: str = "auto"
    dtype: str = "auto"
    revision: str | None = None
    load: Mapping[str, Any] | None = None

    def check(self) -> None:
        """Refuse values, those of diffusion models also where only causal ones are asked."""
        if not self.temperatures:
            raise UserError(
                "There is no temperature.", where="`temperatures`", expected="at least one"
            )
        whole_number("seeds", self.seeds, 1, SEED_LIMIT)
        if self.sampler is not None:
            SAMPLERS.find(self.sampler, "`sampler`")
        for steps in self.steps or ():
            whole_number("steps", steps, 1, MOST_STEPS + 1)
        if self.bos is not None and self.bos not in get_args(Bos):
            raise unknown_name("rule", self.bos, get_args(Bos), where="`bos`")

    def taus(self) -> tuple[Any, ...]:
        """The temperatures, each once."""
        numbers = map(number_or_schedule, self.temperatures)
        return tuple(dict.fromkeys(t if isinstance(t, Cooling) else float(t) for t in numbers))

    def samplers(self, model: Model, length: int) -> list[SamplerSpec]:
        """Every setting of one model, in the order of the temperatures."""
        family = model.spec.family
        usual = FAMILIES[family].precision if family in FAMILIES else None
        name = default_sampler(family)
        variants: list[dict[str, Any]] = [{}]
        if model.mask_id is not None:
            name, settings = self.sampler or name, dict(self.settings or {})
            variants = [{"steps": m, "settings": settings} for m in self.steps or (length,)]
        precisions = SAMPLERS.find(name, "SamplerSpec.name").fast_precisions
        if usual is None or (self.implementation == "fast" and usual not in precisions):
            usual = precisions[0]
        shared = {"precision": self.precision or usual, "implementation": self.implementation}
        return [
            SamplerSpec(name=name, temperature=swept(name, tau), **shared, **variant)
            for variant in variants
            for tau in self.taus()
        ]

    def loaded(self, source: Source, engine: Engine) -> Model:
        """A checkpoint, which may be loaded already."""
        if isinstance(source, Model):
            return source
        how: dict[str, Any] = {"revision": self.revision, "dtype": self.dtype}
        return load_model(source, device=engine.at_home(self.device), load=self.load or {}, **how)


def entrant_of(model: Model, source: str, chat: bool | None, bos: str | None) -> Entrant:
    """A model as it is going to be asked; what was not said is decided here."""
    directory = None if model.codec is None else model.codec.directory
    templated = _has_template(directory) and not BASE.search(label_of(source))
    always = model.spec.family == "dream" and model.codec is not None and model.codec.bos_id
    ends = end_ids(model)
    return Entrant(
        label=label_of(source),
        source=model.source,
        checkpoint=model.spec,
        chat=templated if chat is None else chat,
        bos=bos or ("always" if always else "tokenizer"),
        ends=() if model.codec is None else tuple(model.codec.decode([token]) for token in ends),
        end_ids=ends,
    )


def decided(entrant: Entrant) -> str:
    """What was decided, in one line."""
    if entrant.checkpoint.family == "served":
        return f"{entrant.label}: problems as messages to the server, which ends a response itself"
    how = "as messages in its chat template, thinking off where it has such a switch"
    if not entrant.chat:
        opened = {"always": ", after its beginning-of-text token", "never": ""}
        how = "as plain text" + opened.get(entrant.bos, "")
    ends = " or ".join(entrant.ends) or "nothing but the length"
    return f"{entrant.label}: problems {how}; a response ends at {ends}"


def canvases_of_task(model: Model, entrant: Entrant, task: Task, length: int) -> Canvases:
    """All problems of a task before one model; a larger limit is a longer look at the same ones."""
    chat = None
    if entrant.chat:
        directory = None if model.codec is None else model.codec.directory
        chat = ChatTemplate.beside(directory)
    rows = [{"prompt": item.prompt, "id": item.id} for item in task.all_items()]
    bos: Any = entrant.bos
    template = Template(chat=chat, bos=bos, marks=False)
    try:
        return resolve(PromptSet.of(rows), reader_of(model), template, length)
    except UserError as error:
        raise error.at(f"{model.source}, {task.name}: {error.where}") from error


def _has_template(directory: Path | None) -> bool:
    try:
        ChatTemplate.beside(directory)
    except UserError:
        return False
    return True


def run_task(
    task: str | Task,
    checkpoints: Source | Sequence[Source],
    out: str | os.PathLike[str],
    *,
    unsafe_run: bool = False,
    force: bool = False,
    progress: Progress | None = None,
    note: Callable[[str], None] = lambda _: None,
    engine: Engine | str = LOCAL,
    **settings: Unpack[TaskSettings],
) -> Results:
    """Let checkpoints answer a task, grade the responses, and return what came out.

    Every checkpoint answers the first `limit` problems at every temperature under the seeds 0, 1,
    ..., at temperature 0 under seed 0 only. The same call continues what was interrupted; a larger
    limit and other temperatures, seeds, samplers or checkpoints add to what is there.

    `sampler`, `steps` and `settings` are for diffusion models: by default the family's own sampler
    with one token per call. `chat` puts problems into the tokenizer's chat template; left out, it
    does where there is one and the name does not say that the model is a base model. `engine` says
    where responses are drawn (`strop.engine`).
    """
    engine = Engine.of(engine)
    engine.refuse_force(force)
    record = TASKS.find(task, where="`task`") if isinstance(task, str) else task
    sources, requested = _as_list(checkpoints), _Asked(**settings)
    requested.check()
    limit = count = len(record.all_items())
    if requested.limit is not None:
        limit = min(whole_number("limit", requested.limit, 1, OUTPUT_LIMIT), count)
    bounded_outputs([requested.seeds * limit * len(requested.taus())])
    length = requested.length
    length = record.length if length is None else whole_number("length", length, 1, MOST_LENGTH + 1)
    box = ready(record, unsafe_run=unsafe_run)
    _check_sources(sources, requested.revision)
    task_run = TaskRun.make(out, record, length, force=force)
    for source in sources:
        model = requested.loaded(source, engine)
        named = model.source if isinstance(source, Model) else os.fspath(source)
        entrant = entrant_of(model, named, requested.chat, requested.bos)
        how = {"canvases": canvases_of_task(model, entrant, record, length), "n": limit}
        how |= {"batch_size": requested.batch_size, "progress": progress, "engine": engine}
        specs = requested.samplers(model, length)
        for spec in specs:
            check_model(model, spec)
        # Only now: what cannot be asked must not stand in the run.
        task_run, entrant = task_run.enter(entrant)
        note(decided(entrant))
        folder = Folder(task_run.path / entrant.label, "run", OWNER)
        for cell in _draw_cells(model, specs, requested.seeds, folder, how):
            grade_cell(cell, record, entrant, box, progress, note)
        del model  # before the next one is loaded
    return _write_results(task_run)


def score_task(
    run: str | os.PathLike[str],
    *,
    unsafe_run: bool = False,
    progress: Progress | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> Results:
    """Grade what has no verdict yet; needs no model, and no sandbox if there is nothing to do."""
    task_run = TaskRun.open(run)
    waiting = [
        (entrant, cell)
        for entrant in task_run.entrants
        for cell in task_run.cells(entrant.label)
        if ungraded(task_run, entrant, cell)
    ]
    if waiting:
        box = ready(task_run.task, unsafe_run=unsafe_run)
        for entrant, cell in waiting:
            grade_cell(cell, task_run.task, entrant, box, progress, note)
    return _write_results(task_run)


def _write_results(task_run: TaskRun) -> Results:
    """What a run holds, once it is written down."""
    results = Results.of(task_run)
    write_result(results)
    return results


def _draw_cells(
    model: Model, specs: Sequence[SamplerSpec], seeds: int, out: Folder, how: Mapping[str, Any]
) -> Iterable[Cell]:
    """The cells of one checkpoint, seed by seed; a greedy one has a single seed.

    A shard draws its part of all seeds before it says what others have not drawn.
    """
    elsewhere: Elsewhere | None = None
    for seed in range(seeds):
        of_seed = [spec for spec in specs if seed == 0 or spec.temperature > 0]
        if not of_seed:
            break
        try:
            pools = sample_cells(model, of_seed, seed=seed, out=out, grow=True, **how)
        except Elsewhere as error:
            elsewhere = error
            continue
        run = Run.open(out)
        yield from (run.cell(pool.spec.id) for pool in pools)
    if elsewhere is not None:
        raise elsewhere


def _as_list(checkpoints: Source | Sequence[Source]) -> list[Source]:
    alone = isinstance(checkpoints, (str, os.PathLike, Model))
    sources = [checkpoints] if alone else list(checkpoints)  # pyright: ignore[reportArgumentType]
    if not sources:
        raise UserError("There is no checkpoint to ask.", where="`checkpoints`")
    return sources  # pyright: ignore[reportReturnType]


def _check_sources(sources: Sequence[Source], revision: str | None) -> None:
    """Find every checkpoint before the first one is asked: that may take hours."""
    names = [source for source in sources if not isinstance(source, Model)]
    if revision is not None and len(names) > 1:
        raise UserError(
            "A revision belongs to one checkpoint, and there are several.",
            where="`revision`",
            got=revision,
            fix="write it behind the name: owner/name@revision",
        )
    for source in names:
        find_checkpoint(source, revision)


def find_checkpoint(source: str | os.PathLike[str], revision: str | None = None) -> None:
    """Refuse a checkpoint that is not there, before anything is loaded; a server is not asked."""
    if is_served(source):
        ServerAddress.parse(str(source))
    else:
        locate(source, revision)
