"""One sentence that decides: which sampler to use, with how many steps, and what that costs.

The reference is the standard sampler with the most steps. `fewest-steps` takes the fewest steps
whose perplexity on fresh outputs is surely within a share of the reference's; `best` takes, of the
recommended settings, the one with the lowest perplexity in the table, and reports it on fresh
outputs. Both look at recommended settings, and `fewest-steps` also at the standard sampler with
fewer steps. Where nothing qualifies, the sentence says so and why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from strop.measure.across import DECIDES, MARGIN
from strop.records import SAMPLERS
from strop.spec import MetricSpec, OperatingPoint
from strop.stats.interval import Interval
from strop.tuning.gain import Gain, family_level

if TYPE_CHECKING:
    from strop.measure.frame import Measured

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
        found: dict[str, Any] = {"goal": self.goal, "recommended": chosen is not None}
        if chosen is not None and self.reference is not None:
            found |= {
                "sampler": chosen.row.spec.generator.sampler.model_dump(mode="json"),
                "against_reference": chosen.against,
                "calls": chosen.row.calls,
                "reference_calls": self.reference.calls,
                "seconds": chosen.row.seconds,
                "reference_seconds": self.reference.seconds,
            }
        return found


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
    good = [one for one in gains if one.recommended]
    settings = [(one.choice.steps, one.choice.point) for one in good]
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
        chosen = next((one for one in contenders if one.against.below(1 + within)), None)
    if chosen is not None:
        words = f"Use {chosen.words}: {_costs(chosen.row, reference)}{_against(chosen, named)}."
        return Decision(goal, words + _less_diverse(chosen.row), chosen, reference)
    if not contenders:
        return Decision(goal, f"Nothing is recommended: {_why(gains)}.")
    near = min(contenders, key=lambda one: one.against.value)
    words = (
        f"Nothing is recommended: no setting is surely within {within:.0%} of {named}. The nearest "
        f"is {near.words}: {_costs(near.row, reference)}{_against(near, named)}."
    )
    return Decision(goal, words)


def in_words(point: OperatingPoint) -> str:
    """A setting as one would say it: `temperature 0.9 in float64, top_p 0.9`."""
    sampler = point.sampler
    words = f"temperature {sampler.temperature:g} in {sampler.precision}"
    name, _, rest = str(point).rstrip(")").partition("(")
    others = rest.split(", ")[2:]
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


def _against(one: RatedSetting, named: str) -> str:
    return f"perplexity {one.against:.3g} times that of {named}"


def _less_diverse(row: Measured) -> str:
    """What too few outputs say of diversity, where they deny it; more of them are judged by it."""
    found = row.diversity
    if found is None or (found.n or 0) >= DECIDES or not found.below(MARGIN):
        return ""
    return (
        f" Mind that these {found.n} outputs have {found:.2f} of the diversity of held-out texts, "
        f"where {MARGIN:g} is the guard: it decides from {DECIDES} outputs on."
    )


def _why(gains: Sequence[Gain]) -> str:
    """The first doubt of every budget, said once where it is the same at all of them."""
    first = {one.choice.budget: one.doubts()[0] for one in gains}
    if len(set(first.values())) == 1:
        return next(iter(first.values()))
    return "; ".join(f"at {budget} {doubt}" for budget, doubt in first.items())
