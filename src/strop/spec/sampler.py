"""How a denoiser becomes a generator: the sampler's settings, and where it operates.

A temperature that changes from call to call: `linear/0.8/0.4`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    PlainSerializer,
    ValidationInfo,
    WrapValidator,
    field_validator,
    model_validator,
)

from strop.errors import UserError
from strop.records import (
    SAMPLERS,
    Finish,
    Implementation,
    Noise,
    Precision,
    Sampler,
    default_sampler,
)
from strop.records.sampler import Value, filled
from strop.spec.value import MOST_STEPS, Spec, out_of_range, require, shown

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


EPSILON = 1e-5
"""Mass that the public samplers leave to their finish: they stop at t = 1e-5, not at 0."""

GRID_TOLERANCE = 1e-6
"""Masses written or stored in float32 sum to one only about this well; they are renormalised."""


def _kept(value: Any, check: Any) -> float:
    """A schedule stays one; pydantic would make a plain number of it."""
    return value if isinstance(value, Cooling) else check(value)


def _written(value: float) -> Any:
    return str(value) if isinstance(value, Cooling) else value


Temperature = Annotated[float, WrapValidator(_kept), PlainSerializer(_written, when_used="json")]


class SamplerSpec(Spec):
    """How a denoiser becomes a generator of token sequences."""

    younger = ("settings", "version", "noise")
    name: str = "ancestral"
    """Which algorithm; `strop.spec.SAMPLERS` lists the known ones."""
    steps: int = 64
    """Configured updates, the paper's M; with a grid of your own, its number of masses.

    A causal sampler has one per token: left out it is 0, and the length decides.
    """
    temperature: Temperature = 1.0
    """The paper's tau: clean-token logits times 1/tau, renormalised; 0 takes the best token. Or a
    schedule, where the sampler has one: `linear/A/B` or `late/A/B` over the share revealed (the
    finish is at B), or `linear/A/B` over the calls of a canvas."""
    precision: Precision = "float64"
    """Precision of the random numbers behind the categorical draw, not of the network."""
    top_p: float = 1.0
    """Keep the smallest set of clean tokens whose mass reaches this; 1 keeps all."""
    grid: Literal["uniform"] | tuple[float, ...] = "uniform"
    """Reveal masses, one per round, summing to one; or the public uniform grid."""
    finish: Finish = "greedy"
    """What happens to the last mass: best token, a draw like any other, or left masked.

    Unset, it is the public one on the uniform grid (whose last mass is 1e-5) and `draw` on a grid
    of your own.
    """
    implementation: Implementation = "fast"
    """`dense` follows the public code step by step; `fast` has the same law at a lower cost."""
    noise: Noise = "cpu"
    """Where `dense` draws its random numbers: on the CPU, copied, the same on every machine; or on
    the network's device, as the public codes do there. A device's float32 numbers may be another
    law: for cost, not for parity."""
    settings: dict[str, Value] = Field(default_factory=dict)
    """What only this sampler has, e.g. ReMDM's `eta`; `SAMPLERS[name].settings` declares them.

    They may be given by name like any other field; what is left out is filled in.
    """

    version: str | None = None
    """Of a sampler that another package or a script brings: as its record says, filled in."""

    def said(self) -> dict[str, Any]:
        """The fields by which a file says this sampler: its steps, and what is not as usual."""
        found = {"steps": self.steps} | self.model_dump(mode="json", exclude_defaults=True)
        # The field's own default is unusual on a grid of one's own.
        unusual = self.finish != _usual_finish(self.name, self.grid)
        return found | ({"finish": self.finish} if unusual else {})

    def for_length(self, length: int) -> Self:
        """A causal sampler has a step per token: its steps are known once the length is."""
        if SAMPLERS[self.name].causal and self.steps == 0:
            return self.model_copy(update={"steps": length})
        return self

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        """Make what depends on other fields explicit, so that equal settings have equal ids."""
        if not isinstance(data, dict):
            return data
        data = dict(data)
        name = data.get("name", "ancestral")
        facts = SAMPLERS.find(name if isinstance(name, str) else str(name), "SamplerSpec.name")
        data = _in_our_names(facts, data)
        data["temperature"] = _temperature(facts, data.get("temperature"))
        grid = data["grid"] = _word_or_masses(data.get("grid", "uniform"))
        own_grid = grid != "uniform"
        if data.get("finish") is None:
            data["finish"] = _usual_finish(facts.name, grid)
        if own_grid and data.get("steps") is None:
            data["steps"] = len(grid)
        if data.get("version") is None:
            data["version"] = facts.version
        if facts.causal and data.get("steps") is None:
            data["steps"] = 0
        own = [key for key in data if key not in cls.model_fields] if facts.any_settings else ()
        by_name = {key: data.pop(key) for key in (*facts.settings, *own) if key in data}
        data["settings"] = filled(
            name, facts.settings, data.get("settings", {}), by_name, any_name=facts.any_settings
        )
        return data

    @field_validator("steps", "temperature", "top_p", mode="before")
    @classmethod
    def _no_truth_values(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool):
            raise out_of_range(cls, str(info.field_name), value)
        return value

    @field_validator("temperature")
    @classmethod
    def _one_zero(cls, value: float) -> float:
        # -0.0 and 0.0 are one temperature and must have one id
        return value if isinstance(value, Cooling) else value + 0.0

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with some fields changed; a number that sweeps a schedule is a constant one."""
        update = dict(update or {})
        if "temperature" in update and SAMPLERS[update.get("name", self.name)].schedule:
            update["temperature"] = Cooling.of(update["temperature"])
        return super().model_copy(update=update, deep=deep)

    @model_validator(mode="after")
    def _check(self) -> Self:
        facts = SAMPLERS[self.name]
        require(self, (0 if facts.causal else 1) <= self.steps <= MOST_STEPS, "steps")
        require(self, self.temperature >= 0, "temperature")
        require(self, 0 < self.top_p <= 1, "top_p")
        if self.grid != "uniform" and self.steps != len(self.grid):
            raise UserError(
                "The reveal grid and the number of steps disagree.",
                where="SamplerSpec",
                got=f"{len(self.grid)} masses and steps={self.steps}",
                expected="one mass per step; leave `steps` out and the grid decides",
            )
        if not facts.grid and (self.grid != "uniform" or self.finish != facts.finish):
            raise UserError(
                f"The sampler {self.name!r} has neither a reveal grid nor a finish.",
                where="SamplerSpec",
                got=f"grid={shown(self.grid)}, finish={self.finish!r}",
                fix="leave both out",
            )
        if facts.check is not None:
            facts.check(self.settings)
        _check_offered(self, facts)
        facts.form(self.implementation)
        return self


def swept(name: str, temperature: Any) -> Any:
    """What a value of a sweep over temperatures is for a sampler: where it has a schedule, a number
    is a constant one."""
    return Cooling.of(temperature) if SAMPLERS[name].schedule else temperature


def _temperature(facts: Sampler, given: Any) -> Any:
    """A number, or a schedule where the sampler has one; what is left out is filled in."""
    given = number_or_schedule(given)
    if facts.schedule is None:
        if isinstance(given, Cooling) and not facts.cools:
            with_one = [name for name, one in SAMPLERS.items() if one.schedule or one.cools]
            raise UserError(
                f"The sampler {facts.name!r} has one temperature, no schedule.",
                where="SamplerSpec.temperature",
                got=str(given),
                expected=f"a number; {FORM} is for " + ", ".join(with_one),
            )
        return 1.0 if given is None else given
    if given is None:
        return Cooling.of(facts.schedule)
    if isinstance(given, Cooling) and given.kind != "linear":
        raise UserError(
            f"The schedule of {facts.name!r} goes over its calls, in equal steps.",
            where="SamplerSpec.temperature",
            got=str(given),
            expected=FORM,
        )
    if not isinstance(given, Cooling):
        constant = shown(given)
        raise UserError(
            f"The public code of {facts.name!r} accepts a temperature and ignores it: its schedule "
            "acts.",
            where="SamplerSpec.temperature",
            got=constant,
            expected=f"{FORM}, from the first call towards the last; public: {facts.schedule}",
            fix=f"use `temperature=linear/{constant}/{constant}` for a constant one",
        )
    return given


LIFTED = ("steps", "temperature", "top_p")
"""Fields of every sampler that the public codes have among their options."""


def _in_our_names(facts: Sampler, data: dict[str, Any]) -> dict[str, Any]:
    """What came under a public code's names, as fields or among `settings`, under ours.

    Among `settings`, what is a field of every sampler becomes that field.
    """
    inner = data.get("settings", {})
    if facts.public_names is None or not isinstance(inner, Mapping):
        return data
    outer = {key: value for key, value in data.items() if key != "settings"}
    alone, fields = facts.public_names(inner), facts.public_names(outer)
    for key in LIFTED:
        if key in alone and fields.get(key, alone[key]) != alone[key]:
            raise UserError(
                f"`{key}` is given twice.",
                where="SamplerSpec.settings",
                got=f"{shown(alone[key])} in `settings` and {shown(fields[key])} beside it",
                fix="leave one out",
            )
    own = {key: value for key, value in alone.items() if key not in LIFTED}
    lifted = {key: value for key, value in alone.items() if key in LIFTED}
    return {**lifted, **fields, "settings": own}


def _check_offered(spec: SamplerSpec, facts: Sampler) -> None:
    """Refuse a finish or a fast precision that the sampler does not have."""
    if spec.finish not in facts.finishes:
        raise UserError(
            f"The sampler {spec.name!r} has no finish {spec.finish!r}.",
            where="SamplerSpec.finish",
            got=spec.finish,
            expected="one of " + ", ".join(facts.finishes),
        )
    if spec.implementation == "fast" and spec.noise != "cpu":
        raise UserError(
            "Only the dense form draws a number per class, on the CPU or on the device.",
            where="SamplerSpec.noise",
            got=f"noise={spec.noise!r} with implementation='fast'",
            fix="use `implementation=dense`, or leave `noise` out",
        )
    if (
        spec.implementation == "fast"
        and facts.fast is not None
        and spec.precision not in facts.fast_precisions
    ):
        raise UserError(
            f"The sampler {spec.name!r} has no fast implementation with {spec.precision} draws.",
            where="SamplerSpec.implementation",
            got="fast",
            expected="dense, or draws in " + " or ".join(facts.fast_precisions),
            fix="use `implementation=dense`",
        )


@dataclass(frozen=True)
class OperatingPoint:
    """A sampler without its number of steps: what a column of a table stands for."""

    sampler: SamplerSpec
    """With the fewest steps it can have; `of` makes it so, and equal points are equal."""

    @classmethod
    def of(cls, spec: SamplerSpec) -> OperatingPoint:
        """Where a sampler operates, whatever its number of steps."""
        least = 0 if SAMPLERS[spec.name].causal else 1
        return cls(spec if spec.grid != "uniform" else spec.model_copy(update={"steps": least}))

    def at(self, steps: int) -> SamplerSpec:
        """The sampler at a budget; a causal one, and one with a grid of its own, has no choice."""
        fixed = SAMPLERS[self.sampler.name].causal or self.sampler.grid != "uniform"
        return self.sampler if fixed else self.sampler.model_copy(update={"steps": steps})

    def fields(self) -> dict[str, Any]:
        """Every field but the steps, what only this sampler has among them."""
        shown = self.sampler.model_dump(mode="json")
        return {k: v for k, v in shown.items() if k not in ("steps", "settings", "version")} | dict(
            self.sampler.settings
        )

    @property
    def order(self) -> tuple[Any, ...]:
        """For tables: temperatures descending, float64 first, then by name."""
        return (-self.sampler.temperature, self.sampler.precision != "float64", str(self))

    def __str__(self) -> str:
        """`(0.9, float32)`, and whatever else is not the default of its family."""
        spec, facts = self.sampler, SAMPLERS[self.sampler.name]
        words = [f"{spec.temperature:g}", spec.precision]
        words += [f"top_p {spec.top_p:g}"] if spec.top_p != 1 else []
        words += ["own grid"] if spec.grid != "uniform" else []
        unusual = spec.finish != _usual_finish(spec.name, spec.grid)
        words += [f"finish {spec.finish}"] if unusual else []
        words += [spec.implementation] if spec.implementation != "fast" else []
        words += ["noise of the device"] if spec.noise != "cpu" else []
        words += [f"{k} {v}" for k, v in _unusual(spec).items()]
        name = "" if spec.name == default_sampler(facts.family) else f"{spec.name} "
        return f"{name}({', '.join(words)})"


def _usual_finish(name: str, grid: object) -> Finish:
    return SAMPLERS[name].finish if grid == "uniform" else "draw"


def _unusual(spec: SamplerSpec) -> dict[str, Value]:
    """The sampler's own settings that are not its defaults."""
    declared = SAMPLERS[spec.name].settings
    return {k: v for k, v in spec.settings.items() if k not in declared or v != declared[k].default}


def plain_baseline(spec: SamplerSpec) -> SamplerSpec | None:
    """The sampler that reveals as this one does and takes nothing back; None for a plain one.

    Steps, temperature, top_p (and its rule), precision and finish are the same, so that what is
    left between the two is the revising.
    """
    name, sibling = SAMPLERS[spec.name].baseline, dict(SAMPLERS[spec.name].plain)
    if sibling:  # the same sampler, without what sharpens or rejects
        fields = {key: sibling.pop(key) for key in ("temperature",) if key in sibling}
        plain = spec.model_copy(update={**fields, "settings": {**spec.settings, **sibling}})
        return None if plain == spec else plain
    if name is None:
        return None
    shared = ("steps", "temperature", "precision", "top_p", "grid", "finish")
    return SamplerSpec(name=name, **{field: getattr(spec, field) for field in shared})


def _word_or_masses(value: Any) -> str | tuple[float, ...]:
    if isinstance(value, str) and value == "uniform":
        return value
    # Bytes iterate as numbers, and sets and mappings have no order to speak of.
    if not isinstance(value, (str, bytes, bytearray, Set, Mapping)):
        try:
            return _masses(tuple(value))
        except TypeError:
            pass  # a number, None, an array without axes
    raise UserError(
        "The reveal grid is neither 'uniform' nor a list of masses.",
        where="SamplerSpec.grid",
        got=shown(value),
        expected="'uniform', or masses that sum to one such as [0.25, 0.25, 0.5]",
    )


def _masses(value: tuple[Any, ...]) -> tuple[float, ...]:
    try:
        # Adding zero makes one zero of 0.0 and -0.0: equal grids must have equal ids.
        masses = tuple(float(mass) + 0.0 for mass in value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(
            "The reveal grid holds something that is not a number.",
            where="SamplerSpec.grid",
            got=shown(value),
        ) from None
    if not masses or not all(mass >= 0 and math.isfinite(mass) for mass in masses):
        raise UserError(
            "A reveal grid needs masses of at least zero.",
            where="SamplerSpec.grid",
            got=shown(list(masses)),
            expected="one or more finite numbers, none of them negative",
        )
    total = math.fsum(masses) if max(masses) < 2 else max(masses)  # fsum refuses to overflow
    if abs(total - 1) > GRID_TOLERANCE:
        raise UserError(
            "The reveal grid does not sum to one.",
            where="SamplerSpec.grid",
            got=f"a sum of {total!r}" if max(masses) < 2 else f"a mass of {total!r}",
            expected="reveal masses (not cumulative times) that sum to 1",
        )
    return masses


def label(spec: SamplerSpec) -> str:
    """A cell in a few words: steps, temperature, precision, and what is not the default.

    A revising sampler and its baseline always show top_p: it sharpens, and so may they.
    """
    words = [f"M={spec.steps}", f"tau={spec.temperature:g}", spec.precision]
    if spec.top_p != 1 or SAMPLERS[spec.name].nucleus == "within":
        words.append(f"top_p={spec.top_p:g}")
    if spec.grid != "uniform":
        words.append("own grid")
    if spec.name != "ancestral":
        words.insert(0, spec.name)
    words += [f"{k}={v}" for k, v in _unusual(spec).items()]
    if spec.implementation != "fast":
        words.append(spec.implementation)
    return " ".join(words)
