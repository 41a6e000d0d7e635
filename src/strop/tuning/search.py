"""Tuning one side: the best setting of a space that a budget of outputs finds.

    found = tuned(model, ["temperature=0.6:1.1"], Scorers([load]), out="runs/a", steps=16)
    found.sampler, found.spent, found.tried

Everything that is drawn lies in ordinary cells of the run `out`; the same call finds it there and
answers the same, also after it was killed. Report its gain on outputs under another seed: the best
of many noisy numbers looks better than it is.

Who proposes: a small space is enumerated, in a larger one Optuna proposes waves of candidates.

Optuna's journal is a file of the run. Every proposal has a seed of its own, made from its number,
and sees the waves before it alone; so a search that was killed goes on as if it had not been, and
processes that work on one run propose the same. Whoever is first writes; the journal is held by a
lock that its holder's death releases.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from strop.disk import disk, locked
from strop.errors import UserError
from strop.measure.metric import Number
from strop.records.record import SAMPLERS, default_sampler
from strop.rng import derive_seed
from strop.spec.generator import GeneratorSpec, SamplerSpec
from strop.stats.interval import Interval
from strop.stats.resample import jackknife
from strop.tuning.race import Arm, Drawn, Limit, Measure, Race, Rules, guard_limits
from strop.tuning.space import Axis, Space, fitting

if TYPE_CHECKING:
    from strop.denoisers import Model
    from strop.engine.plan import Progress
    from strop.measure.cells import Scorers
    from strop.measure.guard import Guard
    from strop.prompts.canvas import Canvases


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
    every = space.settings(enumerated)
    if every is not None:
        if len(every) * rules.first > budget:
            # What is tried is then a random part of the space, not its first corner.
            random.Random(derive_seed(seed, "enumerate")).shuffle(every)
        race.run(every)
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
        limits = [str(one) for one in rules.limits]
        asked = {**space.document(), "best": rules.best, "limits": limits, "seed": seed}
        asked |= {"first": rules.first, "most": rules.most, "tolerance": rules.tolerance}
        text = json.dumps(asked, sort_keys=True, default=str)
        self._name = hashlib.sha256(text.encode()).hexdigest()[:16]

    def wave(self, number: int) -> list[SamplerSpec]:
        """The candidates of a wave: as they were proposed, or proposed now."""
        first = number * WAVE
        with self._journal() as storage:
            for at in range(first, first + WAVE):
                study = self._study(storage, at)
                known = len(study.trials)
                if at < known:
                    continue
                trial = study.ask()
                spec = self._proposed(trial, at)
                document = None if spec is None else spec.model_dump(mode="json")
                trial.set_user_attr("spec", document)
            trials = self._study(storage, first).trials[first : first + WAVE]
        found = [trial.user_attrs["spec"] for trial in trials]
        return [SamplerSpec(**one) for one in found if one is not None]

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
        return [limit.excess(one.value) for limit, one in pairs]

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
        values = {axis.name: _suggested(trial, axis) for axis in space.axes_of(name)}
        try:
            return space.spec(name, values)
        except UserError:
            return None

    def _usual(self) -> SamplerSpec | None:
        space = self._space
        spec = space.spec(space.samplers[0], {})
        values = space.values(spec)
        inside = all(_inside(one, values[one.name]) for one in space.axes_of(spec.name))
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
            said = optuna.logging.get_verbosity()
            optuna.logging.set_verbosity(optuna.logging.ERROR)
            try:
                with disk(path):
                    _mend(path)
                held: Any = _Held()
                yield JournalStorage(JournalFileBackend(str(path), lock_obj=held))
            finally:
                optuna.logging.set_verbosity(said)

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
    whole, place, begun = content.rfind(b"\n") + 1, 0, None
    for line in content[:whole].splitlines(keepends=True):
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
            begun = place
        elif "spec" in entry.get("user_attr", {}):
            begun = None
        place += len(line)
    whole = whole if begun is None else begun
    if whole < len(content):
        with open(path, "r+b") as file:
            file.truncate(whole)


def _suggested(trial: Any, axis: Axis) -> Any:
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


# ----------------------------------------------------------------------------------------- search

BUDGET = 512
USUAL = ("temperature=0.6:1.1", "precision=float64,float32")
"""The space where none is given, of samplers that draw in both precisions."""
LIMIT = re.compile(r"\s*([a-z][a-z0-9._-]*)\s*(>=|<=)\s*(\S+)\s*")
FOLDER = "tune"
"""Of a run: where Optuna's journal lies."""


@dataclass(frozen=True)
class Search:
    """What is sought, and what it may cost."""

    objective: str = "perplexity"
    """A metric or one of its numbers; see `strop.measure.metric`."""
    best: Literal["min", "max"] | None = None
    """None: as the metric has it."""
    constraints: tuple[str, ...] = ()
    guard: bool = True
    """Whether the guard, where there is one, is a constraint: entropy, and diversity."""
    budget: int = BUDGET
    """Outputs of all candidates together."""
    first: int = Rules.first
    most: int = Rules.most
    tolerance: float = Rules.tolerance

    def rules(self, guard: Guard | None) -> tuple[Rules, tuple[Number, ...]]:
        """For the race: how to compare, and what the limits are read from."""
        pairs = [limit(one) for one in self.constraints]
        for one in guard_limits(guard, self.most) if self.guard else ():
            # Few outputs seldom show that diversity holds: a search drops what surely breaks it.
            racing = replace(one, by="unbroken") if one.least else one
            pairs.append((Number.of(one.name), racing))
        number = Number.resampled(self.objective)
        best = self.best or number.best
        sure = min(self.most, 4 * self.first)
        limits = tuple(one for _, one in pairs)
        rules = Rules(best, limits, self.first, self.most, sure, self.tolerance, log=number.log)
        return rules, tuple(limited for limited, _ in pairs)


@dataclass(frozen=True)
class Tried:
    """One candidate, and what became of it."""

    sampler: SamplerSpec
    outputs: int
    objective: Interval
    limits: tuple[Interval, ...]
    state: str
    """`leads`, `worse`, `over` or `too near the limit`, `in doubt` when the outputs ran out."""
    why: str = ""


@dataclass(frozen=True)
class Tuned:
    """What a search found."""

    sampler: SamplerSpec
    """The choice, with its steps; without one that holds every limit for sure, see `holds`."""
    holds: bool
    """Whether the choice is inside all limits for sure; if not, it is the least bad one."""
    spent: int
    """Outputs of all candidates, also those that were there already."""
    tried: tuple[Tried, ...]
    """The best first."""
    limits: tuple[Limit, ...]
    edges: tuple[str, ...]
    """Where a wider space might choose otherwise."""
    told: tuple[str, ...]
    """What was skipped, and what the budget did not reach."""
    path: tuple[tuple[int, SamplerSpec | None], ...] = ()
    """Who led after how many outputs."""


class Bench:
    """Draws and scores candidates of one checkpoint into the cells of a run."""

    def __init__(
        self,
        model: Model,
        out: str | os.PathLike[str],
        by: Scorers,
        *,
        seed: int = 0,
        length: int | None = None,
        canvases: Canvases | None = None,
        batch: int = 8,
        guard: Guard | None = None,
        progress: Progress | None = None,
    ) -> None:
        """`guard` is what entropy is held against; None: that of the run."""
        self._model, self._out, self._by, self._guard = model, out, by, guard
        self._seed, self._length, self._canvases = seed, length, canvases
        self._batch, self._progress = batch, progress

    def cells(self, wanted: Sequence[tuple[SamplerSpec, int]]) -> list[Any]:
        """The cells with at least so many outputs each; for nothing, a run without cells."""
        from strop.draw import sample_cells
        from strop.store import Run

        ids: dict[SamplerSpec, str] = {}
        for form in ("fast", "dense"):
            mine = [pair for pair in wanted if pair[0].implementation == form]
            if wanted and not mine:
                continue
            pools = sample_cells(
                self._model,
                [spec for spec, _ in mine],
                n=[n for _, n in mine],
                seed=self._seed,
                length=self._length,
                canvases=self._canvases,
                # The batch is part of what a dense sampler draws: the same for every number.
                batch_size=self._batch if form == "dense" else None,
                out=self._out,
                grow=True,
                progress=self._progress,
                engine=self._by.engine,
            )
            ids |= {spec: pool.spec.id for (spec, _), pool in zip(mine, pools, strict=True)}
        run = Run.open(self._out)
        return [run.cell(ids[spec]) for spec, _ in wanted]

    def race(
        self, objective: Number, limits: Sequence[Number]
    ) -> Callable[[Sequence[tuple[SamplerSpec, int]]], list[Drawn]]:
        """As a race measures."""
        from strop.measure.cells import measure

        names = [one.name for one in (objective, *limits)]

        def drawn(wanted: Sequence[tuple[SamplerSpec, int]]) -> list[Drawn]:
            cells = self.cells(wanted)
            found: dict[int, Drawn] = {}
            order = list(range(len(cells)))
            # Processes that work on one run score different cells first.
            random.Random(os.getpid()).shuffle(order)
            for i in order:
                [row] = measure(
                    [cells[i]], names, self._by, guard=self._guard, outputs=(0, wanted[i][1])
                )
                held = tuple(row.statistic(one) for one in limits)
                found[i] = Drawn(row.statistic(objective), held)
            return [found[i] for i in range(len(cells))]

        return drawn


def limit(text: str) -> tuple[Number, Limit]:
    """From `metric>=value` or `metric<=value`."""
    found = LIMIT.fullmatch(str(text))
    try:
        value = float(found[3]) if found else math.nan
    except ValueError:
        value = math.nan
    if found is None or not math.isfinite(value):
        raise UserError(
            "A constraint cannot be read.",
            where="`constraint`",
            got=repr(text),
            expected="metric>=value or metric<=value, such as repetition<=0.2",
        )
    number = Number.resampled(found[1], "`constraint`")
    side: Any = found[2]
    return number, Limit(number.name, side, value)


def usual(family: str, sampler: str | None = None) -> tuple[str, ...]:
    """The space where none is given: without precisions where the sampler draws in one."""
    facts = SAMPLERS.find(sampler or default_sampler(family), "`sampler`")
    return USUAL if facts.fast is None or "float32" in facts.fast_precisions else USUAL[:1]


def side_space(family: str, axes: Sequence[Axis | str], steps: int | None, **fixed: Any) -> Space:
    """The space of a family's samplers at a budget; steps that are an axis stay one."""
    from strop.tuning.space import parse

    read = [one if isinstance(one, Axis) else parse([one])[0] for one in axes]
    own = fixed.pop("sampler", None) or default_sampler(family)
    named = any(one.name == "steps" for one in read)
    if steps is not None and not named and not SAMPLERS.find(own, "`sampler`").causal:
        fixed["steps"] = steps
    space = Space.of(read, own, fixed)
    for name in space.samplers:
        fitting(family, name, where="`space`")
    return space


def tuned(
    model: Model,
    space: Space | Sequence[str],
    by: Scorers,
    *,
    out: str | os.PathLike[str],
    steps: int | None = None,
    search: Search | None = None,
    guard: Guard | None = None,
    seed: int = 0,
    length: int | None = None,
    canvases: Canvases | None = None,
    progress: Progress | None = None,
) -> Tuned:
    """The best setting of a space that the outputs of a budget find, drawn into the run `out`.

    `space` are axes such as `temperature=0.6:1.1`, of the family's own sampler at `steps`; without
    any, temperature and precision. `search` says what is sought; by default the lowest perplexity
    above the entropy guard. `guard` is that of the generator's length unless another is given.
    """
    from strop.measure.guard import guard_of

    asked = search or Search()
    if not isinstance(space, Space):
        space = side_space(model.spec.family, tuple(space) or usual(model.spec.family), steps)
    if guard is None:
        guard = guard_of(plain_generator(model, length, canvases))
    rules, limits = asked.rules(guard)
    bench = Bench(
        model,
        out,
        by,
        seed=seed,
        length=length,
        canvases=canvases,
        batch=rules.first,
        guard=guard,
        progress=progress,
    )
    bench.cells(())  # the directory is a run before a journal lies in it
    race = search(
        space,
        bench.race(Number.of(asked.objective), limits),
        rules,
        budget=asked.budget,
        folder=Path(out) / FOLDER,
        seed=seed,
    )
    return found(race, space)


def found(race: Race[SamplerSpec], space: Space) -> Tuned:
    """What a race came to."""
    if not race.arms and race.budget >= race.rules.first:
        raise UserError(
            "The samplers refuse every combination of the space.",
            where="`space`",
            got=", ".join(space.document()["axes"]),
        )
    if not race.arms:
        raise UserError(
            "The budget is too small for a single candidate.",
            where="`budget`",
            got=race.budget,
            expected=f"at least {race.rules.first} outputs",
        )
    ordered = sorted(race.arms.values(), key=lambda arm: _order(arm, race))
    best = ordered[0]
    return Tuned(
        sampler=best.candidate,
        holds=best.state == "leads",
        spent=race.spent,
        tried=tuple(_tried(arm, race) for arm in ordered),
        limits=race.rules.limits,
        edges=space.edges(best.candidate),
        told=(*space.told, *_left_out(race, space)),
        path=tuple(race.path),
    )


def _left_out(race: Race[SamplerSpec], space: Space) -> list[str]:
    """Settings of a small space that there were no outputs for."""
    every = space.settings(ENUMERATED) or ()
    if len(race.arms) >= len(every):
        return []
    return [
        f"the budget of {race.budget} outputs was enough for {len(race.arms)} of {len(every)} "
        "settings: the others were not tried"
    ]


def _order(arm: Arm[SamplerSpec], race: Race[SamplerSpec]) -> tuple[int, float]:
    places = ("leads", "in doubt", "worse", "too near the limit", "over the limit")
    return places.index(arm.state), race.rules.sign * arm.value


def _tried(arm: Arm[SamplerSpec], race: Race[SamplerSpec]) -> Tried:
    level = race.rules.level
    limits = tuple(jackknife(one, level) for one in arm.drawn.limits)
    found = race.interval(arm)
    objective = replace(found.exp(), value=arm.value) if race.rules.log else found
    return Tried(arm.candidate, arm.n, objective, limits, arm.state, arm.why)


def plain_generator(model: Model, length: int | None, canvases: Canvases | None) -> GeneratorSpec:
    """A checkpoint with its family's sampler: what a guard depends on."""
    from strop.denoisers.base import usable_length

    size = usable_length(model, length) if canvases is None else canvases.length
    sampler = SamplerSpec(name=default_sampler(model.spec.family))
    prompts = None if canvases is None else canvases.spec
    return GeneratorSpec.of(model.spec, sampler, size, prompts)
