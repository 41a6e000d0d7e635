"""What a number depends on, as values: frozen, comparable, written as canonical JSON, hashed.

Read this file first. A `SamplerSpec` and a `CheckpointSpec` make a `GeneratorSpec`, the object of
every comparison; a `CellSpec` adds the seed, and its `id` names the folder of what came out. A
`MetricSpec` names what was measured on it, a `JudgeSpec` who judged its texts.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    JsonValue,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from strop.errors import UserError, unknown_name
from strop.records import (
    SAMPLERS,
    Finish,
    Implementation,
    Precision,
    Sampler,
    default_sampler,
    reads_as,
)
from strop.settings import Value, filled

__all__ = [
    "EPSILON",
    "SAMPLERS",
    "CellSpec",
    "CheckpointSpec",
    "DenseBatch",
    "EvaluatorSpec",
    "Finish",
    "GeneratorSpec",
    "Implementation",
    "JudgeSpec",
    "MetricSpec",
    "OperatingPoint",
    "Precision",
    "PromptSpec",
    "Sampler",
    "SamplerSpec",
    "SpanPolicy",
    "Spec",
    "check_family",
    "check_prompts",
    "plain_baseline",
]

EPSILON = 1e-5
"""Mass that the public samplers leave to their finish: they stop at t = 1e-5, not at 0."""

GRID_TOLERANCE = 1e-6
"""Masses written or stored in float32 sum to one only about this well; they are renormalised."""

MOST_STEPS = 2**20
"""Beyond about a million the public grid's float32 times run out of distinct values."""
SEED_LIMIT = 2**63
"""Seeds are stored as 64-bit integers and given to torch's generator."""
OUTPUT_LIMIT = 2**32
"""An output's index is one word of the random numbers' address."""

EXPECTED = {
    "steps": f"a whole number from 1 to {MOST_STEPS:,}",
    "temperature": "0 (greedy) or a positive number",
    "top_p": "a number above 0 and up to 1",
    "length": "a whole number of at least 1",
    "size": "a whole number of at least 1",
    "count": "a whole number of at least 1",
    "seed": "a whole number from 0 to 2**63 - 1",
}
"""What a field's value may be; the error messages quote it."""

SpanPolicy = Literal["first-document", "full-stream", "public-code"]
"""Which tokens of an output count; `strop.metrics.spans` states each."""


class Spec(BaseModel):
    """A frozen value with one canonical spelling; equal content has an equal id."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise _readable(type(self), error) from None

    def canonical(self) -> str:
        """JSON with sorted keys and no blanks: the text that is hashed."""
        return json.dumps(
            self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), allow_nan=False
        )

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:  # noqa: ARG002
        """A copy with some fields changed, checked like any other (pydantic's own is not)."""
        return type(self)(**{**dict(self), **(update or {})})

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def id(self) -> str:
        """The first 16 hex digits of the SHA-256 of the canonical text."""
        text = f"{type(self).__name__}:{self.canonical()}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _readable(model: type[Spec], error: ValidationError) -> UserError:
    """Pydantic's first complaint in the house's words."""
    owner, first = model.__name__, error.errors()[0]
    field = ".".join(str(part) for part in first["loc"]) or None
    if first["type"] == "literal_error":
        return unknown_name(
            str(field), str(first["input"]), _literals(first), where=f"{owner}.{field}"
        )
    if first["type"] == "extra_forbidden":
        return unknown_name("field", str(field), model.model_fields, where=owner)
    if first["type"] == "missing":
        return UserError(f"{owner} needs the field {field!r}.", where=owner)
    return UserError(
        f"{owner}.{field} is not valid: {first['msg'].lower()}.",
        where=f"{owner}.{field}",
        got=_shown(first["input"]),
        expected=EXPECTED.get(str(field)),
    )


def _shown(value: Any) -> str:
    """A value of any size in one line."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _literals(complaint: Any) -> list[str]:
    expected = complaint["ctx"]["expected"].replace(" or ", ", ")
    return [name.strip().strip("'") for name in expected.split(",")]


def _left_out(fields: dict[str, Any], *later: str) -> dict[str, Any]:
    """Without fields that are empty and younger than the ids of those that lack them."""
    return {name: value for name, value in fields.items() if name not in later or value}


class SamplerSpec(Spec):
    """How a denoiser becomes a generator of token sequences."""

    name: str = "ancestral"
    """Which algorithm; `strop.spec.SAMPLERS` lists the known ones."""
    steps: int = 64
    """Configured updates, the paper's M; with a grid of your own, its number of masses.

    A causal sampler has one per token: left out it is 0, and the length decides.
    """
    temperature: float = 1.0
    """The paper's tau: clean-token logits times 1/tau, renormalised; 0 takes the best token."""
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
    settings: dict[str, Value] = {}
    """What only this sampler has, e.g. ReMDM's `eta`; `SAMPLERS[name].settings` declares them.

    They may be given by name like any other field; what is left out is filled in.
    """

    version: str | None = None
    """Of a sampler that another package or a script brings: as its record says, filled in."""

    @model_serializer(mode="wrap")
    def _without_empty(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _left_out(dump(self), "settings", "version")

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
        grid = data["grid"] = _word_or_masses(data.get("grid", "uniform"))
        own_grid = grid != "uniform"
        if data.get("finish") is None:
            data["finish"] = "draw" if own_grid else facts.finish
        if own_grid and data.get("steps") is None:
            data["steps"] = len(grid)
        if data.get("version") is None:
            data["version"] = facts.version
        if facts.causal and data.get("steps") is None:
            data["steps"] = 0
        by_name = {key: data.pop(key) for key in facts.settings if key in data}
        data["settings"] = filled(name, facts.settings, data.get("settings", {}), by_name)
        return data

    @field_validator("steps", "temperature", "top_p", mode="before")
    @classmethod
    def _no_truth_values(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool):
            raise _out_of_range(cls, str(info.field_name), value)
        return value

    @field_validator("temperature")
    @classmethod
    def _one_zero(cls, value: float) -> float:
        return value + 0.0  # -0.0 and 0.0 are one temperature and must have one id

    @model_validator(mode="after")
    def _check(self) -> Self:
        facts = SAMPLERS[self.name]
        _require(self, (0 if facts.causal else 1) <= self.steps <= MOST_STEPS, "steps")
        _require(self, self.temperature >= 0, "temperature")
        _require(self, 0 < self.top_p <= 1, "top_p")
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
                got=f"grid={_shown(self.grid)}, finish={self.finish!r}",
                fix="leave both out",
            )
        if facts.check is not None:
            facts.check(self.settings)
        _check_offered(self, facts)
        facts.form(self.implementation)
        return self


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
                got=f"{_shown(alone[key])} in `settings` and {_shown(fields[key])} beside it",
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
        usual = facts.finish if spec.grid == "uniform" else "draw"
        words += [f"finish {spec.finish}"] if spec.finish != usual else []
        words += [spec.implementation] if spec.implementation != "fast" else []
        words += [f"{k} {v}" for k, v in spec.settings.items() if v != facts.settings[k].default]
        name = "" if spec.name == default_sampler(facts.family) else f"{spec.name} "
        return f"{name}({', '.join(words)})"


def plain_baseline(spec: SamplerSpec) -> SamplerSpec | None:
    """The sampler that reveals as this one does and takes nothing back; None for a plain one.

    Steps, temperature, top_p (and its rule), precision and finish are the same, so that what is
    left between the two is the revising.
    """
    name = SAMPLERS[spec.name].baseline
    if name is None:
        return None
    shared = ("steps", "temperature", "precision", "top_p", "grid", "finish")
    return SamplerSpec(name=name, **{field: getattr(spec, field) for field in shared})


def _require(spec: Spec, holds: bool, field: str) -> None:
    if not holds:
        raise _out_of_range(type(spec), field, getattr(spec, field))


def _out_of_range(owner: type[Spec], field: str, got: object) -> UserError:
    place = f"{owner.__name__}.{field}"
    return UserError(
        f"{place} is out of range.", where=place, got=_shown(got), expected=EXPECTED[field]
    )


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
        got=_shown(value),
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
            got=_shown(value),
        ) from None
    if not masses or not all(mass >= 0 and math.isfinite(mass) for mass in masses):
        raise UserError(
            "A reveal grid needs masses of at least zero.",
            where="SamplerSpec.grid",
            got=_shown(list(masses)),
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


class CheckpointSpec(Spec):
    """Which denoiser: what it computes, not where its file lies."""

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

    @model_serializer(mode="wrap")
    def _without_empty(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _left_out(dump(self), "version")


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
        _require(self, self.count >= 1, "count")
        return self


class GeneratorSpec(Spec):
    """A checkpoint plus its sampler: the object of comparison."""

    checkpoint: CheckpointSpec
    sampler: SamplerSpec
    length: int
    """Tokens per output; with prompts, the most open positions that one of them has."""
    prompts: PromptSpec | None = None
    """What the outputs answer; None without a condition."""

    @model_serializer(mode="wrap")
    def _without_no_prompts(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Ids of generators without prompts are older than this field.
        return {k: v for k, v in dump(self).items() if k != "prompts" or v is not None}

    @model_validator(mode="after")
    def _check(self) -> Self:
        _require(self, self.length >= 1, "length")
        if self.prompts is not None:
            check_prompts(self.sampler.name, self.prompts)
        if SAMPLERS[self.sampler.name].causal and self.sampler.steps != self.length:
            raise UserError(
                f"The sampler {self.sampler.name!r} makes one step per token.",
                where="SamplerSpec.steps",
                got=f"{self.sampler.steps} steps for {self.length} tokens",
                fix="leave `steps` out and say `length`",
            )
        check_family(self.checkpoint.family, self.sampler.name)
        return self


def check_prompts(sampler: str, prompts: PromptSpec) -> None:
    """Refuse prompts that a sampler cannot answer."""
    facts = SAMPLERS[sampler]
    if facts.causal and prompts.form == "gaps":
        raise UserError(
            f"The sampler {sampler!r} writes from left to right and fills no gaps.",
            where="GeneratorSpec.prompts",
            got="prompts with gaps",
            expected="prompts that the output follows",
            fix="take the gaps out and say `length`, or use a masked model",
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
        _require(self, self.size >= 1, "size")
        return self


class CellSpec(Spec):
    """One generator under one seed: what fully determines output number i."""

    generator: GeneratorSpec
    seed: int
    batch: DenseBatch | None = None
    """Only for `dense`: the fast samplers do not depend on the batch."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _require(self, 0 <= self.seed < SEED_LIMIT, "seed")
        return self


class EvaluatorSpec(Spec):
    """Which network measures: a causal language model, or an encoder of sentences."""

    name: str
    """As the user named it: a hub id, `embedded:NAME`, a package's model, a directory's name."""
    revision: str | None = None
    """The hub commit."""
    sha256: str
    """Of the weights file; of shards, of what `sha256sum` prints for them."""
    tokenizer: str
    """SHA-256 of the tokenizer's files."""
    dtype: str = "float32"
    """Of the network; sums are float64."""
    context: int
    """The most tokens it reads at once."""
    prefix: tuple[int, ...] = ()
    """Ids that its own tokenizer puts before a text: context, never scored. Mostly none."""


class MetricSpec(Spec):
    """What is measured on the outputs of a cell; its `id` names the file of the numbers."""

    name: str
    """`perplexity`, `entropy`, `repetition`, `vendi`, ..."""
    evaluator: EvaluatorSpec | None = None
    span: SpanPolicy | None = None
    settings: dict[str, int | float | bool | str] = {}
    """Everything else that the numbers depend on, such as the clean-up before retokenising."""
    version: str | None = None
    """Of a metric of somebody else's, so that a changed one has files of its own."""

    @model_serializer(mode="wrap")
    def _without_no_version(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # What is built in has none, and its ids are older than this field.
        return {k: v for k, v in dump(self).items() if k != "version" or v is not None}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not re.fullmatch(r"[a-z][a-z0-9-]*", self.name):
            raise UserError(
                "The metric's name cannot be used.",
                where="MetricSpec.name",
                got=_shown(self.name),
                expected="small letters, digits and hyphens, such as 'perplexity'",
            )
        return self


class JudgeSpec(Spec):
    """Who judges texts: a model behind an address, a person, a rule. Part of a series' identity.

    Only what is set stands in the canonical text, and `settings` stand there beside the fields, so
    that judges of one kind need not know of another's.
    """

    kind: str
    """Which record of `strop.groupeval.JUDGES` made it, such as `endpoint` or `human`."""
    version: str | None = None
    """Of a plug-in's judge: a changed one is another judge."""
    model: str | None = None
    """As the server names it, or the version of a rule such as `offline-v1`."""
    name: str | None = None
    """Of a person; of a rule with settings, what tables call it."""
    base_url: str | None = None
    decoding: dict[str, JsonValue] | None = None
    """Temperature, top_p and the limit of a reply, as they are sent."""
    response_format: str | None = None
    """How the form of a reply is asked for."""
    features: str | None = None
    """Of the offline judge: what it tells modes apart by."""
    weights_sha256: str | None = None
    """Of the network behind the features, if there is one."""
    settings: dict[str, JsonValue] = {}
    """Everything else that makes it this judge and no other."""

    @model_serializer(mode="wrap")
    def _beside_each_other(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = dump(self)
        settings = fields.pop("settings")
        return {k: v for k, v in fields.items() if v is not None} | settings

    @model_validator(mode="after")
    def _check(self) -> Self:
        # Null under a field's name is what a file may say; from a caller it would be a mistake.
        twice = [name for name, value in self.settings.items() if value is not None]
        twice = [name for name in twice if name in type(self).model_fields and name != "settings"]
        if twice:
            raise UserError(
                "A setting of a judge has the name of a field.",
                where="JudgeSpec.settings",
                got=", ".join(twice),
                fix="give the field itself, or call the setting something else",
            )
        return self

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The reverse of `document`: what is no field is a setting."""
        own = {k: v for k, v in document.items() if k in cls.model_fields and v is not None}
        own.pop("settings", None)
        return cls(**own, settings={k: v for k, v in document.items() if k not in own})

    def document(self) -> dict[str, Any]:
        """As files hold it, and as it is hashed."""
        return self.model_dump(mode="json")

    @property
    def title(self) -> str:
        """What the judge is called in tables."""
        return self.name or self.model or self.kind
