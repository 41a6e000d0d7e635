"""Settings that only some samplers have: declared by the sampler, checked, filled in.

A sampler's facts declare them by name (`strop.spec.SAMPLERS`); a `SamplerSpec` holds their values
in `settings`, every one of them, so that equal settings have equal ids. A sampler without any has
an empty `settings`, which its canonical text leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from strop.errors import UserError, unknown_name

Value = float | int | str


@dataclass(frozen=True)
class Setting:
    """One setting; the type of its default is its type."""

    meaning: str
    """One line, for people."""
    default: Value
    """What the public code's own script uses."""
    least: float = 0.0
    most: float = 1.0
    open: bool = False
    """Whether both ends of the range are excluded."""
    choices: tuple[str, ...] | None = ()
    """The words that it may be, where its default is a word; None: any."""

    @property
    def expected(self) -> str:
        """What its value may be, for error messages."""
        if self.choices is None:
            return "a text"
        if self.choices:
            return "one of " + ", ".join(self.choices)
        kind = "a whole number" if isinstance(self.default, int) else "a number"
        if self.open:
            return f"{kind} above {self.least:g} and below {self.most:g}"
        return f"{kind} from {self.least:g} to {self.most:g}"

    def checked(self, value: Any, where: str) -> Value:
        """The value in its one spelling, or an error."""
        if isinstance(self.default, str):
            fits = isinstance(value, str) if self.choices is None else value in self.choices
        else:
            kind = Integral if isinstance(self.default, int) else Real
            fits = self._within(value) if _is(value, kind) else False
        if not fits:
            raise UserError(
                f"{where} is out of range.",
                where=where,
                got=repr(value)[:80],
                expected=self.expected,
            )
        if isinstance(self.default, str):
            return str(value)
        if isinstance(self.default, int):
            return int(value)
        return float(value) + 0.0  # -0.0 and 0.0 are one value and must have one id

    def _within(self, value: Any) -> bool:
        if not math.isfinite(value):
            return False
        if self.open:
            return self.least < value < self.most
        return self.least <= value <= self.most


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def filled(
    sampler: str,
    declared: Mapping[str, Setting],
    given: Any,
    by_name: Mapping[str, Any],
    *,
    any_name: bool = False,
) -> dict[str, Value]:
    """Every declared setting: as given in the mapping or by its own name, or its default.

    With `any_name` there may be others, which are taken as they are.
    """
    if not isinstance(given, Mapping):
        raise UserError(
            "A sampler's own settings are not a mapping.",
            where="SamplerSpec.settings",
            got=repr(given)[:80],
            expected='names and values such as {"eta": 0.008}',
        )
    for name in given:
        if name not in declared and not any_name:
            raise _unknown(sampler, str(name), declared)
    given = {**given, **by_name}
    found = {
        name: setting.checked(given.get(name, setting.default), f"SamplerSpec.settings.{name}")
        for name, setting in declared.items()
    }
    return found | {name: _plain(name, given[name]) for name in sorted(given) if name not in found}


def _plain(name: str, value: Any) -> Value:
    """A number or a word, as it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise UserError(
        f"{name} is neither a number nor a text.",
        where=f"SamplerSpec.settings.{name}",
        got=repr(value)[:80],
        fix="write an object or a list as text in JSON",
    )


def _unknown(sampler: str, name: str, declared: Mapping[str, Setting]) -> UserError:
    if not declared:
        return UserError(
            f"The sampler {sampler!r} has no settings of its own.",
            where="SamplerSpec.settings",
            got=name,
            fix="leave it out, or choose the sampler that has it",
        )
    return unknown_name(f"setting of {sampler!r}", name, declared, where="SamplerSpec.settings")
