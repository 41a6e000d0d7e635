"""What may be tried: axes over a sampler's fields, and the combinations that samplers allow.

    temperature=0.6:1.1         any number between two ends
    eta=0.005:0.1:log           the same, in equal ratios
    temperature=0.8:1.1:0.05    in steps
    block_length=8:64           whole numbers, where the field is one
    name=ancestral,remdm-cap    a list

An axis that one of several samplers lacks is skipped for it, and `skipped` says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from strop.errors import UserError, unknown_name
from strop.records.record import SAMPLERS, default_sampler
from strop.runtime import MOST_VALUES, bounded
from strop.spec.generator import SamplerSpec, check_family, swept

DIGITS = 3
"""Significant digits of a proposed number: settings that people can write down."""
NEAR = 0.02
"""The share of an axis at either end that counts as its edge."""
SHARED = ("steps", "temperature", "precision", "top_p", "finish", "implementation")
"""Fields of every sampler that an axis may vary; `name` says which samplers there are."""
WHOLE = ("steps",)
NATURAL = {"top_p": 1.0}
"""Where a field cannot go any further, so that its edge is no news."""


@dataclass(frozen=True)
class Axis:
    """One field and what it may be: one of some values, or a number between two ends."""

    name: str
    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    step: float | None = None
    whole: bool = False

    @classmethod
    def parse(cls, text: str) -> Axis:
        """From `name=low:high[:log|:step]` or `name=value,value`."""
        name, equals, rest = (part.strip() for part in str(text).partition("="))
        words = [word.strip() for word in rest.split(",")]
        if not name or not equals or not all(words):
            raise _unreadable(text)
        if ":" not in rest:
            return cls(name, tuple(dict.fromkeys(_number(word) for word in words)))
        parts = [part.strip() for part in rest.split(":")]
        ends = [_number(part) for part in parts[:2]]
        third = parts[2] if len(parts) == 3 else None
        step = None if third in (None, "log") else _number(third)
        if len(parts) > 3 or any(isinstance(number, str) for number in (*ends, step)):
            raise _unreadable(text)
        axis = cls(name, (), float(ends[0]), float(ends[1]), third == "log", step)
        axis._check(text)
        return axis

    def _check(self, text: str) -> None:
        wrong = None
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            wrong = "two numbers, the lower one first"
        elif self.log and self.low <= 0:
            wrong = "ends above zero where ratios are equal"
        elif self.step is not None and not 0 < self.step <= self.high - self.low:
            wrong = "a step above zero that fits between the ends"
        elif self.step is not None:
            fix = "a larger step, or no step: name=low:high tries any number between the ends"
            count = (self.high - self.low) / self.step
            bounded(f"`space={self.name}`", count, MOST_VALUES, fix)
        if wrong is not None:
            raise UserError(
                f"The axis {self.name!r} has no such range.",
                where="`space`",
                got=repr(text),
                expected=wrong,
            )

    @property
    def listed(self) -> tuple[Any, ...] | None:
        """Every value, where they can be counted."""
        if self.values:
            return self.values
        step = self.step or (1.0 if self.whole else None)
        if step is None:
            return None
        count = math.floor((self.high - self.low) / step * (1 + 1e-9)) + 1
        if count > MOST_VALUES + 1:  # whole numbers without a step: as good as any number
            return None
        return tuple(self.value(self.low + i * step) for i in range(count))

    def value(self, number: float) -> Any:
        """A number of the range as it is written: inside the ends, short, whole if need be."""
        if self.whole:
            return round(min(max(number, self.low), self.high))
        digits = 12 if self.step is not None else DIGITS
        return min(max(float(f"{number:.{digits}g}"), self.low), self.high)

    def edge(self, value: Any) -> str | None:
        """Which end a value lies at; None inside, for words, and where there is but one value."""
        ends = [end for end in (self.values or (self.low, self.high)) if _is_number(end)]
        if len(set(ends)) < 2 or not _is_number(value) or len(ends) < len(self.values):
            return None
        low, high = min(ends), max(ends)
        if value == NATURAL.get(self.name):
            return None
        scale = math.log if self.log else float
        near = 0.0 if self.listed is not None else NEAR
        share = (scale(value) - scale(low)) / (scale(high) - scale(low))
        if share <= near:
            return f"{self.name} {value:g} is at the lowest that was allowed ({low:g})"
        if share >= 1 - near:
            return f"{self.name} {value:g} is at the highest that was allowed ({high:g})"
        return None

    def __str__(self) -> str:
        """As it is typed."""
        if self.values:
            return f"{self.name}=" + ",".join(map(str, self.values))
        third = ":log" if self.log else "" if self.step is None else f":{self.step:g}"
        return f"{self.name}={self.low:g}:{self.high:g}{third}"


def parse(texts: Iterable[str]) -> tuple[Axis, ...]:
    """Axes as they are typed, each name once."""
    axes: dict[str, Axis] = {}
    for text in texts:
        axis = Axis.parse(text)
        if axis.name in axes:
            raise UserError(f"The axis {axis.name!r} is given twice.", where="`space`", got=text)
        axes[axis.name] = axis
    return tuple(axes.values())


@dataclass(frozen=True)
class Space:
    """Some samplers and the axes along which they may be set."""

    samplers: tuple[str, ...]
    axes: tuple[Axis, ...]
    fixed: Mapping[str, Any]
    """Fields that are the same everywhere, such as the budget; what is left out is the default."""
    skipped: tuple[str, ...] = ()
    """What was skipped, in words."""

    @classmethod
    def of(
        cls, axes: Sequence[Axis | str], sampler: str, fixed: Mapping[str, Any] | None = None
    ) -> Space:
        """From axes; `sampler` is meant where no axis names any. Impossible axes are refused."""
        read = [axis if isinstance(axis, Axis) else parse([axis])[0] for axis in axes]
        named = [axis for axis in read if axis.name == "name"]
        samplers = tuple(str(v) for v in named[0].values) if named else (sampler,)
        if named and not named[0].values:
            raise UserError("Samplers have names.", where="`space`", got=str(named[0]))
        for name in samplers:
            if name not in SAMPLERS:
                raise unknown_name("sampler", name, SAMPLERS, where="`space`")
        typed = [_with_number_kind(axis, samplers) for axis in read if axis.name != "name"]
        twice = [name for name in (fixed or {}) if any(axis.name == name for axis in typed)]
        if twice:
            raise UserError(
                f"{twice[0]!r} is both an axis and fixed.", where="`space`", fix="leave one out"
            )
        skipped = [
            f"{axis.name} is skipped for {name}, which has no such setting"
            for name in samplers
            for axis in typed
            if not _has(name, axis.name)
        ]
        skipped += [
            f"{field} is skipped for {name}, which has no such setting"
            for name in samplers
            for field in fixed or {}
            if _skipped(name, field, samplers)
        ]
        space = cls(samplers, tuple(typed), dict(fixed or {}), tuple(skipped))
        space._try_the_ends()
        return space

    def axes_of(self, sampler: str) -> tuple[Axis, ...]:
        """The axes that a sampler has."""
        return tuple(axis for axis in self.axes if _has(sampler, axis.name))

    def spec(self, sampler: str, values: Mapping[str, Any]) -> SamplerSpec:
        """One setting; a causal sampler takes no steps, one without a fast form none."""
        facts = SAMPLERS[sampler]
        fixed = {k: v for k, v in self.fixed.items() if not _skipped(sampler, k, self.samplers)}
        fields = {**fixed, **values}
        if facts.causal:
            fields.pop("steps", None)
        if facts.fast is None:
            fields.setdefault("implementation", "dense")
        if "temperature" in fields:
            fields["temperature"] = swept(sampler, fields["temperature"])
        return SamplerSpec(name=sampler, **fields)

    def settings(self, most: int) -> list[SamplerSpec] | None:
        """Every combination that the samplers allow; None where there are more than `most`."""
        specs: dict[str, SamplerSpec] = {}
        for sampler, values in self._combinations(most):
            try:
                spec = self.spec(sampler, values)
            except UserError:  # of combinations: each end alone was tried
                continue
            specs[spec.id] = spec
            if len(specs) > most:
                return None
        return list(specs.values()) or None

    def _combinations(self, most: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """All of them; none where they cannot be counted or are far too many."""
        by_sampler = {name: [axis.listed for axis in self.axes_of(name)] for name in self.samplers}
        if any(choices is None for lists in by_sampler.values() for choices in lists):
            return
        counts = [
            math.prod(len(choices or ()) for choices in lists) for lists in by_sampler.values()
        ]
        if sum(counts) > 16 * most:
            return
        for name, lists in by_sampler.items():
            names = [axis.name for axis in self.axes_of(name)]
            for values in product(*(choices or () for choices in lists)):
                yield name, dict(zip(names, values, strict=True))

    def values(self, spec: SamplerSpec) -> dict[str, Any]:
        """Where a setting lies on the axes that it has."""
        fields = {**spec.model_dump(mode="json"), **spec.settings}
        return {axis.name: fields[axis.name] for axis in self.axes_of(spec.name)}

    def edges(self, spec: SamplerSpec) -> tuple[str, ...]:
        """At which ends a setting lies: a wider space might choose otherwise."""
        values = self.values(spec)
        notes = []
        for axis in self.axes_of(spec.name):
            declared = SAMPLERS[spec.name].settings.get(axis.name)
            value = values[axis.name]
            last = declared is not None and value in (declared.least, declared.most)
            note = None if last else axis.edge(value)
            notes += [note] if note else []
        return tuple(notes)

    def _try_the_ends(self) -> None:
        """Refuse an axis of which a sampler cannot take any or an end, before anything is drawn."""
        for sampler in self.samplers:
            self.spec(sampler, {})
            for axis in self.axes_of(sampler):
                for value in axis.values or (axis.value(axis.low), axis.value(axis.high)):
                    self._try(sampler, axis, value)

    def _try(self, sampler: str, axis: Axis, value: Any) -> None:
        try:
            self.spec(sampler, {axis.name: value})
        except UserError as error:
            # Ends that only go together with another axis' values are left to the search.
            others = [other for other in self.axes_of(sampler) if other is not axis]
            if others and error.where == "SamplerSpec.settings":
                return
            raise UserError(
                f"The axis {axis.name!r} does not fit the sampler {sampler!r}.",
                where="`space`",
                got=f"{axis.name}={value}",
                expected=error.expected or error.what,
            ) from None

    def document(self) -> dict[str, Any]:
        """For JSON, and for the search's identity."""
        return {
            "samplers": list(self.samplers),
            "axes": [str(axis) for axis in self.axes],
            "fixed": dict(self.fixed),
        }


def _has(sampler: str, field: str) -> bool:
    facts = SAMPLERS[sampler]
    if field not in SHARED and facts.has(field):
        return True
    return field in SHARED and not (field == "finish" and not facts.grid)


def _skipped(sampler: str, field: str, samplers: Sequence[str]) -> bool:
    """Whether a fixed setting is one of the other samplers only."""
    return not _has(sampler, field) and any(_has_own(name, field) for name in samplers)


def _with_number_kind(axis: Axis, samplers: Sequence[str]) -> Axis:
    """The axis with its kind of number, if some sampler has it."""
    declared = [
        SAMPLERS[name].settings[axis.name] for name in samplers if _has_own(name, axis.name)
    ]
    if axis.name not in SHARED and not any(SAMPLERS[name].has(axis.name) for name in samplers):
        field_names = {
            *SHARED,
            "name",
            *(key for name in samplers for key in SAMPLERS[name].settings),
        }
        families = {SAMPLERS[name].family for name in samplers}
        have = [
            name
            for name, facts in SAMPLERS.items()
            if axis.name in facts.settings and facts.family in families
        ]
        fix = f"`space=name={','.join(have)}`, which have it" if have else None
        raise unknown_name("field of the sampler", axis.name, field_names, where="`space`", fix=fix)
    words = axis.name in ("precision", "finish", "implementation")
    words = words or any(isinstance(setting.default, str) for setting in declared)
    if words and not axis.values:
        raise UserError(
            f"{axis.name!r} is one of some words, not a number.",
            where="`space`",
            got=str(axis),
            expected=f"{axis.name}=WORD,WORD",
        )
    whole = axis.name in WHOLE or (
        bool(declared) and all(isinstance(setting.default, int) for setting in declared)
    )
    if whole and not axis.values and (axis.low % 1 or axis.high % 1 or (axis.step or 1) % 1):
        raise UserError(f"{axis.name!r} takes whole numbers.", where="`space`", got=str(axis))
    return replace(axis, whole=whole)


def _has_own(sampler: str, field: str) -> bool:
    return field in SAMPLERS[sampler].settings


def _number(word: str | None) -> Any:
    for kind in (int, float):
        try:
            return kind(word)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            continue
    return word


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _unreadable(text: object) -> UserError:
    return UserError(
        "An axis of the space cannot be read.",
        where="`space`",
        got=repr(text),
        expected="name=low:high, name=low:high:log, name=low:high:step or name=value,value",
    )


def fitting(family: str, name: str, where: str = "`sampler`") -> Any:
    """What is known of a sampler, if it can sample a checkpoint of the family."""
    facts = SAMPLERS.find(name, where="`sampler`")
    check_family(family, name)
    if facts.causal != SAMPLERS[default_sampler(family)].causal:
        raise UserError(
            f"The sampler {name!r} does not fit a checkpoint of the family {family!r}.",
            where=where,
            fix=f"use `sampler={default_sampler(family)}`",
        )
    return facts
