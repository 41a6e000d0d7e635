"""Plain data between the program and its checker: built-in values as JSON and back.

The checker rebuilds every value from text as a fresh built-in, so whatever the program's objects
claim in `__eq__` or `__class__` stays in the program's process. Numbers travel in hexadecimal:
exact, and without a limit on digits.

The file also sets what a process in the sandbox may use up, before any of the program is read.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any


def confine(limits: Mapping[str, int]) -> None:
    """Set hard limits, which nothing that runs afterwards can raise; an error ends the process."""
    for kind, most in (
        (resource.RLIMIT_AS, limits["memory"]),
        (resource.RLIMIT_CPU, limits["cpu"]),
        (resource.RLIMIT_FSIZE, limits["file"]),
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        (resource.RLIMIT_NPROC, limits["processes"]),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))


DEPTH = 100
ITEMS = 100_000
"""How many elements of an iterator are looked at: one without an end would never be done."""

SEQUENCES = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "iterator": iter}
"""What is rebuilt from its elements."""

NUMBERS: dict[str, Callable[..., Any]] = {
    "int": lambda digits: int(digits, 16),
    "float": float.fromhex,
    "complex": lambda real, imaginary: complex(float.fromhex(real), float.fromhex(imaginary)),
    "bytes": bytes.fromhex,
}
"""What is rebuilt from its digits."""


class NotPlain(ValueError):
    """A value, or a message, that is no plain data."""


def pack(value: Any, depth: int = 0) -> Any:
    """A value as JSON. Subclasses of built-ins count as what they extend (a Counter is a dict)."""
    if depth > DEPTH:
        raise NotPlain("data nested too deeply")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return ["int", format(int.__index__(value), "x")]
    if isinstance(value, float):
        return ["float", float.hex(value)]
    if isinstance(value, complex):
        return ["complex", float.hex(value.real), float.hex(value.imag)]
    if isinstance(value, bytes | bytearray):
        return ["bytes", bytes(value).hex()]
    if isinstance(value, dict):
        pairs = ([pack(k, depth + 1), pack(v, depth + 1)] for k, v in dict.items(value))
        return ["dict", *pairs]
    return [_sequence(value), *(pack(element, depth + 1) for element in _elements(value))]


def unpack(data: Any, depth: int = 0) -> Any:
    """The value that JSON describes, made of fresh built-ins; anything else is refused."""
    if depth > DEPTH:
        raise NotPlain("data nested too deeply")
    if data is None or isinstance(data, bool | str):
        return data
    if not isinstance(data, list) or not data or not isinstance(data[0], str):
        raise NotPlain("a message that is no plain data")
    kind, *parts = data
    try:
        if kind in SEQUENCES:
            return SEQUENCES[kind]([unpack(element, depth + 1) for element in parts])
        if kind == "dict":
            return {unpack(k, depth + 1): unpack(v, depth + 1) for k, v in parts}
        if kind in NUMBERS:
            return NUMBERS[kind](*parts)
        raise NotPlain(f"an unknown kind of data: {kind[:40]!r}")
    except (TypeError, ValueError, OverflowError) as error:
        raise NotPlain(f"a message that is no plain data: {error}") from None


def _sequence(value: Any) -> str:
    for kind, base in SEQUENCES.items():
        if isinstance(base, type) and isinstance(value, base):
            return kind
    if isinstance(value, Iterable):
        return "iterator"
    raise NotPlain(f"returned a {type(value).__name__}, which is no plain data")


def _elements(value: Any) -> list[Any]:
    elements = list(islice(iter(value), ITEMS + 1))
    if len(elements) > ITEMS and not isinstance(value, list | tuple | set | frozenset):
        raise NotPlain("returned an iterator without an end")
    return elements if len(elements) <= ITEMS else list(value)
