"""What was asked then and now, for the messages that refuse to mix the two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BATCHING = ("n", "batch_size")


def told_apart(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Where two trees of settings differ, one phrase each, by dotted names."""
    then, today = _flat(was), _flat(now)
    return [
        f"{key}: {then.get(key, 'nothing')} there, {today.get(key, 'nothing')} now"
        for key in {**then, **today}
        if then.get(key) != today.get(key)
    ]


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What was asked of two runs of outputs, a few settings of it."""
    # Where the file lies is not identity; the batch and n are part of it only for dense.
    then, today = _by_setting(was), _by_setting(now)
    dense = "dense" in then.get("implementation", "")
    ignored = {"checkpoint"} if dense else {"checkpoint", *BATCHING}
    told = told_apart(
        *({k: v for k, v in one.items() if k not in ignored} for one in (then, today))
    )
    if len(told) > 4:
        told = [*told[:4], f"and {len(told) - 4} more"]
    return "; ".join(told) or "the same settings, but other cells"


def _by_setting(asked: Mapping[str, Any]) -> dict[str, Any]:
    """A setting that all samplers share, or list, under its own name."""
    found = {key: value for key, value in asked.items() if key != "samplers"}
    samplers = [one for one in asked.get("samplers") or [] if isinstance(one, Mapping)]
    for name in dict.fromkeys(key for one in samplers for key in one):
        found[name] = ", ".join(dict.fromkeys(str(one.get(name)) for one in samplers))
    return found


def _flat(tree: Mapping[str, Any], key: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in tree.items():
        nested = isinstance(value, Mapping)
        found |= _flat(value, f"{key}{name}.") if nested else {f"{key}{name}": value}
    return found
