"""What was typed behind a flag, as its kind of parameter wants it: `--steps 16,64`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from strop.errors import UserError
from strop.spec import Cooling
from strop.verbs.verb import Kind

T = TypeVar("T")

KINDS: dict[object, str] = {int: "whole numbers", float: "numbers"}


def parsed(kind: Kind, value: Any, flag: str) -> Any:
    """A value as the record wants it; what has another kind is as typer made it."""
    if value is None or kind not in READERS or not isinstance(value, (str, list)):
        return value
    return READERS[kind](value, flag)


def listed(text: str, kind: Callable[[str], T], flag: str) -> list[T]:
    """A comma-separated list, each entry once, in the order given."""
    words = [word.strip() for word in text.split(",")]
    values: list[T] = []
    for word in words:
        try:
            value = kind(word)
        except ValueError:
            expected = f"{KINDS.get(kind, 'values')} separated by commas"
            raise _unreadable(text, flag, expected) from None
        if value not in values:
            values.append(value)
    return values


def counts(text: str, flag: str) -> list[int]:
    """Whole numbers, one for all budgets or one for each; equal ones are kept."""
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise UserError(
            f"{flag} cannot be read.",
            where=flag,
            got=repr(text),
            expected="a whole number of at least 1, or one per number of steps",
        ) from None


def masses(text: str, flag: str) -> list[float] | str:
    """Numbers, of which some may be equal; or `uniform`."""
    if text == "uniform":
        return text
    return [listed(word, float, flag)[0] for word in text.split(",")]


def axes(texts: Sequence[str], flag: str) -> dict[str, tuple[Any, ...]]:
    """`name=value,value` of every flag; a value that is no number stays a word."""
    found: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        name, equals, values = (part.strip() for part in text.partition("="))
        words = [word.strip() for word in values.split(",")]
        if not name or not equals or not all(words) or name in found:
            expected = "name=value,value such as temperature=1,0.9, each name once"
            raise _unreadable(text, flag, expected)
        found[name] = tuple(dict.fromkeys(_number(word) for word in words))
    return found


def named(text: str, flag: str) -> dict[str, Any]:
    """Comma-separated `name=value` pairs; a value that is no number stays a word."""
    values: dict[str, Any] = {}
    for word in text.split(","):
        name, equals, value = (part.strip() for part in word.partition("="))
        if not name or not equals or not value or name in values:
            expected = "name=value pairs separated by commas, each name once"
            raise _unreadable(text, flag, expected)
        values[name] = _number(value)
    return values


def _unreadable(text: str, flag: str, expected: str) -> UserError:
    what = f"{flag} has an entry that cannot be read."
    return UserError(what, where=flag, got=repr(text), expected=expected)


HEAT = "--temperature"


def _temperature(word: str) -> float:
    """A number, or a schedule such as linear/0.8/0.4."""
    return Cooling.of(word) if "/" in word else float(word)


def _number(word: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def options(words: Sequence[str], flag: str) -> dict[str, Any]:
    """`key=value` words; a value that is JSON is read as such, anything else is text."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip():
            raise UserError(
                f"{flag} names an option and its value.",
                where=flag,
                got=word,
                expected="key=value, e.g. attn_implementation=eager",
            )
        try:
            found[name.strip()] = json.loads(value)
        except ValueError:
            found[name.strip()] = value
    return found


def changes(texts: Sequence[str], flag: str) -> dict[str, Any]:
    """`key=value` with a value in YAML."""
    import yaml

    from strop.store.documents import load_yaml

    found = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise UserError(
                f"{flag} needs a key and a value.", where=flag, got=text, expected="key=value"
            )
        try:
            found[key] = load_yaml(value)
        except yaml.YAMLError:
            raise UserError("The value cannot be read.", where=flag, got=text) from None
        if isinstance(found[key], str):  # YAML reads 1e-3 as a word; people mean a number
            try:
                found[key] = float(found[key])
            except ValueError:
                continue
    return found


def batch(text: str, flag: str) -> int | Literal["auto"]:
    """A number of sequences, or the word."""
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise UserError(
            "The batch size is no number.",
            where=flag,
            got=text,
            expected="a whole number of at least 1, or auto",
        ) from None


READERS: dict[Kind, Callable[[Any, str], Any]] = {
    "ints": lambda text, flag: listed(text, int, flag),
    "floats": lambda text, flag: listed(text, _temperature if flag == HEAT else float, flag),
    "words": lambda text, flag: listed(text, str, flag),
    "counts": counts,
    "masses": masses,
    "axes": axes,
    "pairs": named,
    "wheres": lambda texts, flag: [named(text, flag) for text in texts],
    "options": options,
    "changes": changes,
    "batch": batch,
}
