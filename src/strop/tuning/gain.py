"""What a choice is worth on outputs that it was not chosen on, and the file that deploys it.

A choice is a recommendation if something bounded its sharpness, its fresh outputs hold every limit,
and its gain is shown: the whole interval is on the better side. Intervals of gains hold together
for all rows of a table (`family_level`), because a reader looks at all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strop.errors import UserError
from strop.measure.number import Number
from strop.stats.interval import LEVEL, Interval
from strop.stats.jackknife import jackknife
from strop.tuning.choice import Choice

if TYPE_CHECKING:
    from strop.measure.frame import Measured
    from strop.spec import MetricSpec


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
        """Whether nothing speaks against it."""
        return not self.doubts()

    def doubts(self) -> list[str]:
        """Why it is no recommendation; empty if it is one."""
        doubts = [] if self.choice.holds else ["no setting held every limit for sure"]
        doubts += [
            f"fresh outputs {'break' if one.holds is False else 'do not surely hold'} {one.words}"
            for one in self.limits
            if not one.holds
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
    found = None
    if fresh.id != standard.id:
        found = _difference(fresh, standard, goal, metric, resampled, level)
    return Gain(
        choice,
        _value(fresh, goal, metric, resampled, log=goal.log),
        _value(standard, goal, metric, resampled, log=goal.log),
        found,
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
    mine, plain = fresh.statistic(goal, metric), standard.statistic(goal, metric)
    if goal.log:
        return jackknife(plain, level, mine, log=True).exp()
    return jackknife(mine, level, plain)


def _value(
    row: Measured, number: Number, metric: MetricSpec | None, resampled: bool, *, log: bool
) -> Interval:
    """With the interval of its logarithm, where that is what is compared."""
    if not resampled:
        found = jackknife(row.statistic(number, metric), log=log)
        return found.exp() if log else found
    found = row.value(number, metric)
    if found is None:
        raise UserError(
            f"The fresh outputs have no {number.heading}.",
            where=row.path,
            fix="look at them: strop show RUN",
        )
    return found


def spec_file(first_line: str, choices: Sequence[Choice], gains: Sequence[Gain]) -> bytes:
    """The choices as `strop sample --spec` reads them, with what speaks against them."""
    import yaml

    lines = [f"# {first_line}", "# Use: strop sample CHECKPOINT --spec THIS_FILE -o RUN"]
    for one in gains:
        words = "; ".join([*one.doubts(), *one.remarks()])
        if words:
            mind = "Mind" if one.recommended else "Not a recommendation"
            lines.append(f"# {mind} at {one.choice.budget}: {words}.")
    samplers = {
        # The budget always, also where it is the default: it is what tells the entries apart.
        choice.sampler.id: {"steps": choice.steps}
        | choice.sampler.model_dump(mode="json", exclude_defaults=True)
        for choice in choices
    }
    body = yaml.safe_dump({"samplers": list(samplers.values())}, sort_keys=False)
    return ("\n".join(dict.fromkeys(lines)) + "\n" + body).encode()
