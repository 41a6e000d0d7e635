"""A measured number against a published one: both are estimates, and both have noise.

The published side prints a value and a number of outputs, seldom an interval. Its outputs vary as
much as ours do if it is the same generator, which is what is asked; so its noise is ours, scaled by
the numbers of outputs. Perplexities are compared as logarithms, so that every gap is in nats.

`power` says how many outputs a question needs, from a pilot that shows how much single outputs
vary. An estimate from n outputs a side has the standard error `error / sqrt(n)`, and how often a
rule decides depends on `x = sqrt(n) / error` alone. A pilot of m outputs knows `error` only so
well: its square is off by a chi-square with m - 1 degrees of freedom over their number, so the same
promise is kept more or less often, pilot by pilot. The number of outputs is the one at which, over
pilots, a rule decides four times out of five on average; beside it stands what 90% of pilots lead
to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from strop.stats.interval import LEVEL, Interval
from strop.stats.resample import student

# ------------------------------------------------------------------------------------------ power

Floats = NDArray[np.float64]
Power = Callable[[Floats], Floats]
"""How often a rule decides, by x."""
GOAL = 0.8
NINE = (0.05, 0.95)
"""The pilots between these quantiles are nine out of ten."""
MOST = 1e12
PILOTS = 400
"""Quantiles of the pilot's law over which powers are averaged."""


def apart(effect: float, alpha: float) -> Power:
    """How often an interval of level 1 - alpha excludes zero where this is the true difference."""
    from scipy.special import ndtr, ndtri

    z, effect = -float(ndtri(alpha / 2)), abs(effect)
    return lambda x: ndtr(effect * x - z) + ndtr(-effect * x - z)


def alike(margin: float, alpha: float, gap: float = 0.0) -> Power:
    """How often an interval of level 1 - alpha lies inside the margin at this true difference."""
    from scipy.special import ndtr, ndtri

    z = -float(ndtri(alpha / 2))

    def power(x: Floats) -> Floats:
        low, high = z - (margin + gap) * x, (margin - gap) * x - z
        return np.where(low < high, ndtr(high) - ndtr(low), 0.0)

    return power


@dataclass(frozen=True)
class Need:
    """What a question needs."""

    outputs: int | None
    """Of each side; None where no number does."""
    power: float
    """On average over pilots of this size."""
    low: float
    high: float
    """Nine of ten pilots lead to a power between these."""


def needed(power: Power, error: float, freedom: float, goal: float = GOAL) -> Need:
    """The outputs a side at which a rule decides so often, on average over pilots.

    `error` is the pilot's standard error times the root of its outputs, of the difference of two
    sides; `freedom` the degrees of freedom behind it.
    """
    x = precision(power, freedom, goal)
    if x is None:
        return Need(None, 0.0, 0.0, 0.0)
    ends = power(x * _off(freedom, NINE))
    average = float(power(x * _off(freedom)).mean())
    return Need(max(2, math.ceil((x * error) ** 2)), average, *map(float, ends))


def precision(power: Power, freedom: float, goal: float = GOAL) -> float | None:
    """The x to ask for where the pilot's `error` stands for the true one; None: no x does."""
    off = _off(freedom)

    def average(x: float) -> float:
        return float(power(x * off).mean())

    low, high = 0.0, 1.0
    while average(high) < goal and high < MOST:
        low, high = high, 2 * high
    if average(high) < goal:
        return None
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if average(middle) >= goal else (middle, high)
    return high


def curve(power: Power, error: float, freedom: float, outputs: Sequence[int]) -> Floats:
    """How often a rule decides with so many outputs a side, given what the pilot leaves open.

    [outputs, 3]: on average, and with the variance at which nine of ten such pilots end.
    """
    x = np.sqrt(np.asarray(outputs, float)) / error
    averaged = power(x[:, None] / _off(freedom)).mean(1)
    ends = power(x[:, None] / _off(freedom, NINE)[None, ::-1])
    return np.concatenate([averaged[:, None], ends], axis=1)


def _off(freedom: float, quantiles: Sequence[float] | None = None) -> Floats:
    """By which factor a pilot's standard deviation is off, at quantiles of its law."""
    from scipy.special import chdtri

    at = (np.arange(PILOTS) + 0.5) / PILOTS if quantiles is None else np.asarray(quantiles)
    return np.sqrt(chdtri(freedom, 1 - at) / freedom)


def level_errors(nll: Floats, tokens: Floats) -> Floats:
    """By how much every output moves the log-perplexity of a pool, times their number."""
    nll, tokens = np.asarray(nll, float), np.asarray(tokens, float)
    return (nll - tokens * nll.sum() / tokens.sum()) / tokens.mean()


def spread(values: Floats) -> float:
    """The standard deviation of single outputs."""
    return float(np.asarray(values, float).std(ddof=1))


# -------------------------------------------------------------------------------------- published

POWER = 0.8
"""How often a difference as large as the detectable one is found."""
MANY = 10_000
"""Degrees of freedom with which Student's quantiles are normal ones."""

Verdict = Literal["agrees", "differs", "cannot tell"]


@dataclass(frozen=True)
class Gap:
    """Measured minus published, in nats."""

    value: float
    own: float
    """Standard error of what was measured."""
    theirs: float
    """Standard error of what was published."""
    outputs: int
    """Behind what was measured."""

    @property
    def error(self) -> float:
        """The noise of both."""
        return math.hypot(self.own, self.theirs)

    @property
    def chance(self) -> float:
        """How often noise alone makes a gap at least as large."""
        from scipy.special import stdtr

        if not self.error:
            return float(self.value == 0)
        return float(2 * stdtr(self.outputs - 1, -abs(self.value) / self.error))

    def within(self, level: float = LEVEL) -> bool:
        """Whether it lies within the noise of both."""
        return abs(self.value) <= student(level, self.outputs - 1) * self.error

    def detectable(self, alpha: float) -> float:
        """The difference that a test of this level finds four times out of five."""
        return _reach(alpha, self.outputs - 1) * self.error

    def needed(self, size: float, alpha: float) -> int | None:
        """Outputs from which on `size` is detectable; None: never, the published noise is more."""
        left = (size / _reach(alpha, max(self.outputs - 1, 30))) ** 2 - self.theirs**2
        return None if left <= 0 else math.ceil(self.own**2 * self.outputs / left)


def gap(
    measured: Interval,
    published: float,
    outputs: int | None,
    *,
    error: float | None = None,
    rounding: float = 0.0,
    log: bool = False,
) -> Gap | None:
    """From an interval and a printed value of so many outputs; None where one has no noise to tell.

    `error` is the published standard error, in nats, where there is one; `rounding` half a unit of
    its last digit. With `log` values and intervals are perplexities.
    """
    if measured.low is None or measured.high is None or not measured.n or measured.n < 2:
        return None
    scale = math.log if log else float
    if (error is None and not outputs) or (log and min(published, measured.low) <= 0):
        return None
    error_here = standard_error(measured, log=log)
    error_there = (
        error_here * math.sqrt(measured.n / outputs) if error is None and outputs else error or 0.0
    )
    rounded = (rounding / published if log else rounding) / math.sqrt(3)
    value = scale(measured.value) - scale(published)
    return Gap(value, error_here, math.hypot(error_there, rounded), measured.n)


def standard_error(interval: Interval, *, log: bool = False) -> float:
    """Behind an interval with two ends, of the logarithm with `log`.

    A jackknife's ends are Student's. Others, such as the paper's, are a bootstrap's: normal
    quantiles of a spread that divides by n where Student's divides by n - 1.
    """
    assert interval.low is not None
    assert interval.high is not None
    scale, n = math.log if log else float, interval.n or 0
    half = (scale(interval.high) - scale(interval.low)) / 2
    if "jackknife" in interval.how:
        return half / student(interval.level, n - 1)
    return half / student(interval.level, MANY) * math.sqrt(n / (n - 1) if n > 1 else 1.0)


def holm(chances: Sequence[float]) -> list[float]:
    """Adjusted so that all that fall below a level hold together (Holm's step-down)."""
    order = sorted(range(len(chances)), key=chances.__getitem__)
    adjusted, least = [1.0] * len(chances), 0.0
    for rank, test in enumerate(order):
        least = max(least, min(1.0, (len(chances) - rank) * chances[test]))
        adjusted[test] = least
    return adjusted


def verdicts(gaps: Sequence[Gap | None], size: float, alpha: float = 1 - LEVEL) -> list[Verdict]:
    """Of every number, all of them at one level together.

    No difference where one of `size` would not have been found is no agreement.
    """
    tested = [difference for difference in gaps if difference is not None]
    adjusted = iter(holm([difference.chance for difference in tested]))
    words: list[Verdict] = []
    for difference in gaps:
        if difference is None:
            words.append("cannot tell")
        elif next(adjusted) < alpha:
            words.append("differs")
        else:
            precise = difference.detectable(alpha / len(tested)) <= size
            words.append("agrees" if precise else "cannot tell")
    return words


def _reach(alpha: float, freedom: int) -> float:
    """Standard errors between nothing and the detectable difference."""
    return student(1 - alpha, freedom) + student(2 * POWER - 1, freedom)
