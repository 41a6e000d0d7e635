"""What a judge said of one group: a verdict, or the reason why there is none.

A failure is not a score. It is kept, named, asked again and counted in every denominator. Which of
the two a reply is follows from the frozen schema and then from what a schema cannot say. Nothing is
repaired: a reply that is nearly right is wrong, and is told so in words.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, get_args

from strop.disk import no_repeats
from strop.groupeval.profile import SCHEMA, Profile

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

    from strop.groupeval.plan import Plan, Sheet

Confidence = Literal["high", "medium", "low"]

Reason = Literal[
    "refused",
    "empty",
    "truncated",
    "not_json",
    "schema_mismatch",
    "rule_violation",
    "rate_limited",
    "timeout",
    "server_error",
    "budget_exhausted",
]
REASONS: tuple[Reason, ...] = get_args(Reason)


@dataclass(frozen=True)
class Grade:
    """One output as the judge saw it."""

    index: int
    """The output's index in its cell."""
    valid: bool
    scores: tuple[int, ...]
    """One of 0, 1, 2 per dimension; all zero where the output is invalid."""
    mode: str | None
    """The judge's name for its mode, local to the group; None where the output is invalid."""
    hybrid: bool = False


@dataclass(frozen=True)
class GroupVerdict:
    """The verdict on one group, with the blinding undone."""

    cell: str
    partition: int
    group: int
    outputs: tuple[Grade, ...]
    """In the order in which the judge read them."""
    confidence: Confidence
    prompt: str | None = None
    """What its outputs answer, where a group is the answers to one prompt."""

    def portable(self) -> dict[str, Any]:
        """The exchange format: one JSON object a line."""
        outputs = [{**vars(output), "scores": list(output.scores)} for output in self.outputs]
        document = {**vars(self), "outputs": outputs}
        if self.prompt is None:
            del document["prompt"]
        return document


@dataclass(frozen=True)
class Failure:
    """Why a group has no verdict (yet)."""

    cell: str
    partition: int
    group: int
    reason: Reason
    detail: str
    """What exactly was wrong, in words."""
    raw: str | None
    """The last reply as it came, if one came."""
    attempts: int


Judgment = GroupVerdict | Failure
"""What is known of a group that was asked."""

SHOWN = 200
QUOTED = 60

TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "boolean": bool,
    "null": type(None),
}
KNOWN = {
    "type",
    "enum",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minItems",
    "maxItems",
    "description",
}


class NoVerdict(Exception):
    """Why a reply is no verdict."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason: Reason = reason
        self.detail = detail


def read_reply(reply: str | None, labels: tuple[str, ...], profile: Profile) -> dict[str, Any]:
    """The reply as an object that holds a verdict on exactly these ids; else a `NoVerdict`."""
    if reply is None or not reply.strip():
        raise NoVerdict("empty", "the reply holds no text")
    try:
        document = json.loads(reply, object_pairs_hook=no_repeats, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise NoVerdict("not_json", f"{error}; it begins {reply.strip()[:60]!r}") from None
    if not _surely_fits(document, profile.schema):
        for error in _validator(profile.files[SCHEMA]).iter_errors(document):
            field = "/".join(map(str, error.absolute_path)) or "the whole reply"
            raise NoVerdict("schema_mismatch", f"{field}: {_short_message(error)}"[:SHOWN])
    _check_rules(document["outputs"], labels, profile)
    return document


def _surely_fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value fits by the few plain keywords that are known here; False if in doubt.

    Most replies fit, and this says so in a tenth of the time that the whole validator takes. What
    it does not know or does not like (1.0 for 1, a keyword, a wrong value) is the validator's.
    """
    if not schema.keys() <= KNOWN:
        return False
    named = schema.get("type", [])
    kinds = named if isinstance(named, list) else [named]
    if kinds and type(value) not in [TYPES.get(kind) for kind in kinds]:
        return False
    if "enum" in schema and not any(type(v) is type(value) and v == value for v in schema["enum"]):
        return False
    if isinstance(value, list):
        short, long = schema.get("minItems", 0), schema.get("maxItems", len(value))
        inner = schema.get("items", {})
        return short <= len(value) <= long and all(_surely_fits(item, inner) for item in value)
    if isinstance(value, dict):
        inner = schema.get("properties", {})
        more = schema.get("additionalProperties", True) is True or value.keys() <= inner.keys()
        if not more or not value.keys() >= set(schema.get("required", ())):
            return False
        return all(_surely_fits(field, inner.get(name, {})) for name, field in value.items())
    return True


def _short_message(error: ValidationError) -> str:
    """The validator's message; what it quotes is cut, so that the reason behind it is not."""
    quoted = repr(error.instance)
    if len(quoted) <= QUOTED or not error.message.startswith(quoted):
        return error.message
    return f"{quoted[:QUOTED]}...{error.message[len(quoted) :]}"


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


@lru_cache(maxsize=8)
def _validator(schema: bytes) -> Validator:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(schema))


def _check_rules(outputs: list[dict[str, Any]], labels: tuple[str, ...], profile: Profile) -> None:
    names = [output["id"] for output in outputs]
    if sorted(names) != sorted(labels):
        wrong = {
            "missing": set(labels) - set(names),
            "unknown": set(names) - set(labels),
            "repeated": {name for name in names if names.count(name) > 1},
        }
        words = "; ".join(f"{k} {', '.join(sorted(v))}" for k, v in wrong.items() if v)
        raise NoVerdict("rule_violation", f"each id must appear exactly once: {words}"[:SHOWN])
    for output in outputs:
        valid, mode = output["valid"], output.get("mode")
        contradictions = {
            "is invalid but has grades above 0": any(output[d] for d in profile.dimensions),
            "is invalid but has a mode": mode is not None,
            "is invalid but has a hybrid mode": output.get("hybrid", False),
        }
        if valid:
            contradictions = {"is valid but has no mode": profile.modes and mode is None}
        for what, holds in contradictions.items():
            if holds:
                raise NoVerdict("rule_violation", f"{output['id']} {what}")


def verdicts_of(
    document: dict[str, Any], sheet: Sheet, plan: Plan, profile: Profile, prompt: str | None = None
) -> list[GroupVerdict]:
    """The verdict with the blinding undone: one per generator on the sheet."""
    outputs = {output["id"]: output for output in document["outputs"]}
    rows = list(zip(sheet.pools, sheet.indices, sheet.labels, strict=True))
    return [
        GroupVerdict(
            cell=plan.blinding[code],
            partition=sheet.partition,
            group=sheet.group,
            outputs=tuple(
                grade_of(index, outputs[label], profile)
                for pool, index, label in rows
                if pool == code
            ),
            confidence=document["confidence"],
            prompt=prompt,
        )
        for code in dict.fromkeys(sheet.pools)
    ]


def grade_of(index: int, output: dict[str, Any], profile: Profile) -> Grade:
    """What a reply says of one output."""
    return Grade(
        index=index,
        valid=output["valid"],
        # A judge may write 1.0 for 1: JSON knows no difference.
        scores=tuple(int(output[name]) for name in profile.dimensions),
        mode=output.get("mode"),
        hybrid=output.get("hybrid", False),
    )


def failures_of(
    reason: Reason, detail: str, raw: str | None, attempts: int, sheet: Sheet, plan: Plan
) -> list[Failure]:
    """The same for a sheet without a verdict: one failure per generator on it."""
    return [
        Failure(group.cell, group.partition, group.group, reason, detail, raw, attempts)
        for group in plan.groups_of(sheet)
    ]
