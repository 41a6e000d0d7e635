"""What a judge said of one group: a verdict, or the reason why there is none.

A failure is not a score. It is kept, named, asked again and counted in every denominator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

__all__ = ["CONFIDENCES", "REASONS", "Confidence", "Failure", "Grade", "Judgment", "Reason"]

Confidence = Literal["high", "medium", "low"]
CONFIDENCES: tuple[Confidence, ...] = get_args(Confidence)

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
class Judgment:
    """The verdict on one group, with the blinding undone."""

    cell: str
    partition: int
    group: int
    outputs: tuple[Grade, ...]
    """In the order in which the judge read them."""
    confidence: Confidence

    def portable(self) -> dict[str, Any]:
        """The exchange format: one JSON object a line."""
        return {
            "cell": self.cell,
            "partition": self.partition,
            "group": self.group,
            "outputs": [
                {
                    "index": one.index,
                    "valid": one.valid,
                    "scores": list(one.scores),
                    "mode": one.mode,
                    "hybrid": one.hybrid,
                }
                for one in self.outputs
            ],
            "confidence": self.confidence,
        }


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
