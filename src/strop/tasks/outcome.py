"""What a task run found: responses, answers and verdicts, and statistics over problems and seeds.

    results = strop.tasks.results("runs/sums")
    results.task, results.items                  # the task and its problems
    for label in results.labels:                 # the checkpoints
        for graded in results.greedy(label).answered():
            graded.item, graded.response, graded.answers["last"], graded.passed("last")
    results.settings                             # every checkpoint under every setting
    results.settings[0].accuracy("last")         # mean with its 95% interval over problems
    paired(results.settings[0], results.settings[1], "last")

These are plain values; torch is not needed.

The directory of a task run holds its mark and one run directory per checkpoint:

RUN/strop.json       which task, how long responses are, and who answers it how
RUN/<label>/         an ordinary run: a cell per setting and seed; output i answers problem i
RUN/result.json      every number of the tables; RUN/table.csv has the first of them
RUN/accuracy.png     the figure, also as SVG
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.disk import disk, locked
from strop.errors import UserError
from strop.measure.frame import PartialScore, read_cell
from strop.measure.metric import CALLS, ENDED, OUTCOME, PASSED, SECONDS, TASK, WRITTEN
from strop.records.record import SAMPLERS
from strop.spec.generator import CheckpointSpec, SamplerSpec
from strop.spec.value import MetricSpec
from strop.stats.interval import Interval
from strop.stats.resample import (
    SHARE,
    Resampled,
    jackknife,
    mean,
    pass_at,
    share_interval,
    sign_test,
)
from strop.store import KINDS, Cell, Folder, Run, read_mark
from strop.store.folder import MARK, RESULT, TABLE, Damaged, damaged, remove, setting_changes
from strop.tasks import TASKS, Item, Task
from strop.tasks.task import OUTCOMES

Floats = NDArray[np.float64]
SEED = 0
"""Of the resamples."""


@dataclass(frozen=True)
class Answered:
    """One response with what was found in it and what the check said."""

    item: Item
    response: str
    """Up to where the model, or the task, says that it ends."""
    answers: Mapping[str, str | None]
    """By filter; for programs, the complete sanitised ones. None where there is none."""
    outcomes: Mapping[str, str]
    """By filter: `passed`, `wrong`, `empty`, ..."""
    said: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Of programs, by filter: what it `printed`, cut, and the reason of the verdict (`detail`);
    results that are older have none."""

    def passed(self, name: str) -> bool:
        """Whether the answer of a filter is right."""
        return self.outcomes[name] == "passed"


@dataclass(frozen=True, eq=False)
class SeedGrades:
    """One checkpoint under one setting and one seed: what was graded of it."""

    task: Task
    entrant: Entrant
    cell: Cell
    index: NDArray[np.int64]
    """The problems, by number, ascending."""
    columns: Mapping[str, NDArray]
    """Per problem: verdicts by filter, calls, seconds, tokens, whether the response ends."""
    ungraded: int
    """Responses without a verdict: not graded yet, or lost."""
    metric: MetricSpec | None = None
    """Of the verdicts."""
    walled: bool = True
    """Whether programs ran in a sandbox, where there were any."""

    @property
    def seed(self) -> int:
        """Of the cell."""
        return self.cell.spec.seed

    def passed(self, name: str) -> Floats:
        """Per problem, 1 where the answer of a filter is right."""
        return np.asarray(self.columns[f"{PASSED}{name}"], float)

    def outcomes(self, name: str) -> list[str]:
        """Per problem, what the check said."""
        return [OUTCOMES[code] for code in self.columns[f"{OUTCOME}{name}"].tolist()]

    def answered(self) -> list[Answered]:
        """Responses, answers and verdicts, in the order of the problems."""
        table, items = self.cell.table(), self.task.all_items()
        texts = dict(zip(table["index"].to_pylist(), table["text"].to_pylist(), strict=True))
        by_filter = {rule.name: self.outcomes(rule.name) for rule in self.task.filters}
        words = {} if self.metric is None else self.cell.words(self.metric)
        responses = []
        for row, number in enumerate(self.index.tolist()):
            item, response = items[number], self.entrant.cut(texts[number])
            answers = self.task.answers(item, response)
            outcomes = {name: verdicts[row] for name, verdicts in by_filter.items()}
            words_of_item = words.get(number, {})
            responses.append(
                Answered(item, self.task.cut(response), answers, outcomes, words_of_item)
            )
        return responses


@dataclass(frozen=True, eq=False)
class TaskSetting:
    """One checkpoint under one setting, with what was graded under every seed."""

    entrant: Entrant
    sampler: SamplerSpec
    grades: tuple[SeedGrades, ...]
    """By seed."""

    @property
    def label(self) -> str:
        """The checkpoint's."""
        return self.entrant.label

    @property
    def temperature(self) -> float:
        """Of the draw; 0 is greedy."""
        return self.sampler.temperature

    @property
    def seeds(self) -> tuple[int, ...]:
        """Those that were drawn."""
        return tuple(grades.seed for grades in self.grades)

    @cached_property
    def index(self) -> NDArray[np.int64]:
        """The problems that were graded under every seed."""
        common = self.grades[0].index
        for grades in self.grades[1:]:
            common = np.intersect1d(common, grades.index)
        return common

    @property
    def ungraded(self) -> int:
        """Responses without a verdict, over all seeds."""
        return sum(grades.ungraded for grades in self.grades)

    def answered(self, seed: int = 0) -> list[Answered]:
        """Responses, answers and verdicts of one seed."""
        for grades in self.grades:
            if grades.seed == seed:
                return grades.answered()
        raise UserError(
            "This seed was not drawn.", where=self.label, got=seed, expected=str(self.seeds)
        )

    def _table(self, name: str) -> Floats:
        """A column for the common problems [seeds, problems]."""
        tables = [
            (grades.columns[name], np.isin(grades.index, self.index)) for grades in self.grades
        ]
        return np.stack([np.asarray(column, float)[rows] for column, rows in tables])

    def by_problem(self, name: str) -> Floats:
        """Per problem, the share of the seeds whose answer is right by a filter."""
        return self._table(f"{PASSED}{name}").mean(0)

    def by_seed(self, name: str) -> Floats:
        """Per seed, the share of the problems."""
        return self._table(f"{PASSED}{name}").mean(1)

    def accuracy(self, name: str) -> Interval:
        """Over problems and seeds; Wilson's interval over problems, each with all its seeds."""
        return share_interval(self.by_problem(name), len(self.grades))

    def pass_at(self, k: int, name: str) -> Interval:
        """The chance that one of k answers is right, unbiased, with its interval over problems."""
        seeds = len(self.grades)
        if not 1 <= k <= seeds:
            raise UserError(
                "There are fewer answers to each problem than that.",
                where="`k`",
                got=k,
                expected=f"a whole number from 1 to {seeds}, the number of seeds",
                fix="draw more seeds",
            )
        right = self._table(f"{PASSED}{name}").sum(0)
        chances = pass_at(right, seeds, k)
        return share_interval(chances) if k == 1 == seeds else jackknife(mean(chances, span=SHARE))

    def standard_error(self, name: str) -> float | None:
        """Of the mean over seeds, the problems held fixed; None with a single seed."""
        accuracies = self.by_seed(name)
        return (
            float(accuracies.std(ddof=1) / np.sqrt(len(accuracies)))
            if len(accuracies) > 1
            else None
        )

    def counts(self, name: str) -> Counter[str]:
        """How often the check said what, over problems and seeds."""
        codes = self._table(f"{OUTCOME}{name}").astype(int).ravel()
        return Counter(OUTCOMES[code] for code in codes)

    @property
    def calls(self) -> float:
        """Network calls per response."""
        return float(self._table(CALLS.name).mean())

    @property
    def seconds(self) -> float:
        """Per response, as the machine and the batches had it."""
        return float(self._table(SECONDS.name).mean())

    @property
    def tokens(self) -> float:
        """Per response, up to its end token and with it; all where there is none."""
        return float(self._table(WRITTEN).mean())

    @property
    def tokens_per_call(self) -> float:
        """Tokens up to the end over the network calls that were spent on the whole response.

        A causal model needs no call after the end, so that it always has one.
        """
        return 1.0 if SAMPLERS[self.sampler.name].causal else self.tokens / self.calls

    @property
    def truncated(self) -> float:
        """The share of the responses that never end."""
        return float(1 - self._table(ENDED).mean())


@dataclass(frozen=True, eq=False)
class Results:
    """All of a task run."""

    run: TaskRun
    settings: tuple[TaskSetting, ...]
    """By checkpoint in the order of the run, sampler and temperature; those with verdicts."""

    @classmethod
    def of(cls, task_run: TaskRun) -> Results:
        """Read what is graded."""
        settings: list[TaskSetting] = []
        for entrant in task_run.entrants:
            by_generator: dict[str, dict[int, SeedGrades]] = {}
            for cell in task_run.cells(entrant.label):
                graded = grades_of(task_run, entrant, cell)
                if graded is None:
                    continue
                seeds = by_generator.setdefault(cell.spec.generator.canonical(), {})
                # Dense cells of other batches have the same setting: the longest one counts.
                if graded.seed not in seeds or len(seeds[graded.seed].index) < len(graded.index):
                    seeds[graded.seed] = graded
            for seeds in by_generator.values():
                grades = tuple(seeds[seed] for seed in sorted(seeds))
                settings.append(TaskSetting(entrant, grades[0].cell.spec.generator.sampler, grades))
        positions = {entrant.label: position for position, entrant in enumerate(task_run.entrants)}
        settings = [setting for setting in settings if len(setting.index)]
        settings.sort(
            key=lambda setting: (positions[setting.label], _kind(setting), setting.temperature)
        )
        return cls(task_run, tuple(settings))

    @property
    def task(self) -> Task:
        """The task."""
        return self.run.task

    @property
    def items(self) -> Sequence[Item]:
        """All problems of the task; a run with a limit answers the first of them."""
        return self.run.task.all_items()

    @property
    def filters(self) -> tuple[str, ...]:
        """Ways to find the answer, the one to compare by first."""
        return tuple(rule.name for rule in self.task.filters)

    @property
    def labels(self) -> tuple[str, ...]:
        """The checkpoints."""
        return tuple(dict.fromkeys(setting.label for setting in self.settings))

    def of_label(self, label: str) -> list[TaskSetting]:
        """The settings of one checkpoint."""
        of_checkpoint = [setting for setting in self.settings if setting.label == label]
        if not of_checkpoint:
            raise UserError(
                f"The task run has no graded responses of {label!r}.",
                where=self.run.path,
                expected="one of " + ", ".join(self.labels),
            )
        return of_checkpoint

    def greedy(self, label: str) -> TaskSetting:
        """A checkpoint's setting at temperature 0; of several samplers the first."""
        at_zero = [setting for setting in self.of_label(label) if setting.temperature == 0]
        if not at_zero:
            raise UserError(
                f"The task run has no greedy responses of {label!r}.",
                where=self.run.path,
                fix="add them: run the task at temperature 0, too",
            )
        return at_zero[0]


def results(run: str | os.PathLike[str]) -> Results:
    """What a task run holds, as far as it is graded."""
    return Results.of(TaskRun.open(run))


def paired(first: TaskSetting, second: TaskSetting, name: str) -> Interval | None:
    """Accuracy of `one` minus that of `other` over the problems that both have answered.

    The interval resamples problems, each with all its responses on both sides.
    """
    sides = _common(first, second, name)
    return Resampled(sides, seed=SEED).interval(0, minus=1) if len(sides[0]) else None


def paired_p(first: TaskSetting, second: TaskSetting, name: str) -> float | None:
    """The exact p of no difference over the problems that both have answered.

    With a seed each it is McNemar's test; with several, the sign test over problems.
    """
    sides = _common(first, second, name)
    return sign_test(sides[0] - sides[1]) if len(sides[0]) else None


def _common(first: TaskSetting, second: TaskSetting, name: str) -> dict[Hashable, Floats]:
    """Shares of right answers of both, by problem."""
    common = np.intersect1d(first.index, second.index)
    return {
        side: setting.by_problem(name)[np.isin(setting.index, common)]
        for side, setting in enumerate((first, second))
    }


def ungraded(task_run: TaskRun, entrant: Entrant, cell: Cell) -> int:
    """How many responses of a cell have no verdict."""
    graded = grades_of(task_run, entrant, cell)
    return len(cell.indices()) if graded is None else graded.ungraded


def grades_of(task_run: TaskRun, entrant: Entrant, cell: Cell) -> SeedGrades | None:
    """What was graded of a cell by today's rules; None where nothing was.

    Of several verdicts those from behind a wall count, then the most.
    """
    row = read_cell(cell, wanted=dict.fromkeys((TASK.name, CALLS.name, SECONDS.name), ()))
    verdicts = [
        part
        for part in row.parts
        if part.record is TASK
        and part.metric.settings.get("fingerprint") == task_run.task.fingerprint
    ]
    verdicts.sort(key=lambda part: (not _walled(part), -len(part.index)))
    if not verdicts:
        return None
    chosen = verdicts[0]
    columns = dict(chosen.columns)
    for record in (CALLS, SECONDS):
        cost = row.part(record)
        assert cost is not None  # every output has one
        columns[record.name] = cost.columns[record.name][np.isin(cost.index, chosen.index)]
    missing = row.outputs - len(chosen.index)
    verdict = chosen.index, columns, missing, chosen.metric, _walled(chosen)
    return SeedGrades(task_run.task, entrant, cell, *verdict)


def _walled(part: PartialScore) -> bool:
    return part.metric.settings.get("sandbox") != "none"


def _kind(setting: TaskSetting) -> str:
    """A setting without its temperature."""
    return setting.sampler.model_copy(update={"temperature": 1.0}).canonical()


FIGURE = "accuracy"
OWNER = "task run"
LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
"""What `label_of` makes."""


@dataclass(frozen=True)
class Entrant:
    """A checkpoint, and how the problems are put to it."""

    label: str
    """Its folder in the run, and its name in tables."""
    source: str
    """As the user named it, with the commit of a hub id."""
    checkpoint: CheckpointSpec
    chat: bool
    """Whether problems are messages in its chat template."""
    bos: str
    """What opens a text that is no message; see `strop.prompts.Template`."""
    ends: tuple[str, ...]
    """Tokens that end a response: what comes after the first of them does not count."""
    end_ids: tuple[int, ...]
    """Their ids."""

    def cut(self, text: str) -> str:
        """A response up to where the model ended it."""
        places = [text.find(end) for end in self.ends if end in text]
        return text[: min(places)] if places else text

    def document(self) -> dict[str, Any]:
        """For the mark."""
        return {**asdict(self), "checkpoint": self.checkpoint.model_dump(mode="json")}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Entrant:
        """What `document` wrote."""
        lists = {name: tuple(document[name]) for name in ("ends", "end_ids")}
        label = document["label"]
        if not isinstance(label, str) or not LABEL.fullmatch(label):  # it names a folder
            raise ValueError(f"its label is {label!r}")
        if not isinstance(document["source"], str):
            raise ValueError(f"its source is {document['source']!r}")
        return cls(**{**document, **lists, "checkpoint": CheckpointSpec(**document["checkpoint"])})


@dataclass(frozen=True)
class TaskRun:
    """A task run on disk."""

    path: Path
    task: Task
    length: int
    """Tokens of a response."""
    entrants: tuple[Entrant, ...] = ()

    @classmethod
    def make(cls, path: str | os.PathLike[str], task: Task, length: int, *, force: bool) -> TaskRun:
        """A new directory, or one that was made for the same task and length."""
        task_run = cls(Path(path), task, length)
        folder = Folder(path, "task", OWNER)
        with folder.held(force=force) as mark:
            if mark is not None and not force:
                return cls.open(path)._check_same(task_run)
            if force:
                task_run._clear(folder)
            task_run._write()
        return task_run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> TaskRun:
        """A task run that exists."""
        mark = read_mark(path)
        if mark is None or mark.kind != "task":
            raise UserError(
                "This directory is not a task run.",
                where=path,
                got=None if mark is None else f"a {KINDS[mark.kind].words}",
                expected=f"a directory whose {MARK} says that it is one",
                fix="strop task run TASK CHECKPOINT -o RUN",
            )
        mark_path = Path(path) / MARK
        try:
            entrants = tuple(map(Entrant.read, mark.asked["checkpoints"]))
            fingerprint, length = str(mark.asked["fingerprint"]), int(mark.asked["length"])
            task_name = str(mark.asked["task"])
        except (KeyError, TypeError, ValueError, UserError) as error:
            raise damaged(mark_path, error, "start the task run anew with `force`") from None
        task = TASKS.find(task_name, where=str(mark_path))
        if fingerprint != task.fingerprint:
            raise UserError(
                f"The task {task.name!r} has changed since this run was made.",
                where=mark_path,
                got=f"fingerprint {fingerprint} there, {task.fingerprint} now",
                expected="the same problems, filters and rules",
                fix="choose another `out`, or start this one anew with `force`",
            )
        return cls(Path(path), task, length, entrants)

    def run_of(self, label: str) -> Run:
        """The run directory of a checkpoint."""
        return Run(self.path / label)

    def cells(self, label: str) -> list[Cell]:
        """The cells of a checkpoint that hold responses of this task."""
        return self.run_of(label).cells()

    def enter(self, new: Entrant) -> tuple[TaskRun, Entrant]:
        """Take a checkpoint in, under a label of its own; one that is in keeps its label."""
        with locked(self.path):
            task_run = TaskRun.open(self.path)
            for entrant in task_run.entrants:
                if entrant.checkpoint == new.checkpoint:
                    if replace(new, label=entrant.label, source=entrant.source) != entrant:
                        raise _other_settings(self.path, entrant, new)
                    return task_run, entrant
            taken = {entrant.label for entrant in task_run.entrants}
            names = (new.label, *(f"{new.label}-{number}" for number in range(2, len(taken) + 3)))
            new = replace(new, label=next(name for name in names if name not in taken))
            task_run = replace(task_run, entrants=(*task_run.entrants, new))
            task_run._write()
        return task_run, new

    def _check_same(self, requested: TaskRun) -> TaskRun:
        """This one, if it is what is asked for."""
        was, now = (
            f"{task_run.task.name}, {task_run.length} tokens" for task_run in (self, requested)
        )
        if was != now:
            raise UserError(
                "This directory holds another task run.",
                where=self.path,
                got=f"{was} there, {now} now",
                expected="the same task and `length`; temperatures, seeds, checkpoints, samplers "
                "and problems may be added",
                fix="choose another `out`, or start this one anew with `force`",
            )
        return self

    def _write(self) -> None:
        asked = {
            "task": self.task.name,
            "fingerprint": self.task.fingerprint,
            "length": self.length,
            "checkpoints": [entrant.document() for entrant in self.entrants],
        }
        Folder(self.path, "task", OWNER).write(asked)

    def _clear(self, folder: Folder) -> None:
        """Remove what strop made here: the runs of the checkpoints, and what was made of them."""
        with disk(self.path):
            for folder_path in sorted(path for path in self.path.iterdir() if path.is_dir()):
                if _is_ours(folder_path):
                    with locked(folder_path):  # nobody's file is half gone
                        remove(folder_path)
            for name in (RESULT, TABLE, f"{FIGURE}.png", f"{FIGURE}.svg"):
                (self.path / name).unlink(missing_ok=True)
        folder.clear()


def _is_ours(path: Path) -> bool:
    """Whether a folder is the run of a checkpoint, whatever became of its mark."""
    try:
        mark = read_mark(path)
    except Damaged:
        mark = None
    return Folder(path, "run", OWNER).holds_cells() if mark is None else mark.owner == OWNER


def label_of(source: str) -> str:
    """A folder's name for a checkpoint: the last part of what it is called."""
    name = source.rstrip("/").rpartition("@")[0] if "@" in source else source.rstrip("/")
    name = re.split(r"[/:#\\]", name)[-1]  # of a served model what stands behind the #
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "checkpoint"


def _other_settings(path: Path, was: Entrant, now: Entrant) -> UserError:
    settings = [
        {k: getattr(entrant, k) for k in ("chat", "bos", "ends", "end_ids")}
        for entrant in (was, now)
    ]
    return UserError(
        f"The problems were put to {was.label} with other prompt settings.",
        where=path,
        got="; ".join(setting_changes(*settings)),
        fix="choose another `out`, or start this one anew with `force`",
    )
