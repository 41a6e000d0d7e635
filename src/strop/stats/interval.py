"""A number and how sure it is: the one form for every table, document and figure.

Shares of right answers: Wilson's interval, the exact sign test, and the unbiased pass@k.

A bootstrap of a share is too short near 0 and 1 and a point at them; with 256 answers of which 98%
are right, what it calls 95% holds in 88%. Wilson's interval inverts the test of the share instead.

It serves every mean of values between two bounds, too: none of them spreads more than values that
are all at a bound. That is wide, but it holds where values are so skewed that their own spread says
little of how far the mean may move.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.stats.resample import Statistic

# --------------------------------------------------------------------------------------- interval

LEVEL = 0.95
LARGEST = 700.0
"""What is put into exp() at most: more overflows."""


@dataclass(frozen=True)
class Interval:
    """A value and the ends of its interval; None where there are none."""

    value: float
    low: float | None = None
    high: float | None = None
    level: float = LEVEL
    n: int | None = None
    """The independent units that it rests on (outputs, problems, rows); of two pools the fewer."""
    how: str = ""
    """Where the ends come from: `bootstrap`, `jackknife`, `range`, ..."""

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends; an end that is not there is beyond every number."""
        return (
            -math.inf if self.low is None else self.low,
            math.inf if self.high is None else self.high,
        )

    @property
    def bounded(self) -> bool:
        """Whether both ends are there."""
        return self.low is not None and self.high is not None

    @property
    def half(self) -> float:
        """Half of its width; infinite without both ends."""
        low, high = self.ends
        return (high - low) / 2

    def above(self, number: float) -> bool:
        """Whether the whole interval is."""
        return self.ends[0] > number

    def below(self, number: float) -> bool:
        """Whether the whole interval is."""
        return self.ends[1] < number

    def excludes(self, number: float) -> bool:
        """Whether the whole interval is on one side of a number."""
        return self.above(number) or self.below(number)

    def within(self, low: float, high: float) -> bool:
        """Whether the whole interval lies between two numbers and reaches neither."""
        return self.above(low) and self.below(high)

    def mapped(self, function: Callable[[float], float]) -> Interval:
        """The interval of a rising function of the value."""
        low, high = (None if end is None else function(end) for end in (self.low, self.high))
        return replace(self, value=function(self.value), low=low, high=high)

    def exp(self) -> Interval:
        """From a logarithm to the number itself."""
        return self.mapped(lambda end: math.exp(min(end, LARGEST)))

    def span(self, form: str) -> str:
        """`[low, high]` in a number's format; empty without both ends."""
        return f"[{self.low:{form}}, {self.high:{form}}]" if self.bounded else ""

    def __format__(self, form: str) -> str:
        return f"{self.value:{form}} {self.span(form)}".rstrip()

    def document(self) -> dict[str, Any]:
        """For JSON; what is as usual is left out."""
        found: dict[str, Any] = {"value": self.value, "low": self.low, "high": self.high}
        for one in fields(self)[3:]:
            if getattr(self, one.name) != one.default:
                found[one.name] = getattr(self, one.name)
        return found

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Interval:
        """What `document` wrote."""
        ends = document["low"], document["high"]
        if not isinstance(document["value"], (int, float)) or not all(
            end is None or isinstance(end, (int, float)) for end in ends
        ):
            raise TypeError(f"an interval of {document!r:.100}")
        return cls(**document)


def value_of(found: Interval | float | None) -> float | None:
    """The value of what may have an interval or not, and may be missing."""
    return found.value if isinstance(found, Interval) else found


# ----------------------------------------------------------------------------------------- shares

WILSON = "Wilson"
Floats = NDArray[np.float64]


def share_interval(shares: Floats, answers: int = 1, level: float = LEVEL) -> Interval:
    """The mean of shares of right answers, one per problem, each over so many answers.

    Answers to one problem go together, so a mean over P problems of k answers is worth between P
    and kP independent ones: as many as have the variance that the problems' shares have.
    """
    problems, value = len(shares), float(shares.mean())
    spread = float(shares.var(ddof=1)) / problems if problems > 1 else 0.0
    worth = value * (1 - value) / spread if spread > 0 else float(problems)
    return wilson(value, min(max(worth, problems), problems * answers), level, n=problems)


def counted_share(statistic: Statistic, level: float = LEVEL) -> Interval:
    """Wilson's interval of the share of outputs that have something.

    Rows of a clustered statistic (answers to one prompt) are worth as many independent answers as
    have their variance: at least one a row, at most as many as there are.
    """
    right, sizes = np.asarray(statistic.columns, float).T
    rows, answers, value = len(right), float(sizes.sum()), statistic.value
    spread = 0.0
    if rows > 1:
        spread = rows / (rows - 1) * float(((right - value * sizes) ** 2).sum()) / answers**2
    worth = value * (1 - value) / spread if spread > 0 else float(rows)
    return wilson(value, min(max(worth, rows), answers), level, n=rows)


def wilson(value: float, worth: float, level: float = LEVEL, n: int | None = None) -> Interval:
    """Of a share among so many independent answers (Wilson 1927)."""
    from scipy.special import ndtri

    z2 = float(ndtri((1 + level) / 2)) ** 2
    middle = (value + z2 / (2 * worth)) / (1 + z2 / worth)
    root = math.sqrt(value * (1 - value) / worth + z2 / (4 * worth**2))
    half = math.sqrt(z2) * root / (1 + z2 / worth)
    # At 0 and 1 rounding could leave the end a trace beside the value.
    low, high = min(middle - half, value), max(middle + half, value)
    return Interval(value, max(0.0, low), min(1.0, high), level, n or round(worth), WILSON)


def skewed(values: Floats) -> float:
    """How skewed the mean of some values is, by theirs over sqrt(n); infinite if all are one."""
    apart = values - values.mean()
    spread = math.sqrt(float((apart**2).mean()))
    if spread <= 1e-9 * max(1.0, float(np.abs(values).max())):
        return math.inf
    return abs(float((apart**3).mean())) / spread**3 / math.sqrt(len(values))


def bounded_mean(values: Floats, span: tuple[float, float], level: float = LEVEL) -> Interval:
    """The mean of values between two bounds, as if all of them were at a bound."""
    low, high = span
    share = (float(values.mean()) - low) / (high - low)
    found = wilson(min(max(share, 0.0), 1.0), len(values), level)
    return found.mapped(lambda end: low + (high - low) * end)


def bounded_difference(differences: Floats, most: float, level: float = LEVEL) -> Interval:
    """The mean of differences of at most so much: that of the gains less that of the losses.

    Ends are put together by squares, as if gains and losses were independent (Newcombe 1998).
    """
    gain, loss = (
        bounded_mean(np.maximum(sign * differences, 0.0), (0.0, most), level) for sign in (1, -1)
    )
    value = gain.value - loss.value
    low = value - math.hypot(gain.value - gain.ends[0], loss.ends[1] - loss.value)
    high = value + math.hypot(gain.ends[1] - gain.value, loss.value - loss.ends[0])
    return Interval(value, low, high, level, len(differences), WILSON)


def sign_test(differences: Floats) -> float:
    """The exact two-sided p of no difference; with one answer a side it is McNemar's test.

    Only problems on which the sides differ count: each is as likely to favour one as the other.
    """
    from scipy.special import bdtr

    better, worse = int((differences > 0).sum()), int((differences < 0).sum())
    return min(1.0, 2 * float(bdtr(min(better, worse), better + worse, 0.5)))


def pass_at(right: Floats, answers: int, k: int) -> Floats:
    """The chance that one of k answers is right, unbiased, per problem: 1 - C(n-c, k) / C(n, k).

    `right` is how many of a problem's answers are.
    """
    wrong = answers - np.asarray(right, float)
    places = np.arange(k)
    return 1 - np.prod(np.clip(wrong[:, None] - places, 0, None) / (answers - places), axis=1)
