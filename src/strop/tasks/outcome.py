"""What a task run found: responses, answers and verdicts, and statistics over problems and seeds.

    found = strop.tasks.results("runs/sums")
    found.task, found.items                      # the task and its problems
    for label in found.labels:                   # the checkpoints
        for one in found.greedy(label).answered():
            one.item, one.response, one.answers["last"], one.outcomes["last"], one.passed("last")
    found.settings                               # every checkpoint under every setting
    found.settings[0].accuracy("last")           # mean with its 95% interval over problems
    paired(found.settings[0], found.settings[1], "last")

Plain values, no torch.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.measure.metric import ENDED, OUTCOME, PASSED, TASK, WRITTEN
from strop.spec import SAMPLERS, SamplerSpec
from strop.stats.interval import Interval
from strop.stats.jackknife import jackknife
from strop.stats.paired import Resampled
from strop.stats.resample import mean
from strop.stats.shares import pass_at, share_interval, sign_test
from strop.store import Cell, ScoreTable
from strop.tasks import Item, Task
from strop.tasks.run_folder import Candidate, Exam
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

    def passed(self, name: str) -> bool:
        """Whether the answer of a filter is right."""
        return self.outcomes[name] == "passed"


@dataclass(frozen=True, eq=False)
class Sitting:
    """One checkpoint under one setting and one seed: what was graded of it."""

    task: Task
    candidate: Candidate
    cell: Cell
    seed: int
    index: NDArray[np.int64]
    """The problems, by number, ascending."""
    columns: Mapping[str, NDArray]
    """Per problem: verdicts by filter, calls, seconds, tokens, whether the response ends."""
    ungraded: int
    """Responses without a verdict: not graded yet, or lost."""

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
        by_filter = {one.name: self.outcomes(one.name) for one in self.task.filters}
        found = []
        for place, number in enumerate(self.index.tolist()):
            item, response = items[number], self.candidate.cut(texts[number])
            answers = self.task.answers(item, response)
            outcomes = {name: told[place] for name, told in by_filter.items()}
            found.append(Answered(item, self.task.cut(response), answers, outcomes))
        return found


@dataclass(frozen=True, eq=False)
class Setting:
    """One checkpoint under one setting: a sitting per seed."""

    candidate: Candidate
    sampler: SamplerSpec
    sittings: tuple[Sitting, ...]
    """By seed."""

    @property
    def label(self) -> str:
        """The checkpoint's."""
        return self.candidate.label

    @property
    def temperature(self) -> float:
        """Of the draw; 0 is greedy."""
        return self.sampler.temperature

    @property
    def seeds(self) -> tuple[int, ...]:
        """Those that were drawn."""
        return tuple(one.seed for one in self.sittings)

    @cached_property
    def index(self) -> NDArray[np.int64]:
        """The problems that were graded under every seed."""
        found = self.sittings[0].index
        for one in self.sittings[1:]:
            found = np.intersect1d(found, one.index)
        return found

    @property
    def ungraded(self) -> int:
        """Responses without a verdict, over all seeds."""
        return sum(one.ungraded for one in self.sittings)

    def answered(self, seed: int = 0) -> list[Answered]:
        """Responses, answers and verdicts of one seed."""
        for one in self.sittings:
            if one.seed == seed:
                return one.answered()
        raise UserError(
            "This seed was not drawn.", where=self.label, got=seed, expected=str(self.seeds)
        )

    def _table(self, name: str) -> Floats:
        """A column for the common problems [seeds, problems]."""
        return np.stack(
            [
                np.asarray(one.columns[name], float)[np.isin(one.index, self.index)]
                for one in self.sittings
            ]
        )

    def by_problem(self, name: str) -> Floats:
        """Per problem, the share of the seeds whose answer is right by a filter."""
        return self._table(f"{PASSED}{name}").mean(0)

    def by_seed(self, name: str) -> Floats:
        """Per seed, the share of the problems."""
        return self._table(f"{PASSED}{name}").mean(1)

    def accuracy(self, name: str) -> Interval:
        """Over problems and seeds; Wilson's interval over problems, each with all its seeds."""
        return share_interval(self.by_problem(name), len(self.sittings))

    def pass_at(self, k: int, name: str) -> Interval:
        """The chance that one of k answers is right, unbiased, with its interval over problems."""
        seeds = len(self.sittings)
        if not 1 <= k <= seeds:
            raise UserError(
                "There are not so many answers to a problem.",
                where="`k`",
                got=k,
                expected=f"a whole number from 1 to {seeds}, the number of seeds",
                fix="draw more seeds",
            )
        right = self._table(f"{PASSED}{name}").sum(0)
        found = pass_at(right, seeds, k)
        return share_interval(found) if k == 1 == seeds else jackknife(mean(found))

    def standard_error(self, name: str) -> float | None:
        """Of the mean over seeds, the problems held fixed; None with a single seed."""
        found = self.by_seed(name)
        return float(found.std(ddof=1) / np.sqrt(len(found))) if len(found) > 1 else None

    def counts(self, name: str) -> Counter[str]:
        """How often the check said what, over problems and seeds."""
        codes = self._table(f"{OUTCOME}{name}").astype(int).ravel()
        return Counter(OUTCOMES[code] for code in codes)

    @property
    def calls(self) -> float:
        """Network calls per response."""
        return float(self._table("nfe").mean())

    @property
    def seconds(self) -> float:
        """Per response, as the machine and the batches had it."""
        return float(self._table("seconds").mean())

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

    exam: Exam
    settings: tuple[Setting, ...]
    """By checkpoint in the order of the run, sampler and temperature; those with verdicts."""

    @classmethod
    def of(cls, exam: Exam) -> Results:
        """Read what is graded."""
        found: list[Setting] = []
        for candidate in exam.candidates:
            mine: dict[str, dict[int, Sitting]] = {}
            for cell in exam.cells(candidate.label):
                one = _sitting(exam, candidate, cell)
                if one is None:
                    continue
                seats = mine.setdefault(cell.spec.generator.canonical(), {})
                # Dense cells of other batches have the same setting: the longest one counts.
                if one.seed not in seats or len(seats[one.seed].index) < len(one.index):
                    seats[one.seed] = one
            for seats in mine.values():
                sittings = tuple(seats[seed] for seed in sorted(seats))
                found.append(Setting(candidate, _sampler(sittings[0]), sittings))
        places = {one.label: place for place, one in enumerate(exam.candidates)}
        found = [one for one in found if len(one.index)]
        found.sort(key=lambda one: (places[one.label], _kind(one), one.temperature))
        return cls(exam, tuple(found))

    @property
    def task(self) -> Task:
        """The task."""
        return self.exam.task

    @property
    def items(self) -> Sequence[Item]:
        """All problems of the task; a run with a limit answers the first of them."""
        return self.exam.task.all_items()

    @property
    def filters(self) -> tuple[str, ...]:
        """Ways to find the answer, the one to compare by first."""
        return tuple(one.name for one in self.task.filters)

    @property
    def labels(self) -> tuple[str, ...]:
        """The checkpoints."""
        return tuple(dict.fromkeys(one.label for one in self.settings))

    def of_label(self, label: str) -> list[Setting]:
        """The settings of one checkpoint."""
        found = [one for one in self.settings if one.label == label]
        if not found:
            raise UserError(
                f"The task run has no graded responses of {label!r}.",
                where=self.exam.path,
                expected="one of " + ", ".join(self.labels),
            )
        return found

    def greedy(self, label: str) -> Setting:
        """A checkpoint's setting at temperature 0; of several samplers the first."""
        found = [one for one in self.of_label(label) if one.temperature == 0]
        if not found:
            raise UserError(
                f"The task run has no greedy responses of {label!r}.",
                where=self.exam.path,
                fix="add them: run the task at temperature 0, too",
            )
        return found[0]


def results(run: str | os.PathLike[str]) -> Results:
    """What a task run holds, as far as it is graded."""
    return Results.of(Exam.open(run))


def paired(one: Setting, other: Setting, name: str) -> Interval | None:
    """Accuracy of `one` minus that of `other` over the problems that both have answered.

    The interval resamples problems, each with all its responses on both sides.
    """
    sides = _common(one, other, name)
    return Resampled(sides, seed=SEED).interval(0, minus=1) if len(sides[0]) else None


def paired_p(one: Setting, other: Setting, name: str) -> float | None:
    """The exact p of no difference over the problems that both have answered.

    With a seed each it is McNemar's test; with several, the sign test over problems.
    """
    sides = _common(one, other, name)
    return sign_test(sides[0] - sides[1]) if len(sides[0]) else None


def _common(one: Setting, other: Setting, name: str) -> dict[Hashable, Floats]:
    """Shares of right answers of both, by problem."""
    common = np.intersect1d(one.index, other.index)
    return {
        side: setting.by_problem(name)[np.isin(setting.index, common)]
        for side, setting in enumerate((one, other))
    }


def ungraded(exam: Exam, candidate: Candidate, cell: Cell) -> int:
    """How many responses of a cell have no verdict."""
    found = _sitting(exam, candidate, cell)
    return len(cell.indices()) if found is None else found.ungraded


def _sitting(exam: Exam, candidate: Candidate, cell: Cell) -> Sitting | None:
    """What a cell holds; None where nothing of it is graded."""
    score = _verdicts(exam, cell)
    if score is None:
        return None
    table = cell.table()
    outputs = table["index"].to_numpy()
    there = np.isin(score.index, outputs)
    index = score.index[there]
    rows = np.searchsorted(outputs, index)
    columns = {name: values[there] for name, values in score.columns.items()}
    columns |= {name: table[name].to_numpy()[rows] for name in ("nfe", "seconds")}
    missing = len(outputs) - len(index)
    return Sitting(exam.task, candidate, cell, cell.spec.seed, index, columns, missing)


def _verdicts(exam: Exam, cell: Cell) -> ScoreTable | None:
    """The verdicts by today's rules; of several, those from behind a wall, then the most."""
    mine = [
        one
        for one in cell.scores().values()
        if one.metric.name == TASK.name
        and one.metric.settings.get("fingerprint") == exam.task.fingerprint
        and len(one)
    ]
    mine.sort(key=lambda one: (one.metric.settings.get("sandbox") == "none", -len(one)))
    return mine[0] if mine else None


def _sampler(sitting: Sitting) -> SamplerSpec:
    return sitting.cell.spec.generator.sampler


def _kind(setting: Setting) -> str:
    """A setting without its temperature."""
    return setting.sampler.model_copy(update={"temperature": 1.0}).canonical()
