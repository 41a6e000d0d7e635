"""Who measures and who judges: evaluators, metrics, judges."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import (
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from strop.errors import UserError
from strop.spec.value import Spec, shown

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
                got=shown(self.name),
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
