"""A frozen value with one canonical spelling and an id, and readable errors for wrong values.

Also the values that several specs share: a temperature that changes from call to call
(`linear/0.8/0.4`), and those that say who measures and who judges: evaluators, metrics, judges.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from strop.errors import UserError, unknown_name

# ------------------------------------------------------------------------------------------ value

MOST_STEPS = 2**20
"""Beyond about a million the public grid's float32 times run out of distinct values."""
SEED_LIMIT = 2**63
"""Seeds are stored as 64-bit integers and given to torch's generator."""
OUTPUT_LIMIT = 2**32
"""An output's index is one word of the random numbers' address."""

EXPECTED = {
    "steps": f"a whole number from 1 to {MOST_STEPS:,}",
    "temperature": "0 (greedy) or a positive number; linear/A/B where the sampler has a schedule",
    "top_p": "a number above 0 and up to 1",
    "length": "a whole number of at least 1",
    "size": "a whole number of at least 1",
    "count": "a whole number of at least 1",
    "seed": "a whole number from 0 to 2**63 - 1",
    "stream": "a whole number of at least 1",
}
"""What a field's value may be; the error messages quote it."""


class Spec(BaseModel):
    """A frozen value with one canonical spelling; equal content has an equal id."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    younger: ClassVar[tuple[str, ...]] = ()
    """Fields that ids are older than: they are not written where they have their default."""

    @model_serializer(mode="wrap")
    def _written(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        usual = {
            name: type(self).model_fields[name].get_default(call_default_factory=True)
            for name in self.younger
        }
        return {k: v for k, v in dump(self).items() if k not in usual or v != usual[k]}

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
    """Pydantic's first error as a `UserError`."""
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
        got=shortened_repr(first["input"]),
        expected=EXPECTED.get(str(field)),
    )


def shortened_repr(value: Any) -> str:
    """A value of any size in one line."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _literals(complaint: Any) -> list[str]:
    expected = complaint["ctx"]["expected"].replace(" or ", ", ")
    return [name.strip().strip("'") for name in expected.split(",")]


def require(spec: Spec, holds: bool, field: str) -> None:
    """Refuse a value whose field is out of range."""
    if not holds:
        raise out_of_range(type(spec), field, getattr(spec, field))


def out_of_range(owner: type[Spec], field: str, got: object) -> UserError:
    """The error for a field that is out of range."""
    where = f"{owner.__name__}.{field}"
    return UserError(
        f"{where} is out of range.", where=where, got=shortened_repr(got), expected=EXPECTED[field]
    )


FORM = "linear/A/B"
KINDS = ("linear", "late")
HALF = 0.5 - 1e-5
"""Half of the positions: the public grid leaves 1e-5 to its finish, so its middle comes earlier."""


class Cooling(float):
    """From `first` to `last` with the share a of a text that is revealed.

    `linear`: first + (last - first) a; on a canvas of N calls a is i / N. `late`: `first` while
    less than half is revealed, then `last`.

    For sorting and plotting it is a number, the mean of both ends; it is written,
    stored and compared as what it is, so that no schedule equals a number.
    """

    __slots__ = ("first", "kind", "last")
    first: float
    last: float
    kind: str

    def __new__(cls, first: float, last: float, kind: str = "linear") -> Cooling:
        """Both ends; adding zero makes one zero of 0.0 and -0.0."""
        cooling = super().__new__(cls, (first + last) / 2)
        cooling.first, cooling.last, cooling.kind = float(first) + 0.0, float(last) + 0.0, kind
        return cooling

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
                "This is not a temperature schedule.",
                where="SamplerSpec.temperature",
                got=repr(value)[:80],
                expected=f"a number, {FORM} or late/A/B with two numbers of at least 0",
                fix="use, for example, `temperature=linear/0.8/0.4`",
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


# ---------------------------------------------------------------------------------------- measure

SpanPolicy = Literal["first-document", "full-stream", "public-code"]
"""Which tokens of an output count; `strop.measure.spans` states each."""


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

    younger = ("version",)
    name: str
    """`perplexity`, `entropy`, `repetition`, `vendi`, ..."""
    evaluator: EvaluatorSpec | None = None
    span: SpanPolicy | None = None
    settings: dict[str, int | float | bool | str] = Field(default_factory=dict)
    """Everything else that the numbers depend on, such as the clean-up before retokenising."""
    version: str | None = None
    """Of another package's metric, so that a changed one has files of its own."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not re.fullmatch(r"[a-z][a-z0-9-]*", self.name):
            raise UserError(
                "The metric's name cannot be used.",
                where="MetricSpec.name",
                got=shortened_repr(self.name),
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
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    """Everything else that makes it this judge and no other."""

    @model_serializer(mode="wrap")
    def _written(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
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
        field_values = {
            k: v for k, v in document.items() if k in cls.model_fields and v is not None
        }
        field_values.pop("settings", None)
        return cls(
            **field_values, settings={k: v for k, v in document.items() if k not in field_values}
        )

    def document(self) -> dict[str, Any]:
        """The judge as a document, as files hold it and as it is hashed."""
        return self.model_dump(mode="json")

    @property
    def title(self) -> str:
        """What the judge is called in tables."""
        return self.name or self.model or self.kind
