"""A number and how sure it is: the one form for every table, document and figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

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
        document: dict[str, Any] = {"value": self.value, "low": self.low, "high": self.high}
        for attribute in fields(self)[3:]:
            if getattr(self, attribute.name) != attribute.default:
                document[attribute.name] = getattr(self, attribute.name)
        return document

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Interval:
        """What `document` wrote."""
        ends = document["low"], document["high"]
        if not isinstance(document["value"], (int, float)) or not all(
            end is None or isinstance(end, (int, float)) for end in ends
        ):
            raise TypeError(f"an interval of {document!r:.100}")
        return cls(**document)


def value_of(number: Interval | float | None) -> float | None:
    """The value of what may have an interval or not, and may be missing."""
    return number.value if isinstance(number, Interval) else number
