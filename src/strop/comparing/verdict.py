"""The verdict on side A against side B, by stated rules.

At equal sharpness the two frontiers are, in this order,

    the same   every part's interval lies inside the margin
    crossing   one part's interval lies below zero and another's above it, all parts held together
    better     the mean gap's interval lies below zero, and no part's reaches above the margin
    worse      the mirror of it
    undecided  else

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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from strop.comparing.diversity import Diversity, State
from strop.comparing.frontier import Equal
from strop.stats.interval import Interval

__all__ = ["DIFFERENT", "KINDS", "Kind", "Layer", "Verdict", "decide", "mirrored"]

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
class Verdict:
    """On side A."""

    kind: Kind
    why: str
    """What decided, or what is missing, in a few words."""
    outputs: int | None = None
    """Outputs per temperature and side that would probably decide; only where it cannot tell."""


def mirrored(verdict: Verdict) -> Verdict:
    """The same verdict on side B."""
    return replace(verdict, kind=MIRROR.get(verdict.kind, verdict.kind))


def frontiers(equal: Equal, margin: float) -> Frontiers:
    """How the two frontiers lie."""
    if all(one.within(-margin, margin) for one in equal.parts):
        return "the same"
    if any(one.below(0) for one in equal.surely) and any(one.above(0) for one in equal.surely):
        return "crossing"
    if equal.mean.below(0) and all(one.below(margin) for one in equal.parts):
        return "better"
    if equal.mean.above(0) and all(one.above(-margin) for one in equal.parts):
        return "worse"
    return "undecided"


def decide(
    equal: Equal | None, diversity: Sequence[Diversity], layer: Layer | None, margin: float
) -> Verdict:
    """The verdict, without the number of outputs that it may lack."""
    if equal is None:
        return Verdict("cannot tell", "the frontiers have no common range of entropies")
    lie = frontiers(equal, margin)
    if lie == "undecided":
        return Verdict("cannot tell", "the gap between the frontiers is too uncertain")
    if lie == "crossing":
        return Verdict("mixed", "the frontiers cross")
    less_a, less_b = (
        _side([one.state_a for one in diversity]),
        _side([one.state_b for one in diversity]),
    )
    if lie == "the same":
        return _equal(less_a, less_b, layer, margin)
    mine, kind = (less_a, "better") if lie == "better" else (less_b, "worse")
    if mine == "less":
        return Verdict("mixed", "the lower perplexity is that of the less diverse side")
    if mine == "undecided":
        return Verdict("cannot tell", "whether the better side is less diverse is uncertain")
    return Verdict(kind, "the gap between the frontiers")


def _equal(less_a: State, less_b: State, layer: Layer | None, margin: float) -> Verdict:
    """On frontiers that are the same."""
    if "undecided" in (less_a, less_b):
        return Verdict("cannot tell", "whether one side is less diverse is uncertain")
    if less_a != less_b:
        kind = "worse" if less_a == "less" else "better"
        return Verdict(kind, "the frontiers are the same, and one side is less diverse")
    if less_a == "less":  # by different measures
        return Verdict("mixed", "each side is the less diverse by some measure")
    if layer is None or layer.gap.within(-margin, margin):
        return Verdict("the same", "the frontiers are the same, and so is the perplexity")
    if layer.sharper.below(0):
        return Verdict("only sharper", "the frontiers are the same")
    if layer.sharper.above(0):
        return Verdict("only smoother", "the frontiers are the same")
    return Verdict("cannot tell", "the frontiers are the same; which side is sharper is uncertain")


def _side(states: Sequence[State]) -> State:
    """A side is less diverse if one measure says so, and not less only if all do."""
    if "less" in states:
        return "less"
    return "undecided" if "undecided" in states else "not less"
