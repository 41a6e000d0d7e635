"""Reading lists from flags: `--steps 16,64 --temperature 1.0,0.9`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from strop.errors import UserError

__all__ = ["listed", "per_budget"]

T = TypeVar("T")

KINDS: dict[object, str] = {int: "whole numbers", float: "numbers"}


def listed(text: str, kind: Callable[[str], T], flag: str) -> list[T]:
    """A comma-separated list, each entry once, in the order given."""
    words = [word.strip() for word in text.split(",")]
    values: list[T] = []
    for word in words:
        try:
            value = kind(word)
        except ValueError:
            raise UserError(
                f"{flag} has an entry that cannot be read.",
                where=flag,
                got=repr(text),
                expected=f"{KINDS.get(kind, 'values')} separated by commas",
            ) from None
        if value not in values:
            values.append(value)
    return values


def per_budget(text: str, budgets: Sequence[int], flag: str) -> list[int]:
    """One whole number for all budgets, or as many as there are budgets."""
    try:
        values = [int(word) for word in text.split(",")]
    except ValueError:
        values = []
    if len(values) not in (1, len(budgets)) or min(values, default=0) < 1:
        raise UserError(
            f"{flag} cannot be read.",
            where=flag,
            got=repr(text),
            expected=f"a whole number of at least 1, or {len(budgets)} of them, one per number of "
            "steps",
        )
    return values * len(budgets) if len(values) == 1 else values
