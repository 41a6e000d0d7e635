"""What a checkpoint's configuration says: its family, and its fields under the hub's names.

MDLM, SEDD and DUO networks have the same tensors, so the configuration decides the family: the
hub's `model_type`, the training code's `algo.name` or `parameterization`, SEDD's `graph`.
DiDi-Instruct is recognised by its other networks, a model of transformers by its classes. The
names of a family are in its record. Where the files name no family, the user does, with `family`.

The hub's files are flat (`hidden_dim`, `model_length`, ...); the public training code nests them
(`model.hidden_size`, `model.length`, ...). Both become the hub's names; other fields are ignored.

Public training checkpoints carry configuration and tokenizer objects of packages that need not be
installed. Here they become `Inert` records: names, arguments and state, and no behaviour.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from strop.errors import UserError, unknown_name
from strop.records.record import FAMILIES, diffusion_families


class Inert:
    """A record of what a pickle says about an object whose class is not loaded. It runs nothing.

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
    """A description of an object from a file, for a message; its class is the name in the file."""
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
    for mapping in (state.get("_content"), obj.entries, state):
        if isinstance(mapping, dict) and key in mapping:
            return mapping[key]
    return None


def _state_dict(obj: Inert) -> dict[Any, Any]:
    """The state as a dict; a (dict, slots) pair, which pickle also allows, counts by its dict."""
    state = obj.state
    if isinstance(state, tuple) and state:
        state = state[0]
    return state if isinstance(state, dict) else {}


_COUNTS = {
    "vocab_size": [("vocab_size",), ("model", "vocab_size")],
    # SEDD counts its tokens without the mask.
    "tokens": [("tokens",)],
    "model_length": [("model_length",), ("model", "length")],
    "hidden_dim": [("hidden_dim",), ("model", "hidden_size")],
    "cond_dim": [("cond_dim",), ("model", "cond_dim")],
    "n_blocks": [("n_blocks",), ("model", "n_blocks")],
    "n_heads": [("n_heads",), ("model", "n_heads")],
    "block_size": [("block_size",)],
}
_OTHERS = {
    "dropout": [("dropout",), ("model", "dropout")],
    "time_conditioning": [("time_conditioning",)],
    "mask_id": [("mask_id",), ("mask_index",), ("mask_token_id",)],
}
_PATHS: dict[str, list[tuple[str, ...]]] = {**_COUNTS, **_OTHERS}


def flat_config(content: Any, where: Path) -> dict[str, Any]:
    """The known fields of a configuration, under the hub's names and checked for their kind."""
    fallback: dict[str, Any] = {}
    for level in levels(content):
        fields = _at_level(level, where)
        # All fields come from one level, so that two models in one file are never mixed.
        if any(name in fields for name in _COUNTS):
            return fields
        fallback = fallback or fields
    return fallback


def levels(content: Any) -> list[Any]:
    """The configuration itself, then its children, the one called `config` first."""
    children: dict[Any, Any] = {}
    if isinstance(content, Inert):
        state = content.state if isinstance(content.state, dict) else {}
        inner = state.get("_content")
        children = inner if isinstance(inner, dict) else content.entries
    elif isinstance(content, dict):
        children = content
    named = sorted(children.items(), key=lambda item: item[0] != "config")
    # `model` is half a level: its fields are read from the level above.
    return [content, *(c for n, c in named if n != "model" and isinstance(c, (dict, Inert)))]


def _at_level(level: Any, where: Path) -> dict[str, Any]:
    fields = {}
    for name, paths in _PATHS.items():
        for path in paths:
            value = placeholder_value(level, *path)
            # "${...}" is a reference within the training configuration, not a value.
            if value is None or (isinstance(value, str) and value.startswith("${")):
                continue
            fields[name] = _checked(name, value, where, ".".join(path))
            break
    return fields


def _checked(name: str, value: Any, where: Path, label: str) -> Any:
    if name == "time_conditioning":
        good, expected = isinstance(value, bool), "true or false"
    elif name == "dropout":
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1
        expected = "a number between 0 and 1"
    elif name == "mask_id":
        good, expected = type(value) is int, "a token id"
    else:
        good, expected = type(value) is int and value > 0, "a positive whole number"
    if not good:
        raise UserError(
            f"The configuration's {label!r} has the wrong kind of value.",
            where=where,
            got=repr(value)[:80],
            expected=expected,
            fix=f"correct {label!r}, or leave it out where the tensor shapes say it",
        )
    return value


_FAMILY_KEYS = (("model_type",), ("algo", "name"), ("graph", "type"), ("parameterization",))


def family_of_keys(keys: Iterable[str]) -> str | None:
    """The family that alone has such tensors; most files' tensors are mute."""
    keys = list(keys)
    for name, family in FAMILIES.items():
        if family.tensors and any(key.startswith(family.tensors) for key in keys):
            return name
    return None


def family_of_classes(content: Any) -> str | None:
    """The family whose classes a transformers configuration names."""
    classes = content.get("architectures") if isinstance(content, dict) else None
    if not isinstance(classes, list):
        return None
    for name, family in FAMILIES.items():
        ends = family.architectures
        if ends and any(str(cls).endswith(ends) for cls in classes):
            return name
    return None


def _our_name(word: str) -> str:
    """Our name for what a configuration calls a family; its own name where we have none."""
    word = word.lower().replace("-", "_")
    for families in (
        FAMILIES.without_plugins(),
        FAMILIES,
    ):  # other packages are loaded only for a word of theirs
        for name, family in families.items():
            if word == name.replace("-", "_") or word in family.names:
                return name
    return word


def family_of_config(content: Any) -> str | None:
    """The family that a configuration names, in our word or (where we have none) in its own."""
    for level in levels(content):
        for keys in _FAMILY_KEYS:
            word = placeholder_value(level, *keys)
            if isinstance(word, str) and word and not word.startswith("${"):
                return _our_name(word)
        # A field of MDLM's configuration that SEDD's and DUO's do not have.
        if isinstance(placeholder_value(level, "time_conditioning"), bool):
            return "mdlm"
    return None


def known_family(name: str | None) -> None:
    """Refuse a name that is not a family's."""
    if name is not None and FAMILIES.find(name, where="`family`").noise is None:
        raise unknown_name("family", name, diffusion_families(), where="`family`")


def chosen_family(stored: str | None, requested: str | None, where: Path) -> str:
    """The family to load: the files' own, else the user's, else MDLM with a warning."""
    known_family(requested)
    if stored is not None and stored not in diffusion_families():
        raise UserError(
            f"The checkpoint is of the kind {stored!r}, which is not a known diffusion family.",
            where=where,
            got=stored,
            expected="one of " + ", ".join(diffusion_families()),
            fix="pass another checkpoint; a causal language model is not a denoiser",
        )
    if stored is not None and requested is not None and requested != stored:
        raise UserError(
            f"The checkpoint is of the family {stored!r}, not {requested!r}.",
            where=where,
            got=requested,
            expected=stored,
            fix="leave `family` out",
        )
    if stored is None and requested is None:
        warnings.warn(
            f"{where}: its files name no family; assuming mdlm (set `family` to change it)",
            UserWarning,
            stacklevel=2,
        )
    return requested or stored or "mdlm"
