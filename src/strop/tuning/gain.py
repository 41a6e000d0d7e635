"""Which sampler to deploy: the choice, its gain on fresh outputs, and the decision in a sentence.

A named rule chooses from a frame:

    frozen       one setting for all budgets: the lowest perplexity (geometric mean over the
                 budgets) among the settings that pass the entropy guard at more than half of them
    sharpest     the lowest mean entropy among the same settings (the paper's rule, where cells
                 pass the guard by their mean)
    per-budget   for each budget, the lowest perplexity among the settings that pass the guard there

A cell passes if it is `above` the guard, by entropy and by diversity, or if there is none. A rule
only sees the frame it is given. Choosing the best of many noisy numbers flatters the choice, so the
choice is written and hashed, and its gain is then measured on fresh outputs.

A choice is a recommendation if something bounded its sharpness, its fresh outputs hold every limit,
and its gain is shown: the whole interval is on the better side. Intervals of gains hold together
for all rows of a table (`family_level`), because a reader looks at all of them.

The decision says which sampler to use, with how many steps, and what that costs. The reference is
the standard sampler with the most steps. `fewest-steps` takes the fewest steps whose perplexity on
fresh outputs is surely within a share of the reference's; `best` takes, of the recommended
settings, the one with the lowest perplexity in the table, and reports it on fresh outputs. Both
look at recommended settings, and `fewest-steps` also at the standard sampler with fewer steps.
Where nothing qualifies, the sentence says so and why.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from strop.errors import UserError, unknown_name
from strop.measure.across import DECIDES, MARGIN
from strop.measure.metric import Number
from strop.records.record import SAMPLERS
from strop.spec.generator import OperatingPoint, SamplerSpec
from strop.spec.value import MetricSpec
from strop.stats.interval import LEVEL, Interval
from strop.stats.resample import jackknife
from strop.tuning.race import Limit, guard_limits

if TYPE_CHECKING:
    from strop.measure.frame import Measured


# ----------------------------------------------------------------------------------------- choice

Rule = Literal["frozen", "sharpest", "per-budget"]
RULES: tuple[Rule, ...] = ("frozen", "sharpest", "per-budget")


@dataclass(frozen=True)
class Choice:
    """The setting of one budget, and what was known of it before any fresh output."""

    budget: str
    """In words: `M = 16`, or `16 calls`."""
    steps: int
    point: OperatingPoint
    holds: bool = True
    """Whether some setting qualified; if not, this is the least bad one."""
    passes: bool = True
    """Whether it was inside every limit at this budget; a frozen setting may fail at some."""
    edges: tuple[str, ...] = ()
    """Where a wider grid or space might choose otherwise."""
    limits: tuple[Limit, ...] = ()
    """What its fresh outputs must hold, too."""

    @property
    def sampler(self) -> SamplerSpec:
        """With its steps."""
        return self.point.at(self.steps)


@dataclass(frozen=True)
class Candidate:
    """What a rule needs to know of one cell."""

    steps: int
    point: OperatingPoint
    perplexity: float
    entropy: float
    passes: bool
    """Whether it is above the guard, or there is none."""


@dataclass(frozen=True)
class Selection:
    """A rule's answer, with what it was chosen from."""

    rule: Rule
    choices: tuple[Choice, ...]
    """One per budget, by steps."""
    candidates: int
    """Settings that were looked at, per budget."""
    cells: int
    """Cells that were looked at in all: the search budget."""

    def document(self) -> dict[str, Any]:
        """Plain data, to be written before anything is judged."""
        return {
            "rule": self.rule,
            "picks": [
                {
                    "steps": choice.steps,
                    "point": str(choice.point),
                    "sampler": choice.point.fields(),
                    "passes": choice.passes,
                    "at_edge": list(choice.edges),
                }
                for choice in self.choices
            ],
            "candidates": self.candidates,
            "cells": self.cells,
        }


def choose(frame: Sequence[Measured], rule: str) -> Selection:
    """Apply a rule to the rows of a frame, which are held against one guard."""
    candidates = [
        Candidate(
            row.steps,
            row.point,
            row.perplexity().value,
            row.entropy.value if row.entropy is not None else 0.0,
            row.verdict in ("above", None),
        )
        for row in frame
    ]
    return select(candidates, rule, guard_limits(frame[0].guard if frame else None))


def select(table: Sequence[Candidate], rule: str, limits: tuple[Limit, ...] = ()) -> Selection:
    """Apply a rule to a full table: every setting measured at every budget."""
    if rule not in RULES:
        raise unknown_name("selection rule", rule, RULES)
    cells = {(cell.steps, cell.point): cell for cell in table}
    budgets = sorted({cell.steps for cell in table})
    settings = sorted({cell.point for cell in table}, key=lambda point: point.order)
    missing = [f"{s} at {m}" for m in budgets for s in settings if (m, s) not in cells]
    if not cells or missing:
        raise UserError(
            "A sampler can only be chosen from a full table.",
            got="no cells" if not cells else "nothing for " + ", ".join(missing[:4]),
            expected="every setting measured at every number of steps",
        )
    if rule == "per-budget":
        chosen = {m: _best(cells, m, settings) for m in budgets}
    else:
        chosen = dict.fromkeys(budgets, _frozen(cells, budgets, settings, _LEVELS[rule]))
    choices = tuple(
        Choice(
            f"M = {m}",
            m,
            chosen[m],
            passes=cells[m, chosen[m]].passes,
            edges=_edges(chosen[m], settings),
            limits=limits,
        )
        for m in budgets
    )
    return Selection(rule, choices, len(settings), len(cells))  # type: ignore[arg-type]


_LEVELS: dict[str, Callable[[Candidate], float]] = {
    "frozen": lambda cell: math.log(cell.perplexity),
    "sharpest": lambda cell: cell.entropy,
}
"""What each rule for all budgets keeps as low as the guard allows, in the mean over budgets."""


Cells = dict[tuple[int, OperatingPoint], Candidate]


def _frozen(
    cells: Cells,
    budgets: list[int],
    settings: list[OperatingPoint],
    level: Callable[[Candidate], float],
) -> OperatingPoint:
    def passing(setting: OperatingPoint) -> int:
        return sum(cells[m, setting].passes for m in budgets)

    allowed = [s for s in settings if 2 * passing(s) > len(budgets)]
    if not allowed:
        raise UserError(
            "No setting is above the guard at most budgets.",
            got=", ".join(f"{s}: {passing(s)} of {len(budgets)}" for s in settings[:6]),
            fix="draw more outputs, add higher temperatures, or look at the table: the guard may "
            "not fit this model",
        )
    return min(allowed, key=lambda s: sum(level(cells[m, s]) for m in budgets))


def _best(cells: Cells, steps: int, settings: list[OperatingPoint]) -> OperatingPoint:
    allowed = [s for s in settings if cells[steps, s].passes]
    if not allowed:
        raise UserError(
            "No setting is above the guard at this budget.",
            where=f"{steps} steps",
            fix="draw more outputs, add higher temperatures, or use another rule",
        )
    return min(allowed, key=lambda s: cells[steps, s].perplexity)


def _edges(chosen: OperatingPoint, settings: Sequence[OperatingPoint]) -> tuple[str, ...]:
    """The numeric fields in which the choice is the lowest or highest that was tried."""
    fields, notes = chosen.fields(), []
    for name, value in fields.items():
        if isinstance(value, (bool, str)) or not isinstance(value, (int, float)):
            continue
        others = {k: v for k, v in fields.items() if k != name}
        same = sorted(
            f[name]
            for f in (s.fields() for s in settings)
            if name in f and {k: v for k, v in f.items() if k != name} == others
            if not isinstance(f[name], str)  # a schedule of temperatures has no place among numbers
        )
        if len(same) < 2 or (name == "top_p" and value == 1):
            continue  # nothing else was tried, or nothing else can be
        where = f"{name} tried in {chosen.sampler.precision}"
        if value == same[0]:
            notes.append(f"{value:g} is the lowest {where}")
        if value == same[-1]:
            notes.append(f"{value:g} is the highest {where}")
    return tuple(notes)


# ---------------------------------------------------------------- the record of choices


def hashed(document: Mapping[str, Any]) -> dict[str, Any]:
    """A choice as it is written, with the hash of its canonical JSON."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return {"sha256": hashlib.sha256(text.encode()).hexdigest(), **document}


def write_selection(out: Path, now: Mapping[str, Mapping[str, Any]]) -> str:
    """Write choices with their hashes before anything is judged; earlier ones stay on record."""
    from strop.disk import write
    from strop.store.folder import SELECTION, as_json, damaged, parsed

    digest = hashlib.sha256(
        "".join(choice["sha256"] for choice in now.values()).encode()
    ).hexdigest()
    path = out / SELECTION
    before: list[Any] = []
    try:
        old = parsed(path)
        before = old["earlier"] + ([old["selections"]] if old["sha256"] != digest else [])
    except FileNotFoundError:
        """Nothing was chosen before."""
    except (ValueError, KeyError, TypeError) as error:
        fix = f"restore {path}, or delete it: only the record of earlier choices is lost"
        raise damaged(path, repr(error), fix) from None
    write(path, as_json({"sha256": digest, "selections": now, "earlier": before}))
    return digest


# ------------------------------------------------------------------------------------------- gain


@dataclass(frozen=True)
class Held:
    """A limit against fresh outputs."""

    words: str
    """As it was asked for: `entropy>=3.8`."""
    value: Interval
    holds: bool | None
    """For sure, surely not, or None."""


@dataclass(frozen=True)
class Gain:
    """What the choice of one budget is worth on fresh outputs."""

    choice: Choice
    objective: Interval
    """Of the choice."""
    standard: Interval
    """That of the standard sampler."""
    gain: Interval | None
    """Of ratios: standard over choice; else choice minus standard. None: they are the same."""
    ratio: bool
    limits: tuple[Held, ...]
    outputs: int
    calls: float | None
    """Network calls per output of the choice."""
    evaluator: str | None = None
    """Who scored, where several did."""
    seconds: float | None = None
    """Per output of the choice, as this machine and its batches had it."""
    less_is_better: bool = False
    """Of a difference; a ratio is above 1 where the choice is better."""

    @property
    def shown(self) -> bool:
        """Whether the whole interval is on the better side of no gain."""
        if self.gain is None:
            return False
        if self.ratio:
            return self.gain.above(1.0)
        return self.gain.below(0.0) if self.less_is_better else self.gain.above(0.0)

    @property
    def recommended(self) -> bool:
        """Whether there is no reason against it."""
        return not self.doubts()

    def doubts(self) -> list[str]:
        """Why it is no recommendation; empty if it is one."""
        doubts = [] if self.choice.holds else ["no setting held every limit for sure"]
        doubts += [
            (
                "fresh outputs break "
                if limit.holds is False
                else "fresh outputs do not surely hold "
            )
            + limit.words
            for limit in self.limits
            if not limit.holds
        ]
        if self.ratio and not self.limits:
            doubts.append("no entropy guard bounds the sharpness")
        if self.gain is None:
            doubts.append("it is the standard sampler")
        elif not self.gain.bounded:
            doubts.append("too few outputs for an interval of the gain")
        elif not self.shown:
            doubts.append("no gain is shown")
        return doubts

    def mind(self) -> list[str]:
        """What a reader must know of it."""
        doubts = self.doubts()
        first = [f"{doubt}: no recommendation" for doubt in doubts[:1]]
        return [*first, *doubts[1:], *self.remarks()]

    def remarks(self) -> list[str]:
        """What is no reason against it: how it was chosen, and from what."""
        late = self.choice.holds and not self.choice.passes
        notes = ["not surely inside the limits when it was chosen"] if late else []
        return [*notes, *self.choice.edges]

    def row(self) -> dict[str, Any]:
        """One line of a table; verbs add what is theirs."""
        return {
            "steps": self.choice.steps,
            "point": str(self.choice.point),
            "sampler": self.choice.sampler.model_dump(mode="json"),
            "outputs": self.outputs,
            "calls": self.calls,
            "seconds": self.seconds,
            "objective": self.objective,
            "standard": self.standard,
            "gain": self.gain,
            "shown": self.shown,
            "recommended": self.recommended,
            "mind": "; ".join(self.mind()),
        }


def gain(
    choice: Choice,
    fresh: Measured,
    standard: Measured,
    goal: Number,
    *,
    metric: MetricSpec | None = None,
    resampled: bool = False,
    level: float = LEVEL,
    best: str | None = None,
) -> Gain:
    """The gain of a choice, from its fresh outputs and those of the standard sampler.

    The gain's interval is of `level`; `best` is which way the objective is better, `min` or `max`,
    where that is not its own. Intervals are those of the jackknife over outputs in pairs.
    `resampled` takes bootstrap intervals instead, as tables of cells have them; the objective then
    is a perplexity, of one evaluator if a `metric` is named.
    """
    limits = []
    for limit in choice.limits:
        if fresh.outputs < limit.least:
            continue
        value = _value(fresh, Number.of(limit.name), None, resampled, log=False)
        limits.append(Held(str(limit), value, limit.side_of(value)))
    difference = None
    if fresh.id != standard.id:
        difference = _difference(fresh, standard, goal, metric, resampled, level)
    return Gain(
        choice,
        _value(fresh, goal, metric, resampled, log=goal.log),
        _value(standard, goal, metric, resampled, log=goal.log),
        difference,
        goal.log,
        tuple(limits),
        fresh.outputs,
        fresh.calls,
        None if metric is None or metric.evaluator is None else metric.evaluator.name,
        fresh.seconds,
        (best or goal.best) == "min",
    )


def family_level(rows: int) -> float:
    """The level of each of some intervals that are to hold together (Bonferroni)."""
    return 1 - (1 - LEVEL) / max(rows, 1)


def _difference(
    fresh: Measured,
    standard: Measured,
    goal: Number,
    metric: MetricSpec | None,
    resampled: bool,
    level: float,
) -> Interval:
    if resampled:
        from strop.measure.frame import perplexity_ratio

        return perplexity_ratio(standard, fresh, metric, level=level)
    chosen, plain = fresh.statistic(goal, metric), standard.statistic(goal, metric)
    if goal.log:
        return jackknife(plain, level, chosen, log=True).exp()
    return jackknife(chosen, level, plain)


def _value(
    row: Measured, number: Number, metric: MetricSpec | None, resampled: bool, *, log: bool
) -> Interval:
    """With the interval of its logarithm, where that is what is compared."""
    if not resampled:
        value = jackknife(row.statistic(number, metric), log=log)
        return value.exp() if log else value
    value = row.value(number, metric)
    if value is None:
        raise UserError(
            f"The fresh outputs have no {number.heading}.",
            where=row.path,
            fix="look at them: strop show RUN",
        )
    return value


def spec_file(first_line: str, choices: Sequence[Choice], gains: Sequence[Gain]) -> bytes:
    """The choices as `strop sample --spec` reads them, with the doubts about them."""
    import yaml

    lines = [f"# {first_line}", "# Use: strop sample CHECKPOINT --spec THIS_FILE -o RUN"]
    for gain in gains:
        words = "; ".join([*gain.doubts(), *gain.remarks()])
        if words:
            mind = "Note" if gain.recommended else "Not a recommendation"
            lines.append(f"# {mind} at {gain.choice.budget}: {words}.")
    samplers = {choice.sampler.id: choice.sampler.written_fields() for choice in choices}
    body = yaml.safe_dump({"samplers": list(samplers.values())}, sort_keys=False)
    return ("\n".join(dict.fromkeys(lines)) + "\n" + body).encode()


Goal = Literal["fewest-steps", "best"]
GOALS: tuple[Goal, ...] = ("fewest-steps", "best")
WITHIN = 0.05
"""How much more perplexing fewer steps may be."""
Rows = Mapping[tuple[int, OperatingPoint], "Measured"]


@dataclass(frozen=True)
class RatedSetting:
    """A setting that may be used, and its perplexity over that of the reference."""

    row: Measured
    against: Interval

    @property
    def words(self) -> str:
        """The setting with its steps."""
        return in_words(self.row.point) + _steps(self.row.steps, self.row.point)


@dataclass(frozen=True)
class Decision:
    """What to use; None where nothing is recommended."""

    goal: str
    sentence: str
    chosen: RatedSetting | None = None
    reference: Measured | None = None

    def document(self) -> dict[str, Any]:
        """For JSON."""
        chosen = self.chosen
        document: dict[str, Any] = {"goal": self.goal, "recommended": chosen is not None}
        if chosen is not None and self.reference is not None:
            document |= {
                "sampler": chosen.row.spec.generator.sampler.model_dump(mode="json"),
                "against_reference": chosen.against,
                "calls": chosen.row.calls,
                "reference_calls": self.reference.calls,
                "seconds": chosen.row.seconds,
                "reference_seconds": self.reference.seconds,
            }
        return document


def decide(
    goal: str,
    within: float,
    gains: Sequence[Gain],
    fresh: Rows,
    searched: Mapping[tuple[int, OperatingPoint], float],
    plain: OperatingPoint,
    metric: MetricSpec | None = None,
) -> Decision:
    """From one gain per budget, fresh outputs and the perplexities that were chosen by."""
    if not gains:
        return Decision(goal, "Nothing is recommended: no choice was measured on fresh outputs.")
    reference = max((row for (_, at), row in fresh.items() if at == plain), key=_of_steps)
    named = "the standard sampler" + _steps(reference.steps, plain)
    good = [gain for gain in gains if gain.recommended]
    settings = [(gain.choice.steps, gain.choice.point) for gain in good]
    if goal == "best":
        settings = sorted(settings, key=lambda at: searched[at])[:1]
    else:
        settings += [
            (steps, at)
            for (steps, at), row in fresh.items()
            if at == plain and steps < reference.steps and row.verdict == "above"
        ]
        # At equal steps a choice with a gain comes before the standard sampler.
        settings.sort(key=lambda at: (at[0], at[1] == plain))
    level = family_level(len(settings))
    contenders = [_rated(fresh[at], reference, metric, level) for at in settings]
    if goal == "best":
        chosen = next(iter(contenders), None)
    else:
        chosen = next(
            (contender for contender in contenders if contender.against.below(1 + within)), None
        )
    if chosen is not None:
        words = f"Use {chosen.words}: {_costs(chosen.row, reference)}{_against(chosen, named)}."
        return Decision(goal, words + _less_diverse(chosen.row), chosen, reference)
    if not contenders:
        return Decision(goal, f"Nothing is recommended: {_why(gains)}.")
    near = min(contenders, key=lambda contender: contender.against.value)
    words = (
        f"Nothing is recommended: no setting is surely within {within:.0%} of {named}. The nearest "
        f"is {near.words}: {_costs(near.row, reference)}{_against(near, named)}."
    )
    return Decision(goal, words)


def in_words(point: OperatingPoint) -> str:
    """A setting as one would say it: `temperature 0.9 in float64, top_p 0.9`."""
    sampler = point.sampler
    words = f"temperature {sampler.temperature:g} in {sampler.precision}"
    name, _, fields = str(point).rstrip(")").partition("(")
    others = fields.split(", ")[2:]
    return ", ".join([(f"{name.strip()} at " if name.strip() else "") + words, *others])


def _steps(steps: int, point: OperatingPoint) -> str:
    """Nothing for a causal sampler, whose steps are its tokens."""
    return "" if SAMPLERS[point.sampler.name].causal else f" with {steps:,} steps"


def _of_steps(row: Measured) -> int:
    return row.steps


def _rated(
    row: Measured, reference: Measured, metric: MetricSpec | None, level: float
) -> RatedSetting:
    from strop.measure.frame import perplexity_ratio

    if row.id == reference.id:
        return RatedSetting(row, Interval(1.0, 1.0, 1.0, level, row.outputs))
    return RatedSetting(row, perplexity_ratio(row, reference, metric, level=level))


def _costs(row: Measured, reference: Measured) -> str:
    """Network calls per output; nothing where they were not counted or are the same."""
    if row.calls is None or reference.calls is None:
        return ""
    if round(row.calls) == round(reference.calls):
        return f"{row.calls:,.0f} calls an output, "
    return f"{row.calls:,.0f} calls instead of {reference.calls:,.0f}, "


def _against(setting: RatedSetting, named: str) -> str:
    return f"perplexity {setting.against:.3g} times that of {named}"


def _less_diverse(row: Measured) -> str:
    """A warning of low diversity from too few outputs to decide; with more, the guard decides."""
    diversity = row.diversity
    if diversity is None or (diversity.n or 0) >= DECIDES or not diversity.below(MARGIN):
        return ""
    return (
        f" Note that these {diversity.n} outputs have {diversity:.2f} of the diversity of held-out "
        f"texts, where {MARGIN:g} is the guard: it decides from {DECIDES} outputs on."
    )


def _why(gains: Sequence[Gain]) -> str:
    """The first doubt of every budget, once if it is the same at all of them."""
    first = {gain.choice.budget: gain.doubts()[0] for gain in gains}
    if len(set(first.values())) == 1:
        return next(iter(first.values()))
    return "; ".join(f"at {budget} {doubt}" for budget, doubt in first.items())
