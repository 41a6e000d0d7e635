"""Reading lists and settings from flags: `--steps 16,64`, `--settings eta=0.008`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from strop.errors import UserError

__all__ = ["listed", "named", "per_budget"]

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


def named(flag: str, text: str | None) -> dict[str, Any]:
    """Comma-separated `name=value` pairs; a value that is no number stays a word."""
    if text is None:
        return {}
    values: dict[str, Any] = {}
    for word in text.split(","):
        name, equals, value = (part.strip() for part in word.partition("="))
        if not name or not equals or not value or name in values:
            raise UserError(
                f"{flag} has an entry that cannot be read.",
                where=flag,
                got=repr(text),
                expected="name=value pairs separated by commas, each name once",
            )
        values[name] = _number(value)
    return values


def _number(word: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
