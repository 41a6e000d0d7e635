"""What was asked then and now, for the message that refuses to mix two runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["differences"]

BATCHING = ("n", "batch_size")


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What was asked then and now, setting by setting, a few of them."""
    then, today = _flat(was), _flat(now)
    # Where the file lies is not identity; the batch and n are part of it only for dense.
    ignored = (
        {"checkpoint"} if "dense" in then.get("implementation", "") else {"checkpoint", *BATCHING}
    )
    told = [
        f"{key}: {then.get(key, 'nothing')} there, {today.get(key, 'nothing')} now"
        for key in {**then, **today}
        if key not in ignored and then.get(key) != today.get(key)
    ]
    if len(told) > 4:
        told = [*told[:4], f"and {len(told) - 4} more"]
    return "; ".join(told) or "the same settings, but other cells"


def _flat(asked: Mapping[str, Any]) -> dict[str, str]:
    """Nested settings by dotted name; a setting that all samplers share, or list, under its own."""
    flat = {k: str(v) for k, v in asked.items() if k not in ("weights", "samplers")}
    weights = asked.get("weights")
    if isinstance(weights, Mapping):
        shape = weights.get("shape")
        flat |= {f"weights.{k}": str(v) for k, v in weights.items() if k != "shape"}
        if isinstance(shape, Mapping):
            flat |= {f"weights.shape.{k}": str(v) for k, v in shape.items()}
    samplers = [one for one in asked.get("samplers") or [] if isinstance(one, Mapping)]
    for name in dict.fromkeys(key for one in samplers for key in one):
        values = dict.fromkeys(str(one.get(name)) for one in samplers)
        flat[name] = ", ".join(values)
    return flat
