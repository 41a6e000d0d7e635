"""A checkpoint plus its sampler: the sampler's settings, where it operates, and what it runs on.

With a seed it is a cell, which fully determines an output.
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
from strop.records.record import (
    SAMPLERS,
    Finish,
    Implementation,
    Noise,
    Precision,
    Sampler,
    Value,
    default_sampler,
    filled,
    reads_as,
)
from strop.spec.value import (
    FORM,
    MOST_STEPS,
    SEED_LIMIT,
    Cooling,
    Spec,
    number_or_schedule,
    out_of_range,
    require,
    shortened_repr,
)

EPSILON = 1e-5
"""Mass that the public samplers leave to their finish: they stop at t = 1e-5, not at 0."""

GRID_TOLERANCE = 1e-6
"""Masses written or stored in float32 sum to one only about this well; they are renormalised."""


def _keep_schedule(value: Any, check: Any) -> float:
    """A schedule stays one; pydantic would make a plain number of it."""
    return value if isinstance(value, Cooling) else check(value)


def _schedule_text(value: float) -> Any:
    return str(value) if isinstance(value, Cooling) else value


Temperature = Annotated[
    float, WrapValidator(_keep_schedule), PlainSerializer(_schedule_text, when_used="json")
]


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

    def written_fields(self) -> dict[str, Any]:
        """The fields that a file needs for this sampler: its steps, and what is not a default."""
        document = {"steps": self.steps} | self.model_dump(mode="json", exclude_defaults=True)
        # The field's own default is unusual on a grid of one's own.
        unusual = self.finish != _usual_finish(self.name, self.grid)
        return document | ({"finish": self.finish} if unusual else {})

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
        undeclared = (
            [key for key in data if key not in cls.model_fields] if facts.any_settings else ()
        )
        by_name = {key: data.pop(key) for key in (*facts.settings, *undeclared) if key in data}
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
                got=f"grid={shortened_repr(self.grid)}, finish={self.finish!r}",
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


def _temperature(facts: Sampler, value: Any) -> Any:
    """A number, or a schedule where the sampler has one; what is left out is filled in."""
    value = number_or_schedule(value)
    if facts.schedule is None:
        if isinstance(value, Cooling) and not facts.cools:
            with_one = [
                name for name, record in SAMPLERS.items() if record.schedule or record.cools
            ]
            raise UserError(
                f"The sampler {facts.name!r} has one temperature, no schedule.",
                where="SamplerSpec.temperature",
                got=str(value),
                expected=f"a number; {FORM} is for " + ", ".join(with_one),
            )
        return 1.0 if value is None else value
    if value is None:
        return Cooling.of(facts.schedule)
    if isinstance(value, Cooling) and value.kind != "linear":
        raise UserError(
            f"The schedule of {facts.name!r} goes over its calls, in equal steps.",
            where="SamplerSpec.temperature",
            got=str(value),
            expected=FORM,
        )
    if not isinstance(value, Cooling):
        constant = shortened_repr(value)
        raise UserError(
            f"The public code of {facts.name!r} accepts a temperature and ignores it: its schedule "
            "acts.",
            where="SamplerSpec.temperature",
            got=constant,
            expected=f"{FORM}, from the first call towards the last; public: {facts.schedule}",
            fix=f"use `temperature=linear/{constant}/{constant}` for a constant one",
        )
    return value


LIFTED = ("steps", "temperature", "top_p")
"""Fields of every sampler that the public codes have among their options."""


def _in_our_names(facts: Sampler, data: dict[str, Any]) -> dict[str, Any]:
    """Translate a public code's names, as fields or among `settings`, into ours.

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
                got=f"{shortened_repr(alone[key])} in `settings` and "
                f"{shortened_repr(fields[key])} beside it",
                fix="leave one out",
            )
    settings = {key: value for key, value in alone.items() if key not in LIFTED}
    lifted = {key: value for key, value in alone.items() if key in LIFTED}
    return {**lifted, **fields, "settings": settings}


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
        document = self.sampler.model_dump(mode="json")
        return {
            k: v for k, v in document.items() if k not in ("steps", "settings", "version")
        } | dict(self.sampler.settings)

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
        got=shortened_repr(value),
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
            got=shortened_repr(value),
        ) from None
    if not masses or not all(mass >= 0 and math.isfinite(mass) for mass in masses):
        raise UserError(
            "A reveal grid needs masses of at least zero.",
            where="SamplerSpec.grid",
            got=shortened_repr(list(masses)),
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


class CheckpointSpec(Spec):
    """Which denoiser: what it computes, not where its file lies."""

    younger = ("version",)
    family: str
    """The parameterisation, e.g. `mdlm`, `tabular`."""
    sha256: str
    """Of the weights file, as `sha256sum` prints it; of the target itself for an exact denoiser."""
    weights: str = "released"
    """`ema` or `raw` for a training checkpoint, `released` for a published file, `exact`."""
    shape: dict[str, int | float | bool]
    """Everything the tensors alone do not say, such as heads, mask id, time conditioning."""
    network_dtype: str = "float32"
    normalisation_dtype: str = "float32"
    version: str | None = None
    """Of a family that another package or a script brings: as its record says."""


class PromptSpec(Spec):
    """What outputs are conditioned on: token ids, whichever file, words or template led to them.

    `strop.prompts` makes it; every field follows from the ids, so equal ids are equal prompts.
    """

    sha256: str
    """Of the ids of all prompts in their order, written as JSON with null at open positions."""
    count: int
    """How many there are, P: output number i answers prompt i mod P."""
    form: Literal["prefix", "gaps"]
    """`prefix` if in every prompt all open positions follow all given ones."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        require(self, self.count >= 1, "count")
        return self


class GeneratorSpec(Spec):
    """A checkpoint plus its sampler: the object of comparison."""

    younger = ("prompts",)
    checkpoint: CheckpointSpec
    sampler: SamplerSpec
    length: int
    """Tokens per output; with prompts, the most open positions that one of them has."""
    prompts: PromptSpec | None = None
    """What the outputs answer; None without a condition."""

    @classmethod
    def of(
        cls,
        checkpoint: CheckpointSpec,
        sampler: SamplerSpec,
        length: int,
        prompts: PromptSpec | None = None,
    ) -> Self:
        """A generator with the steps of a causal sampler filled in."""
        return cls(
            checkpoint=checkpoint,
            sampler=sampler.for_length(length),
            length=length,
            prompts=prompts,
        )

    @model_validator(mode="after")
    def _check(self) -> Self:
        require(self, self.length >= 1, "length")
        if self.prompts is not None:
            check_prompts(self.sampler.name, self.prompts)
        if SAMPLERS[self.sampler.name].causal and self.sampler.steps != self.length:
            raise UserError(
                f"The sampler {self.sampler.name!r} makes one step per token.",
                where="SamplerSpec.steps",
                got=f"{self.sampler.steps} steps for {self.length} tokens",
                fix="leave `steps` out and give `length`",
            )
        check_family(self.checkpoint.family, self.sampler.name)
        return self


def check_prompts(sampler: str, prompts: PromptSpec) -> None:
    """Refuse prompts that a sampler cannot answer."""
    facts = SAMPLERS[sampler]
    if (facts.causal or not facts.gaps) and prompts.form == "gaps":
        raise UserError(
            f"The sampler {sampler!r} writes from left to right and fills no gaps.",
            where="GeneratorSpec.prompts",
            got="prompts with gaps",
            expected="prompts that the output follows",
            fix="take the gaps out and give `length`, or use a masked model",
        )
    if facts.with_prompts is not None:
        raise UserError(
            f"The sampler {sampler!r} takes no prompts: its noise is a random token, and the "
            "network cannot tell a given token from a noisy one.",
            where="GeneratorSpec.prompts",
            got=f"{prompts.count} prompts",
            expected=f"the sampler {facts.with_prompts!r}, which holds them fixed: approximate, "
            "however many steps are taken",
            fix=f"use `sampler={facts.with_prompts}`, or a family whose noise is a mask",
        )


def check_family(family: str, sampler: str) -> None:
    """Refuse a sampler that reads another family's predictions."""
    if SAMPLERS[sampler].causal or SAMPLERS[sampler].family == reads_as(family):
        return
    fitting = [name for name, facts in SAMPLERS.items() if facts.family == reads_as(family)]
    raise UserError(
        f"The sampler {sampler!r} does not fit a checkpoint of the family {family!r}.",
        where="SamplerSpec.name",
        got=f"{sampler}, which reads predictions of the family {SAMPLERS[sampler].family!r}",
        expected="one of " + ", ".join(fitting),
        fix=f"use `sampler={default_sampler(family)}`",
    )


class DenseBatch(Spec):
    """The batches that share one random stream; part of a dense cell's identity."""

    size: int
    ragged_total: int | None = None
    """The number of outputs, where it is no multiple of `size` and the last batch is short."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        require(self, self.size >= 1, "size")
        return self


class CellSpec(Spec):
    """One generator under one seed: what fully determines output number i."""

    younger = ("stream",)
    generator: GeneratorSpec
    seed: int
    batch: DenseBatch | None = None
    """Only for `dense`: the fast samplers do not depend on the batch."""
    stream: int = 1
    """Which random numbers the sampler makes of the seed, by its record: another version of them
    is the same law with other outputs. `of` fills it in."""

    @classmethod
    def of(cls, generator: GeneratorSpec, seed: int, *, n: int, batch_size: int) -> Self:
        """The cell that is drawn now: from the stream that the sampler's record names.

        The number of outputs and the batch belong to it only where a batch shares random numbers.
        """
        sampler, batch = generator.sampler, None
        if sampler.implementation == "dense":
            size = min(batch_size, n)
            batch = DenseBatch(size=size, ragged_total=n if n % size else None)
        stream = SAMPLERS[sampler.name].stream(sampler.implementation, sampler.precision)
        return cls(generator=generator, seed=seed, batch=batch, stream=stream)

    @model_validator(mode="after")
    def _check(self) -> Self:
        require(self, 0 <= self.seed < SEED_LIMIT, "seed")
        require(self, self.stream >= 1, "stream")
        return self
