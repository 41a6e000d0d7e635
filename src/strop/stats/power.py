"""How many outputs a question needs, from a pilot that says how much single outputs vary.

An estimate from n outputs a side has the standard error `error / sqrt(n)`, and how often a rule
decides depends on `x = sqrt(n) / error` alone. A pilot of m outputs knows `error` only so well: its
square is off by a chi-square with m - 1 degrees of freedom over their number, so the same promise
is kept more or less often, pilot by pilot. The number of outputs is the one at which, over pilots,
a rule decides four times out of five on average; beside it stands what 90% of pilots lead to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
