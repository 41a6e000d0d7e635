"""Which candidates get outputs: all start with few, the doubtful get more, the clearly worse stop.

Candidates are compared on the outputs that both have: output i of every candidate comes from the
same random numbers, so differences are paired. A round looks at all candidates afresh:

- one that holds every limit for sure (the whole interval on the right side) may lead; among those
  with the most outputs the best leads;
- one that breaks a limit for sure, or cannot beat the leader by more than the tolerance (the whole
  interval of the paired difference says so), stops; so does one that is so near a limit that the
  most outputs would hardly show on which side it is;
- of the rest, those with the fewest outputs get twice as many; where all have as many as the
  leader, it gets more too.

It ends when only the leader is left, when every candidate has the most outputs, or when the budget
is spent. What was decided follows from the outputs alone, so a search that is run again decides the
same.

Intervals are those of the jackknife (`strop.stats.resample`), which hold at eight outputs already.
Where several outputs answer one prompt, whole prompts are left out, and pairs are pairs of prompts.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from strop.disk import disk, locked
from strop.errors import UserError
from strop.measure.across import DECIDES, MARGIN
from strop.measure.metric import DIVERSITY, ENTROPY
from strop.rng import derive_seed
from strop.spec.generator import SamplerSpec
from strop.stats.interval import Interval
from strop.stats.resample import Statistic, jackknife, student
from strop.tuning.space import Axis, Space

if TYPE_CHECKING:
    from strop.measure.guard import Guard


# ------------------------------------------------------------------------------------------- race

C = TypeVar("C")
State = Literal["leads", "in doubt", "worse", "too near the limit", "over the limit"]


@dataclass(frozen=True)
class Limit:
    """What a candidate must hold: a statistic at least, or at most, some value."""

    name: str
    side: Literal[">=", "<="]
    value: float
    by: Literal["interval", "mean", "unbroken"] = "interval"
    """What must be inside: the whole interval, its middle alone, or any part of it."""
    least: int = 0
    """Outputs below which no candidate is held to it."""

    def excess(self, value: float) -> float:
        """How far a value is on the wrong side; negative inside."""
        return self.value - value if self.side == ">=" else value - self.value

    def side_of(self, interval: Interval) -> bool | None:
        """Whether a value is inside: for sure, surely not, or None."""
        if interval.n is not None and interval.n < self.least:
            return True
        if self.by == "mean":
            return self.excess(interval.value) <= 0
        inside, outside = interval.ends if self.side == ">=" else reversed(interval.ends)
        if self.excess(outside) > 0:
            return False
        return True if self.by == "unbroken" or self.excess(inside) <= 0 else None

    def __str__(self) -> str:
        return f"{self.name}{self.side}{self.value:.4g}"


def guard_limits(guard: Guard | None, outputs: int = DECIDES) -> tuple[Limit, ...]:
    """What a guard asks of so many outputs: entropy, and of enough of them diversity too."""
    if guard is None or guard.threshold is None:
        return ()
    entropy = Limit(ENTROPY.name, ">=", guard.threshold, guard.rule)
    if guard.pairs is None or guard.rule == "mean" or outputs < DECIDES:
        return (entropy,)
    return entropy, Limit(DIVERSITY.name, ">=", MARGIN, least=DECIDES)


@dataclass(frozen=True)
class Drawn:
    """What was measured on the first outputs of a candidate."""

    objective: Statistic
    limits: tuple[Statistic, ...] = ()


Measure = Callable[[Sequence[tuple[C, int]]], Sequence[Drawn]]
"""Some candidates, each with the number of its first outputs that are wanted."""


@dataclass(frozen=True)
class Rules:
    """What is sought, and how carefully."""

    best: Literal["min", "max"] = "min"
    limits: tuple[Limit, ...] = ()
    first: int = 8
    """Outputs that a candidate starts with."""
    most: int = 64
    """The most outputs of a candidate."""
    sure: int = 32
    """Outputs that the choice has at least."""
    tolerance: float = 0.02
    """A share of the leader's value: who cannot beat it by more stops."""
    level: float = 0.95
    log: bool = False
    """Whether objectives are compared by their ratio: perplexities."""

    @property
    def sign(self) -> int:
        """By which values are multiplied so that less is better."""
        return 1 if self.best == "min" else -1


@dataclass
class Arm(Generic[C]):
    """One candidate."""

    candidate: C
    drawn: Drawn
    state: State = "in doubt"
    why: str = ""

    @property
    def n(self) -> int:
        """Outputs that it was given."""
        return self.drawn.objective.outputs

    @property
    def value(self) -> float:
        """Its objective."""
        return self.drawn.objective.value


@dataclass
class Race(Generic[C]):
    """Candidates under rules, and what was spent on them."""

    measure: Measure[C]
    rules: Rules
    budget: int
    arms: dict[C, Arm[C]] = field(default_factory=dict)
    path: list[tuple[int, C | None]] = field(default_factory=list)
    """After every round: the outputs spent so far, and who led."""

    @property
    def spent(self) -> int:
        """Outputs of all candidates."""
        return sum(arm.n for arm in self.arms.values())

    @property
    def leader(self) -> Arm[C] | None:
        """The best of those with the most outputs among all that hold the limits for sure."""
        sure = [arm for arm in self.arms.values() if self._holds(arm) is True]
        sure = [arm for arm in sure if math.isfinite(arm.value)]
        most = max((arm.n for arm in sure), default=0)
        sign = self.rules.sign
        return min((a for a in sure if a.n == most), key=lambda a: sign * a.value, default=None)

    def interval(self, arm: Arm[C], minus: Arm[C] | None = None) -> Interval:
        """Of an objective, or of the difference of two; of logarithms, if the rules say so."""
        other = None if minus is None else minus.drawn.objective
        return jackknife(arm.drawn.objective, self.rules.level, other, log=self.rules.log)

    def run(self, candidates: Iterable[C] = (), budget: int | None = None) -> None:
        """Let candidates join, and go on until nothing is in doubt or the budget is spent."""
        budget = self.budget if budget is None else min(budget, self.budget)
        new = [candidate for candidate in dict.fromkeys(candidates) if candidate not in self.arms]
        wanted = [(candidate, self.rules.first) for candidate in new] or self._wanted()
        while wanted and self._give(wanted, budget):
            wanted = self._wanted()

    def _give(self, wanted: Sequence[tuple[C, int]], budget: int) -> bool:
        """Draw for as many candidates as the budget pays, in order; False if for none."""
        leader = self.leader
        reserved = 0  # for the leader, which must have enough outputs in the end
        if leader is not None and leader.candidate not in [candidate for candidate, _ in wanted]:
            reserved = max(0, self.rules.sure - leader.n)
        left, paid = budget - self.spent - reserved, []
        for candidate, n in wanted:
            cost = n - (self.arms[candidate].n if candidate in self.arms else 0)
            if 0 < cost <= left:
                left -= cost
                paid.append((candidate, n))
        if not paid:
            return False
        for (candidate, _), drawn in zip(paid, self.measure(paid), strict=True):
            arm = self.arms.setdefault(candidate, Arm(candidate, drawn))
            arm.drawn = drawn
        leader = self.leader
        self.path.append((self.spent, None if leader is None else leader.candidate))
        return True

    def _wanted(self) -> list[tuple[C, int]]:
        """Which candidates get more outputs, the most promising first; sets the state of all."""
        rules, leader = self.rules, self.leader
        for arm in self.arms.values():
            arm.state, arm.why = self._state(arm, leader)
        rivals = [arm for arm in self.arms.values() if arm.state == "in doubt"]
        most = rules.most if leader is None else leader.n
        behind = [arm for arm in rivals if arm.n < most]
        if behind:
            fewest = min(arm.n for arm in behind)
            chosen = [arm for arm in behind if arm.n == fewest]
        elif leader is None:
            chosen = []
        else:
            wider = bool(rivals) and leader.n < rules.most
            chosen = [leader, *rivals] if wider else [leader] if leader.n < rules.sure else []
        chosen.sort(key=self._promise)
        return [(arm.candidate, min(2 * arm.n, rules.most)) for arm in chosen]

    def _state(self, arm: Arm[C], leader: Arm[C] | None) -> tuple[State, str]:
        if arm is leader:
            return "leads", ""
        holds = self._holds(arm)
        if holds is False:
            return "over the limit", self._broken_limits(arm)
        if leader is not None:
            sign = self.rules.sign
            difference = self.interval(arm, leader)
            low = difference.ends[0] if sign > 0 else -difference.ends[1]
            unit = 1.0 if self.rules.log else abs(leader.value)
            if low > -self.rules.tolerance * unit:
                return "worse", ""
        if holds:
            return "in doubt", ""
        if not all(
            self._decidable(arm, limit, statistic) for limit, statistic in self._limits(arm)
        ):
            return "too near the limit", ""
        return "in doubt", "a limit is in doubt"

    def _decidable(self, arm: Arm[C], limit: Limit, statistic: Statistic) -> bool:
        """Whether the most outputs could show that it holds, were it a standard error better."""
        interval = jackknife(statistic, self.rules.level, cut=False)
        if not interval.bounded:
            return True
        half = interval.half
        better = half / student(self.rules.level, len(statistic.columns) - 1)
        return limit.excess(interval.value) <= better - half * math.sqrt(arm.n / self.rules.most)

    def _holds(self, arm: Arm[C]) -> bool | None:
        """Whether it is inside all limits: for sure, surely not, or None."""
        ends = [
            limit.side_of(jackknife(statistic, self.rules.level))
            for limit, statistic in self._limits(arm)
        ]
        return False if False in ends else None if None in ends else True

    def _broken_limits(self, arm: Arm[C]) -> str:
        sides = [
            (limit, limit.side_of(jackknife(statistic, self.rules.level)))
            for limit, statistic in self._limits(arm)
        ]
        return ", ".join(str(limit) for limit, side in sides if side is False)

    def _limits(self, arm: Arm[C]) -> Iterable[tuple[Limit, Statistic]]:
        return zip(self.rules.limits, arm.drawn.limits, strict=True)

    def _promise(self, arm: Arm[C]) -> float:
        """The best that its objective may be."""
        interval = jackknife(arm.drawn.objective, self.rules.level, log=self.rules.log, cut=False)
        return interval.ends[0] if self.rules.sign > 0 else -interval.ends[1]


# ---------------------------------------------------------------------------------------- propose

ENUMERATED = 32
"""Settings up to which all are tried."""
WAVE = 8
"""Proposals at a time."""
JOURNAL = "journal.log"


def search(
    space: Space,
    measure: Measure[SamplerSpec],
    rules: Rules,
    *,
    budget: int,
    folder: Path,
    seed: int = 0,
    enumerated: int = ENUMERATED,
) -> Race[SamplerSpec]:
    """Spend at most `budget` outputs on a space; the journal, if one is needed, is in `folder`."""
    race: Race[SamplerSpec] = Race(measure, rules, budget)
    settings = space.settings(enumerated)
    if settings is not None:
        if len(settings) * rules.first > budget:
            # What is tried is then a random part of the space, not its first corner.
            random.Random(derive_seed(seed, "enumerate")).shuffle(settings)
        race.run(settings)
        return race
    waves = max(1, budget // (2 * rules.first * WAVE))
    proposer = Proposer(space, rules, folder, seed)
    for wave in range(waves):
        # A part of the budget each, so that the first wave's doubts do not spend it all.
        race.run(proposer.wave(wave), budget * (wave + 1) // (waves + 1))
        proposer.tell(wave, race)
    race.run()
    return race


class Proposer:
    """Optuna's proposals for one space under one set of rules."""

    def __init__(self, space: Space, rules: Rules, folder: Path, seed: int) -> None:
        self._space, self._rules, self._folder, self._seed = space, rules, folder, seed
        limits = [str(limit) for limit in rules.limits]
        identity = {**space.document(), "best": rules.best, "limits": limits, "seed": seed}
        identity |= {"first": rules.first, "most": rules.most, "tolerance": rules.tolerance}
        text = json.dumps(identity, sort_keys=True, default=str)
        self._name = hashlib.sha256(text.encode()).hexdigest()[:16]

    def wave(self, number: int) -> list[SamplerSpec]:
        """The candidates of a wave: as they were proposed, or proposed now."""
        first = number * WAVE
        with self._journal() as storage:
            for at in range(first, first + WAVE):
                study = self._study(storage, at)
                proposed = len(study.trials)
                if at < proposed:
                    continue
                trial = study.ask()
                spec = self._proposed(trial, at)
                document = None if spec is None else spec.model_dump(mode="json")
                trial.set_user_attr("spec", document)
            trials = self._study(storage, first).trials[first : first + WAVE]
        documents = [trial.user_attrs["spec"] for trial in trials]
        return [SamplerSpec(**document) for document in documents if document is not None]

    def tell(self, number: int, race: Race[SamplerSpec]) -> None:
        """What became of a wave, for the next proposals."""
        from optuna.trial import TrialState

        first = number * WAVE
        with self._journal() as storage:
            study = self._study(storage, first)
            for trial in study.trials[first : first + WAVE]:
                if trial.state.is_finished():
                    continue
                document = trial.user_attrs["spec"]
                arm = None if document is None else race.arms.get(SamplerSpec(**document))
                if arm is None:
                    study.tell(trial.number, state=TrialState.FAIL)
                    continue
                storage.set_trial_user_attr(trial._trial_id, "excess", self._excess(arm))
                study.tell(trial.number, self._rules.sign * arm.value)

    def _excess(self, arm: Arm[SamplerSpec]) -> list[float]:
        pairs = zip(self._rules.limits, arm.drawn.limits, strict=True)
        return [limit.excess(statistic.value) for limit, statistic in pairs]

    def _proposed(self, trial: Any, at: int) -> SamplerSpec | None:
        """The setting of a trial; None where its values do not go together.

        The first one is where every axis is at its default, if the space has that.
        """
        space = self._space
        names = space.samplers
        usual = self._usual() if at == 0 else None
        if usual is not None:
            return usual
        [name] = names if len(names) == 1 else [trial.suggest_categorical("name", names)]
        values = {axis.name: _suggestion(trial, axis) for axis in space.axes_of(name)}
        try:
            return space.spec(name, values)
        except UserError:
            return None

    def _usual(self) -> SamplerSpec | None:
        space = self._space
        spec = space.spec(space.samplers[0], {})
        values = space.values(spec)
        inside = all(_inside(axis, values[axis.name]) for axis in space.axes_of(spec.name))
        return spec if inside else None

    @contextmanager
    def _journal(self) -> Iterator[Any]:
        """Optuna's storage, held alone; what a killed process left half proposed is cut off."""
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        with disk(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / JOURNAL
        with locked(self._folder), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of parts that Optuna calls experimental
            verbosity = optuna.logging.get_verbosity()
            optuna.logging.set_verbosity(optuna.logging.ERROR)
            try:
                with disk(path):
                    _mend(path)
                held: Any = _Held()
                yield JournalStorage(JournalFileBackend(str(path), lock_obj=held))
            finally:
                optuna.logging.set_verbosity(verbosity)

    def _study(self, storage: Any, at: int) -> Any:
        """The study with a sampler of the seed that belongs to proposal number `at`."""
        import optuna

        limited = (
            (lambda trial: trial.user_attrs.get("excess", [0.0])) if self._rules.limits else None
        )
        sampler = optuna.samplers.TPESampler(
            seed=derive_seed(self._seed, "propose", at) % 2**32,
            n_startup_trials=WAVE,
            multivariate=True,
            group=True,
            constant_liar=True,
            constraints_func=limited,
        )
        return optuna.create_study(
            storage=storage, sampler=sampler, study_name=self._name, load_if_exists=True
        )


class _Held:
    """Optuna's lock of the journal, where it is held already."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


def _mend(path: Path) -> None:
    """Cut off a last line that is not whole, and a last proposal that has no setting yet.

    Asked again with half of its values there, Optuna would propose something else.
    """
    if not path.exists():
        return
    content = path.read_bytes()
    end, offset, begun = content.rfind(b"\n") + 1, 0, None
    for line in content[:end].splitlines(keepends=True):
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise UserError(
                "The journal of proposals is damaged.",
                where=path,
                got=str(error),
                expected="one JSON document per line",
                fix=f"restore {path}, or start anew with `force`",
            ) from None
        if "datetime_start" in entry:
            begun = offset
        elif "spec" in entry.get("user_attr", {}):
            begun = None
        offset += len(line)
    end = end if begun is None else begun
    if end < len(content):
        with open(path, "r+b") as file:
            file.truncate(end)


def _suggestion(trial: Any, axis: Axis) -> Any:
    if axis.values:
        return trial.suggest_categorical(axis.name, axis.values)
    if axis.whole:
        step = 1 if axis.log else int(axis.step or 1)
        low, high = int(axis.low), int(axis.high)
        return axis.value(trial.suggest_int(axis.name, low, high, step=step, log=axis.log))
    low, high = axis.low, axis.high
    return axis.value(trial.suggest_float(axis.name, low, high, step=axis.step, log=axis.log))


def _inside(axis: Axis, value: Any) -> bool:
    if axis.listed is not None:
        return value in axis.listed
    return axis.low <= value <= axis.high
