"""Who proposes: a small space is enumerated, in a larger one Optuna proposes waves of candidates.

Optuna's journal is a file of the run. Every proposal has a seed of its own, made from its number,
and sees the waves before it alone; so a search that was killed goes on as if it had not been, and
processes that work on one run propose the same. Whoever is first writes; the journal is held by a
lock that its holder's death releases.
"""

from __future__ import annotations

import hashlib
import json
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from strop.disk import disk, locked
from strop.errors import UserError
from strop.rng import derive_seed
from strop.spec.generator import SamplerSpec
from strop.tuning.race import Arm, Measure, Race, Rules
from strop.tuning.space import Axis, Space

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
