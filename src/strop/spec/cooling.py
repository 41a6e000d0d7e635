"""A temperature that changes while a text is made: `linear/0.8/0.4`, `late/1/0.6`."""

from __future__ import annotations

import math
from typing import Any

from strop.errors import UserError

FORM = "linear/A/B"
KINDS = ("linear", "late")
HALF = 0.5 - 1e-5
"""Half of the positions: the public grid leaves 1e-5 to its finish, so its middle comes earlier."""


class Cooling(float):
    """From `first` to `last` with the share a of a text that is revealed.

    `linear`: first + (last - first) a; on a canvas of N calls a is i / N. `late`: `first` while
    less than half is revealed, then `last`.

    To whoever sorts or draws temperatures it is a number, the mean of both ends; it is written,
    stored and compared as what it is, so that no schedule equals a number.
    """

    __slots__ = ("first", "kind", "last")
    first: float
    last: float
    kind: str

    def __new__(cls, first: float, last: float, kind: str = "linear") -> Cooling:
        """Both ends; adding zero makes one zero of 0.0 and -0.0."""
        made = super().__new__(cls, (first + last) / 2)
        made.first, made.last, made.kind = float(first) + 0.0, float(last) + 0.0, kind
        return made

    def at(self, share: float) -> float:
        """The temperature once this share of a text is revealed."""
        if self.kind == "late":
            return self.last if share >= HALF else self.first
        return self.first + (self.last - self.first) * share

    @classmethod
    def of(cls, value: Any) -> Cooling:
        """A schedule, its text, or a number, which is a constant one."""
        if isinstance(value, Cooling):
            return value
        if not isinstance(value, str):
            return cls(float(value), float(value))
        kind, *ends = value.split("/")
        try:
            first, last = (float(end) for end in ends)
        except ValueError:
            kind, first, last = "", 0.0, 0.0
        if kind not in KINDS or not all(math.isfinite(t) and t >= 0 for t in (first, last)):
            raise UserError(
                "This is no schedule of temperatures.",
                where="SamplerSpec.temperature",
                got=repr(value)[:80],
                expected=f"a number, {FORM} or late/A/B with two numbers of at least 0",
                fix="use `temperature=linear/0.8/0.4`, say",
            )
        return cls(first, last, kind)

    def __str__(self) -> str:
        return f"{self.kind}/{_short(self.first)}/{_short(self.last)}"

    __repr__ = __str__

    def __format__(self, how: str) -> str:
        return str(self) if how in ("", "g") else super().__format__(how)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cooling) and str(self) == str(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return Cooling, (self.first, self.last, self.kind)


def _short(number: float) -> str:
    return repr(number).removesuffix(".0")


def number_or_schedule(word: Any) -> Any:
    """A temperature as people type it: a word with a slash is a schedule, the rest is as it was."""
    return Cooling.of(word) if isinstance(word, str) and "/" in word else word
