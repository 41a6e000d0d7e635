"""Tuning one side: the best setting of a space that a budget of outputs finds.

    found = tuned(model, ["temperature=0.6:1.1"], Scorers([load]), out="runs/a", steps=16)
    found.sampler, found.spent, found.tried

Everything that is drawn lies in ordinary cells of the run `out`; the same call finds it there and
answers the same, also after it was killed. Report its gain on outputs under another seed: the best
of many noisy numbers looks better than it is.
"""

from __future__ import annotations

import math
import os
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from strop.errors import UserError
from strop.measure.metric import Number
from strop.records.record import SAMPLERS, default_sampler
from strop.spec.generator import GeneratorSpec, SamplerSpec
from strop.stats.interval import Interval
from strop.stats.resample import jackknife
from strop.tuning.race import Arm, Drawn, Limit, Race, Rules, guard_limits
from strop.tuning.space import Axis, Space, fitting

if TYPE_CHECKING:
    from strop.denoisers import Model
    from strop.engine.plan import Progress
    from strop.measure.cells import Scorers
    from strop.measure.guard import Guard
    from strop.prompts.canvas import Canvases

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
        pairs = [limit(text) for text in self.constraints]
        for held in guard_limits(guard, self.most) if self.guard else ():
            # Few outputs seldom show that diversity holds: a search drops what surely breaks it.
            racing = replace(held, by="unbroken") if held.least else held
            pairs.append((Number.of(held.name), racing))
        number = Number.resampled(self.objective)
        best = self.best or number.best
        sure = min(self.most, 4 * self.first)
        limits = tuple(bound for _, bound in pairs)
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
    notes: tuple[str, ...]
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
            of_form = [pair for pair in wanted if pair[0].implementation == form]
            if wanted and not of_form:
                continue
            pools = sample_cells(
                self._model,
                [spec for spec, _ in of_form],
                n=[n for _, n in of_form],
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
            ids |= {spec: pool.spec.id for (spec, _), pool in zip(of_form, pools, strict=True)}
        run = Run.open(self._out)
        return [run.cell(ids[spec]) for spec, _ in wanted]

    def race(
        self, objective: Number, limits: Sequence[Number]
    ) -> Callable[[Sequence[tuple[SamplerSpec, int]]], list[Drawn]]:
        """As a race measures."""
        from strop.measure.cells import measure

        names = [number.name for number in (objective, *limits)]

        def drawn(wanted: Sequence[tuple[SamplerSpec, int]]) -> list[Drawn]:
            cells = self.cells(wanted)
            measured: dict[int, Drawn] = {}
            order = list(range(len(cells)))
            # Processes that work on one run score different cells first.
            random.Random(os.getpid()).shuffle(order)
            for i in order:
                [row] = measure(
                    [cells[i]], names, self._by, guard=self._guard, outputs=(0, wanted[i][1])
                )
                held = tuple(row.statistic(number) for number in limits)
                measured[i] = Drawn(row.statistic(objective), held)
            return [measured[i] for i in range(len(cells))]

        return drawn


def limit(text: str) -> tuple[Number, Limit]:
    """From `metric>=value` or `metric<=value`."""
    match = LIMIT.fullmatch(str(text))
    try:
        value = float(match[3]) if match else math.nan
    except ValueError:
        value = math.nan
    if match is None or not math.isfinite(value):
        raise UserError(
            "A constraint cannot be read.",
            where="`constraint`",
            got=repr(text),
            expected="metric>=value or metric<=value, such as repetition<=0.2",
        )
    number = Number.resampled(match[1], "`constraint`")
    side: Any = match[2]
    return number, Limit(number.name, side, value)


def usual(family: str, sampler: str | None = None) -> tuple[str, ...]:
    """The space where none is given: without precisions where the sampler draws in one."""
    facts = SAMPLERS.find(sampler or default_sampler(family), "`sampler`")
    return USUAL if facts.fast is None or "float32" in facts.fast_precisions else USUAL[:1]


def side_space(family: str, axes: Sequence[Axis | str], steps: int | None, **fixed: Any) -> Space:
    """The space of a family's samplers at a budget; steps that are an axis stay one."""
    from strop.tuning.space import parse

    read = [axis if isinstance(axis, Axis) else parse([axis])[0] for axis in axes]
    sampler_name = fixed.pop("sampler", None) or default_sampler(family)
    named = any(axis.name == "steps" for axis in read)
    if steps is not None and not named and not SAMPLERS.find(sampler_name, "`sampler`").causal:
        fixed["steps"] = steps
    space = Space.of(read, sampler_name, fixed)
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
    from strop.tuning.race import search as run_search

    goal = search or Search()
    if not isinstance(space, Space):
        space = side_space(model.spec.family, tuple(space) or usual(model.spec.family), steps)
    if guard is None:
        guard = guard_of(plain_generator(model, length, canvases))
    rules, limits = goal.rules(guard)
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
    race = run_search(
        space,
        bench.race(Number.of(goal.objective), limits),
        rules,
        budget=goal.budget,
        folder=Path(out) / FOLDER,
        seed=seed,
    )
    return outcome(race, space)


def outcome(race: Race[SamplerSpec], space: Space) -> Tuned:
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
        notes=(*space.skipped, *_left_out(race, space)),
        path=tuple(race.path),
    )


def _left_out(race: Race[SamplerSpec], space: Space) -> list[str]:
    """Settings of a small space that there were no outputs for."""
    from strop.tuning.race import ENUMERATED

    settings = space.settings(ENUMERATED) or ()
    if len(race.arms) >= len(settings):
        return []
    return [
        f"the budget of {race.budget} outputs was enough for {len(race.arms)} of {len(settings)} "
        "settings: the others were not tried"
    ]


def _order(arm: Arm[SamplerSpec], race: Race[SamplerSpec]) -> tuple[int, float]:
    places = ("leads", "in doubt", "worse", "too near the limit", "over the limit")
    return places.index(arm.state), race.rules.sign * arm.value


def _tried(arm: Arm[SamplerSpec], race: Race[SamplerSpec]) -> Tried:
    level = race.rules.level
    limits = tuple(jackknife(statistic, level) for statistic in arm.drawn.limits)
    interval = race.interval(arm)
    objective = replace(interval.exp(), value=arm.value) if race.rules.log else interval
    return Tried(arm.candidate, arm.n, objective, limits, arm.state, arm.why)


def plain_generator(model: Model, length: int | None, canvases: Canvases | None) -> GeneratorSpec:
    """A checkpoint with its family's sampler: what a guard depends on."""
    from strop.denoisers.base import usable_length

    size = usable_length(model, length) if canvases is None else canvases.length
    sampler = SamplerSpec(name=default_sampler(model.spec.family))
    prompts = None if canvases is None else canvases.spec
    return GeneratorSpec.of(model.spec, sampler, size, prompts)
