"""The verdict on side A against side B, by stated rules.

At equal sharpness the two frontiers are, in this order,

    the same   at every entropy of the range the gap between parabolas lies inside the margin
    crossing   the band of all entropies together is below zero somewhere and above it elsewhere
    better     the mean gap's interval lies below zero, and nowhere does one reach above the margin
    worse      the mirror of it
    undecided  else

each also where parabolas, or straight lines between temperatures, are off by as much as they may
be. "The same" and "nowhere" hold only if every single interval says so, which needs no correction
for their number (intersection-union); "somewhere" is one of many chances, hence the band.

and the verdict is

    frontiers    no side less diverse          A less diverse   B less diverse
    better       better                        mixed            better
    worse        worse                         worse            mixed
    the same     the same, only sharper, ...   worse            better
    crossing     mixed                         mixed            mixed
    undecided    cannot tell                   cannot tell      cannot tell

Where diversity is undecided and would change the verdict, it is `cannot tell`. On frontiers that
are the same, the settings as published decide: `the same` if their perplexities are, by the
margin; `only sharper` or `only smoother` by their entropies; else `cannot tell`.

One verdict over several budgets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from strop.comparing.diversity import Diversity, State
from strop.comparing.frontier import Equal
from strop.stats.interval import Interval

# ---------------------------------------------------------------------------------------- verdict

Kind = Literal[
    "better", "worse", "only sharper", "only smoother", "the same", "mixed", "cannot tell"
]
KINDS: tuple[Kind, ...] = Kind.__args__
DIFFERENT: tuple[Kind, ...] = ("better", "worse", "only sharper", "only smoother", "mixed")
"""The verdicts that claim a difference."""
MIRROR: dict[Kind, Kind] = {
    "better": "worse",
    "worse": "better",
    "only sharper": "only smoother",
    "only smoother": "only sharper",
}
UNCERTAIN = "the gap between the frontiers is too uncertain"
SHORTER = "the sides leave out different shares of their outputs, which are too short"
SMOKE = "a smoke run is too small for a verdict"
BENT = "straight lines between so few temperatures may be too far off"
Frontiers = Literal["better", "worse", "the same", "crossing", "undecided"]


@dataclass(frozen=True)
class Layer:
    """Both sides at one setting each."""

    perplexity: tuple[float, float]
    entropy: tuple[float, float]
    gap: Interval
    """Log-perplexity of A minus that of B."""
    sharper: Interval
    """Entropy of A minus that of B, in nats."""


@dataclass(frozen=True)
class SideVerdict:
    """On side A."""

    kind: Kind
    why: str
    """What decided, or what is missing, in a few words."""
    outputs: int | None = None
    """Outputs per temperature and side that would probably decide; only where it cannot tell."""


def mirrored(verdict: SideVerdict) -> SideVerdict:
    """The same verdict on side B."""
    return replace(verdict, kind=MIRROR.get(verdict.kind, verdict.kind))


def frontiers(equal: Equal, margin: float) -> Frontiers:
    """How the two frontiers lie."""
    smooth = zip(equal.smooth, equal.misfit, strict=True)
    if all(gap.within(off - margin, margin - off) for gap, off in smooth):
        return "the same"
    points = [(point, margin - off) for point, off in zip(equal.points, equal.bend, strict=True)]
    average = sum(equal.bend) / len(equal.bend)
    band = list(zip(equal.band, equal.bend, strict=True))
    if any(gap.below(-off) for gap, off in band) and any(gap.above(off) for gap, off in band):
        return "crossing"
    if equal.mean.below(-average) and all(point.below(most) for point, most in points):
        return "better"
    if equal.mean.above(average) and all(point.above(-most) for point, most in points):
        return "worse"
    return "undecided"


def decide(
    equal: Equal | None, diversity: Sequence[Diversity], layer: Layer | None, margin: float
) -> SideVerdict:
    """The verdict, without the number of outputs that it may lack."""
    if equal is None:
        return SideVerdict("cannot tell", "the frontiers have no common range of entropies")
    lie = frontiers(equal, margin)
    if lie == "undecided":
        bent = frontiers(equal.straight, margin) != "undecided"
        return SideVerdict("cannot tell", BENT if bent else UNCERTAIN)
    if lie == "crossing":
        return SideVerdict("mixed", "the frontiers cross")
    less_a, less_b = (
        _side([measure.state_a for measure in diversity]),
        _side([measure.state_b for measure in diversity]),
    )
    if lie == "the same":
        return _equal(less_a, less_b, layer, margin)
    state, kind = (less_a, "better") if lie == "better" else (less_b, "worse")
    if state == "less":
        return SideVerdict("mixed", "the lower perplexity is that of the less diverse side")
    if state == "undecided":
        return SideVerdict("cannot tell", "whether the better side is less diverse is uncertain")
    return SideVerdict(kind, "the gap between the frontiers")


def _equal(less_a: State, less_b: State, layer: Layer | None, margin: float) -> SideVerdict:
    """On frontiers that are the same."""
    if "undecided" in (less_a, less_b):
        return SideVerdict("cannot tell", "whether one side is less diverse is uncertain")
    if less_a != less_b:
        kind = "worse" if less_a == "less" else "better"
        return SideVerdict(kind, "the frontiers are the same, and one side is less diverse")
    if less_a == "less":  # by different measures
        return SideVerdict("mixed", "each side is the less diverse by some measure")
    if layer is None or layer.gap.within(-margin, margin):
        return SideVerdict("the same", "the frontiers are the same, and so is the perplexity")
    if layer.sharper.below(0):
        return SideVerdict("only sharper", "the frontiers are the same")
    if layer.sharper.above(0):
        return SideVerdict("only smoother", "the frontiers are the same")
    return SideVerdict(
        "cannot tell", "the frontiers are the same; which side is sharper is uncertain"
    )


def _side(states: Sequence[State]) -> State:
    """A side is less diverse if one measure says so, and not less only if all do."""
    if "less" in states:
        return "less"
    return "undecided" if "undecided" in states else "not less"


# ---------------------------------------------------------------------------------------- overall


def overall(verdicts: Mapping[int, SideVerdict]) -> SideVerdict:
    """What holds at every budget; `mixed` where it depends on it, else `cannot tell`."""
    kinds = {verdict.kind for verdict in verdicts.values()}
    if len(kinds) == 1:
        listed = list(verdicts.values())
        wanted = [verdict.outputs for verdict in listed]
        most = None if None in wanted else max(w for w in wanted if w is not None)
        return SideVerdict(listed[0].kind, listed[0].why, most)
    decided = kinds - {"cannot tell"}
    summary = "; ".join(
        f"{verdict.kind} at M = {steps}" for steps, verdict in sorted(verdicts.items())
    )
    if len(decided) > 1:
        return SideVerdict("mixed", f"it depends on the budget: {summary}")
    wanted = [verdict.outputs for verdict in verdicts.values() if verdict.kind == "cannot tell"]
    most = None if None in wanted else max(w for w in wanted if w is not None)
    return SideVerdict("cannot tell", summary, most)
