"""The fields of a checkpoint's configuration, whichever layout they come in.

The hub's files are flat (`hidden_dim`, `model_length`, ...); the public training code nests them
(`model.hidden_size`, `model.length`, ...). Both become the hub's names; other fields are ignored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strop.checkpoints.inert import Inert, placeholder_value
from strop.errors import UserError

_COUNTS = {
    "vocab_size": [("vocab_size",), ("model", "vocab_size")],
    # SEDD counts its tokens without the mask.
    "tokens": [("tokens",)],
    "model_length": [("model_length",), ("model", "length")],
    "hidden_dim": [("hidden_dim",), ("model", "hidden_size")],
    "cond_dim": [("cond_dim",), ("model", "cond_dim")],
    "n_blocks": [("n_blocks",), ("model", "n_blocks")],
    "n_heads": [("n_heads",), ("model", "n_heads")],
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
        found = _at_level(level, where)
        # All fields come from one level, so that two models in one file are never mixed.
        if any(name in found for name in _COUNTS):
            return found
        fallback = fallback or found
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
    found = {}
    for name, paths in _PATHS.items():
        for path in paths:
            value = placeholder_value(level, *path)
            # "${...}" is a reference within the training configuration, not a value.
            if value is None or (isinstance(value, str) and value.startswith("${")):
                continue
            found[name] = _checked(name, value, where, ".".join(path))
            break
    return found


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
