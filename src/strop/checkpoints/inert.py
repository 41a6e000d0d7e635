"""Placeholders for what a checkpoint's pickle asks for and does not get.

Public training checkpoints carry configuration and tokenizer objects of packages that need not be
installed. Here they become `Inert` records: names, arguments and state, and no behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Inert:
    """What a pickle said about an object whose class was not loaded. It runs nothing.

    The same class stands for a global (`name` only), for the result of calling one (`args`,
    `kwargs`) and for the object filled afterwards (`state`, `items`, `entries`).
    """

    # No instance __dict__: a state taken from the file can never become an attribute.
    __slots__ = ("args", "entries", "items", "kwargs", "name", "state")

    def __init__(
        self, name: str, args: tuple[Any, ...] = (), kwargs: dict[Any, Any] | None = None
    ) -> None:
        """Record a name and how it was called."""
        self.name = name
        """The qualified name the pickle asked for, as text."""
        self.args = args
        """Positional arguments of its construction."""
        self.kwargs = kwargs or {}
        """Named arguments of its construction."""
        self.state: Any = None
        """What `__setstate__` would have received."""
        self.items: list[Any] = []
        """What was appended or added."""
        self.entries: dict[Any, Any] = {}
        """What was assigned by key."""

    def __call__(self, *args: Any, **kwargs: Any) -> Inert:
        """Construction: a new record, nothing else."""
        return Inert(self.name, args, kwargs)

    def __setstate__(self, state: Any) -> None:
        """Record the state; it never becomes attributes."""
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        """Record an assignment by key."""
        self.entries[key] = value

    def append(self, value: Any) -> None:
        """Record one item."""
        self.items.append(value)

    def extend(self, values: Iterable[Any]) -> None:
        """Record several items."""
        self.items.extend(values)

    add = append
    update = extend

    def __repr__(self) -> str:
        """The name alone."""
        # Arguments and state stay out: they may be huge, or refer back to this very object.
        return f"<Inert {self.name[:200]}>"


def described(obj: Any) -> str:
    """What something out of a file is, for a message; its class by the name that the file gives."""
    if isinstance(obj, Inert):
        return f"an object of the class {obj.name[:200]}"
    return "nothing" if obj is None else f"an object of the type {type(obj).__name__!r}"


def placeholder_value(obj: Any, *path: str) -> int | float | bool | str | None:
    """The plain value at `path` in nested dicts or inert OmegaConf containers; None where absent.

    OmegaConf keeps the children of a container in the state entry `_content` and the value of a
    leaf in `_val`. Only numbers, booleans and strings are returned.
    """
    for key in path:
        obj = _child(obj, key)
    if isinstance(obj, Inert):
        obj = _state_dict(obj).get("_val")
    return obj if isinstance(obj, (int, float, str)) else None


def _child(obj: Any, key: str) -> Any:
    if isinstance(obj, dict):
        return obj.get(key)
    if not isinstance(obj, Inert):
        return None
    state = _state_dict(obj)
    for place in (state.get("_content"), obj.entries, state):
        if isinstance(place, dict) and key in place:
            return place[key]
    return None


def _state_dict(obj: Inert) -> dict[Any, Any]:
    """The state as a dict; a (dict, slots) pair, which pickle also allows, counts by its dict."""
    state = obj.state
    if isinstance(state, tuple) and state:
        state = state[0]
    return state if isinstance(state, dict) else {}
