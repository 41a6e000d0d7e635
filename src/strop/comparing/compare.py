"""One comparison: two sides at one budget, in three layers, with the verdict and its sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from strop.comparing.diversity import Diversity, diversity
from strop.comparing.frontier import Equal, Level, equal_sharpness, grid, smooth_gaps, spent, thin
from strop.comparing.side import Curve, Sample, Side, interval, of_one_setting
from strop.comparing.verdict import BENT, SHORTER, SMOKE, Kind, Layer, SideVerdict, decide
from strop.errors import UserError
from strop.stats.interval import Interval
from strop.stats.resample import REPLICATES

# ----------------------------------------------------------------------------------------- enough

POWER = 0.8
MOST = 1_000_000
ROUND = 32


def enough(
    n: int,
    equal: Equal,
    gaps: NDArray[np.float64],
    layer: Layer | None,
    margin: float,
    level: Level | None = None,
) -> int | None:
    """Outputs per temperature at the look after this one; None where no million would do.

    `gaps` are the replicates behind `equal.smooth`, the outputs as they are first [1 + R, K].
    """
    level = Level() if level is None else level
    wider = spent(level.look + 1) / spent(level.look)
    everywhere = _everywhere(equal, gaps, margin, replace(level, look=level.look + 1))
    off = sum(equal.bend) / len(equal.bend)

    def power(outputs: int) -> float:
        times = outputs / n
        same = everywhere(times)
        if layer is not None:
            # On frontiers that are the same the published settings must be told apart, or not be.
            alike = _inside(layer.gap, margin, times, wider)
            same *= max(alike, _outside(layer.sharper, times, wider))
        return max(same, _outside(equal.mean, times, wider, off))

    rounds = _least(lambda blocks: power(ROUND * blocks) >= POWER, MOST // ROUND)
    return None if rounds is None else max(ROUND * rounds, n + ROUND)


def _everywhere(
    equal: Equal, gaps: NDArray[np.float64], margin: float, level: Level
) -> Callable[[float], float]:
    """The chance that at a look the gap is inside the margin everywhere, by times the outputs.

    The misfit of parabolas cannot be told from noise, so it shrinks too; that of lines does not.
    """
    from scipy.special import ndtri

    value, errors = gaps[0], gaps[1:][np.isfinite(gaps[1:]).all(axis=1)] - gaps[0]
    reach = -float(ndtri((1 - level.everywhere) / 2)) * errors.std(axis=0)
    misfit = np.array(equal.misfit)

    def chance(times: float) -> float:
        closer = 1 / math.sqrt(times)
        room = margin - closer * reach - (1 if equal.lines else closer) * misfit
        return float((np.abs(value + closer * errors) < room).all(axis=1).mean())

    return chance


def _least(holds: Callable[[int], bool], most: int) -> int | None:
    """The least number from which on something holds; None where it does not at the most."""
    if not holds(most):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _errors(interval: Interval, times: float, wider: float) -> tuple[float, float]:
    """The standard error with so many times the outputs, and how many of them an interval takes.

    `wider` is the share of today's error rate that the next look may spend.
    """
    from scipy.special import ndtri

    error = interval.half / float(ndtri((1 + interval.level) / 2)) / math.sqrt(times)
    return error, float(-ndtri((1 - interval.level) * wider / 2))


def _inside(interval: Interval, most: float, times: float, wider: float) -> float:
    """The chance that an interval lies inside its room: neither end may reach it."""
    from scipy.special import ndtr

    error, reach = _errors(interval, times, wider)
    if error == 0:
        return float(abs(interval.value) < most)
    ends = [(side * most - interval.value) / error - side * reach for side in (-1, 1)]
    return float(ndtr(ends[1]) - ndtr(ends[0])) if ends[0] < ends[1] else 0.0


def _outside(interval: Interval, times: float, wider: float, off: float = 0.0) -> float:
    """The chance that an interval lies beyond `off`, on the side of zero on which its value is."""
    from scipy.special import ndtr

    error, reach = _errors(interval, times, wider)
    beyond = abs(interval.value) - off
    return float(ndtr(beyond / error - reach)) if error else float(beyond > 0)


# ---------------------------------------------------------------------------------------- compare

MARGIN = 0.03
ALLOWED = 3
"""Straight lines may be off by one in so many of the margin before a temperature is added."""
UNEQUAL = 0.02
"""By how much the shares of outputs that are left out may differ."""


@dataclass(frozen=True)
class Comparison:
    """What is known of A against B at one budget."""

    published: Layer | None
    tuned: Layer | None
    equal: Equal | None
    """None where the frontiers have no common range."""
    diversity: tuple[Diversity, ...]
    verdict: SideVerdict
    level: Level
    margin: float
    left_out: tuple[float, float] = (0.0, 0.0)
    """The share of each side's outputs that are too short to be scored."""
    thin: tuple[tuple[int, int], ...] = ()
    """Neighbours on a side's frontier, by place, between which another temperature is wanted."""


def compare(
    a: Side,
    b: Side,
    *,
    margin: float = MARGIN,
    level: Level | None = None,
    floor: float | None = None,
    judged: Sequence[Diversity] = (),
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Comparison:
    """Compare two sides at one budget.

    `margin` is the smallest difference in perplexity that matters, as a share of it. `floor` is the
    entropy guard. `judged` is what a judge says of diversity at equal sharpness.
    """
    if not 0 < margin < 1:
        raise UserError("The margin is a share.", where="`margin`", got=margin, expected="0 to 1")
    level = Level() if level is None else level
    curve_a, curve_b = Curve(a, replicates, seed), Curve(b, replicates, seed)
    layers = [
        None if x is None or y is None else _layer(x, y, level, replicates, seed)
        for x, y in ((a.published, b.published), (a.tuned, b.tuned))
    ]
    where = grid(curve_a, curve_b, floor)
    equal, diversities, wanting = None, list(judged), []
    if where is not None:
        equal = equal_sharpness(curve_a, curve_b, where, level)
        diversities += diversity(curve_a, curve_b, where, level, _measures(a, b) + len(judged))
        if any(equal.bend):
            wanting = [thin(curve, where, margin / ALLOWED, level) for curve in (curve_a, curve_b)]
    decisive = layers[0] if layers[0] is not None else layers[1]
    verdict = decide(equal, diversities, decisive, margin)
    if len(a.frontier) == len(b.frontier) == 1:
        verdict = replace(verdict, why="both sides are single points: neither has a frontier")
    differ = interval(curve_a.left_out - curve_b.left_out, level.different, min(a.n, b.n))
    if differ.above(UNEQUAL) or differ.below(-UNEQUAL):
        verdict = SideVerdict("cannot tell", SHORTER)
    elif verdict.kind == "cannot tell" and verdict.why != BENT and where is not None and equal:
        gaps, _ = smooth_gaps(curve_a, curve_b, where, level)
        wanted = enough(min(a.n, b.n), equal, gaps, decisive, margin, level)
        verdict = replace(verdict, outputs=wanted)
    return Comparison(
        layers[0],
        layers[1],
        equal,
        tuple(diversities),
        verdict,
        level,
        margin,
        (float(curve_a.left_out[0]), float(curve_b.left_out[0])),
        tuple(pair for pair in wanting if pair is not None),
    )


def _measures(a: Side, b: Side) -> int:
    return max(
        1, len({name for side in (a, b) for sample in side.frontier for name in sample.alike})
    )


def _layer(a: Sample, b: Sample, level: Level, replicates: int, seed: int) -> Layer:
    """Both sides at one setting each, resampled as the frontiers are."""
    curve_a, curve_b = (Curve(Side([sample]), replicates, seed) for sample in (a, b))
    n = min(a.n, b.n)
    return Layer(
        (float(np.exp(curve_a.level[0, 0])), float(np.exp(curve_b.level[0, 0]))),
        (float(curve_a.entropy[0, 0]), float(curve_b.entropy[0, 0])),
        of_one_setting(curve_a.level[:, 0] - curve_b.level[:, 0], level.same, n),
        of_one_setting(curve_a.entropy[:, 0] - curve_b.entropy[:, 0], level.different, n),
    )


# ------------------------------------------------------------------------------------------ words

SAID: dict[Kind, str] = {
    "better": "{a} is better than {b} at equal sharpness",
    "worse": "{a} is worse than {b} at equal sharpness",
    "only sharper": "{a} is only sharper than {b}",
    "only smoother": "{a} is only smoother than {b}",
    "the same": "{a} and {b} are the same",
    "mixed": "{a} and {b} are mixed",
    "cannot tell": "Cannot tell",
}


def sentence(comparison: Comparison, names: Sequence[str] = ("A", "B")) -> str:
    """The verdict, what it rests on, and what it takes to decide where nothing is."""
    verdict, equal = comparison.verdict, comparison.equal
    a, b = names
    words = SAID[verdict.kind].format(a=a, b=b)
    if verdict.kind in ("mixed", "cannot tell"):
        words += f" ({verdict.why})"
    elif "diverse" in verdict.why:
        words += f": {verdict.why}"
    if equal is None:
        return f"{words}: no verdict.{_as_published(comparison.published)}"
    words += (
        f": at equal entropy, {equal.low:.2f} to {equal.high:.2f} nats, {a} has "
        f"{ratio(equal.mean)} times the perplexity of {b}"
    )
    if verdict.kind in ("the same", "only sharper", "only smoother"):
        words += f", inside the margin of {comparison.margin:.0%} everywhere in that range"
    words += f".{_as_published(comparison.published)}"
    if verdict.kind != "cannot tell" or verdict.why in (BENT, SHORTER, SMOKE):
        return words
    if verdict.outputs is None:
        return f"{words} More outputs would hardly decide."
    return f"{words} About {verdict.outputs:,} outputs per temperature and side would decide."


def _as_published(layer: Layer | None) -> str:
    if layer is None:
        return ""
    return (
        f" As published it is {ratio(layer.gap)} times, at {layer.sharper.value:+.2f} nats of "
        "entropy."
    )


def ratio(gap: Interval) -> str:
    """A gap in log-perplexity as a ratio with its interval."""
    factor = gap.exp()
    numbers = (factor.value, *factor.ends)
    value, low, high = (
        f"{number:.3f}" if number >= 0.001 else f"{number:.2g}" for number in numbers
    )
    return f"{value} [{low}, {high}]"
