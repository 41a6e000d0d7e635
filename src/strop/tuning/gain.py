"""What a choice is worth on outputs that it was not chosen on, and the file that deploys it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strop.errors import UserError
from strop.measure.number import Number
from strop.stats.interval import Interval
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

    @property
    def shown(self) -> bool:
        """Whether the interval excludes that nothing was gained."""
        none = 1.0 if self.ratio else 0.0
        return self.gain is not None and self.gain.excludes(none)

    @property
    def recommended(self) -> bool:
        """Whether there was something to choose, and its fresh outputs hold every limit."""
        return self.choice.holds and all(one.holds for one in self.limits)

    def doubts(self) -> list[str]:
        """Why it is no recommendation; empty if it is one."""
        unmet = [] if self.choice.holds else ["no setting held every limit for sure"]
        return unmet + [
            f"fresh outputs {'break' if one.holds is False else 'do not surely hold'} {one.words}"
            for one in self.limits
            if not one.holds
        ]

    def mind(self) -> list[str]:
        """What a reader must know of it."""
        doubts = self.doubts()
        notes = [f"{doubt}: no recommendation" for doubt in doubts[:1]] + doubts[1:]
        if self.gain is not None and not self.gain.bounded:
            notes.append("too few outputs for an interval of the gain")
        elif self.gain is not None and not self.shown:
            notes.append("the interval includes no gain")
        notes += ["it is the standard sampler"] if self.gain is None else []
        if self.choice.holds and not self.choice.passes:
            notes.append("not surely inside the limits when it was chosen")
        return [*notes, *self.choice.edges]

    def row(self) -> dict[str, Any]:
        """One line of a table; verbs add what is theirs."""
        return {
            "steps": self.choice.steps,
            "point": str(self.choice.point),
            "sampler": self.choice.sampler.model_dump(mode="json"),
            "outputs": self.outputs,
            "calls": self.calls,
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
) -> Gain:
    """The gain of a choice, from its fresh outputs and those of the standard sampler.

    Intervals are those of the jackknife over outputs in pairs. `resampled` takes bootstrap
    intervals instead, as tables of cells have them; the objective then is a perplexity, of one
    evaluator if a `metric` is named.
    """
    limits = []
    for limit in choice.limits:
        value = _value(fresh, Number.of(limit.name), None, resampled, log=False)
        limits.append(Held(str(limit), value, limit.side_of(value)))
    found = None
    if fresh.id != standard.id:
        found = _difference(fresh, standard, goal, metric, resampled)
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
    )


def _difference(
    fresh: Measured,
    standard: Measured,
    goal: Number,
    metric: MetricSpec | None,
    resampled: bool,
) -> Interval:
    if resampled:
        from strop.measure.frame import perplexity_ratio

        return perplexity_ratio(standard, fresh, metric)
    mine, plain = fresh.statistic(goal, metric), standard.statistic(goal, metric)
    if goal.log:
        return jackknife(plain, minus=mine, log=True).exp()
    return jackknife(mine, minus=plain)


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
    lines += [
        f"# Not a recommendation at {one.choice.budget}: {'; '.join(one.doubts())}."
        for one in gains
        if not one.recommended
    ]
    samplers = {
        # The budget always, also where it is the default: it is what tells the entries apart.
        choice.sampler.id: {"steps": choice.steps}
        | choice.sampler.model_dump(mode="json", exclude_defaults=True)
        for choice in choices
    }
    body = yaml.safe_dump({"samplers": list(samplers.values())}, sort_keys=False)
    return ("\n".join(dict.fromkeys(lines)) + "\n" + body).encode()
