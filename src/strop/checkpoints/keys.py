"""The names of a backbone's tensors: prefixes off, and lists short enough to read."""

from __future__ import annotations

import warnings
from pathlib import Path

from torch import Tensor

from strop.errors import UserError

BUFFER = "rotary_emb.inv_freq"
"""The rotary frequencies: a buffer, optional in a file, and never among the averaged weights."""

# Students that started from a hub model wrap the wrapped network: two prefixes.
_PREFIXES = ("backbone.backbone.", "backbone.")


def backbone_only(tensors: dict[str, Tensor], where: Path, *, bare: bool) -> dict[str, Tensor]:
    """The backbone's tensors with bare keys, in the file's order.

    `bare` says whether a file without any prefix is taken as a backbone as it is. Tensors outside
    the prefix are other modules (a discriminator, a noise schedule): left out, with a warning.
    """
    prefix = next((p for p in _PREFIXES if any(k.startswith(p) for k in tensors)), "")
    if not prefix and not bare:
        raise UserError(
            "The checkpoint has no backbone.",
            where=where,
            got=f"keys {few(list(tensors))}" if tensors else "no tensors",
            expected="keys that start with 'backbone.'",
        )
    others = [key for key in tensors if not key.startswith(prefix)]
    if others:
        warnings.warn(
            f"{where}: {len(others)} tensors outside {prefix[:-1]!r} are not used: {few(others)}",
            UserWarning,
            stacklevel=2,
        )
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def modules_of(tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """The networks of a file that holds several, by name, with bare keys.

    A single tensor beside them, such as a running mean, is no network and is left out.
    """
    modules: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, dot, rest = key.partition(".")
        if dot:
            modules.setdefault(name, {})[rest] = tensor
    return modules


def few(names: list[str], count: int = 4) -> str:
    """The first few names of a list, and how many more there are."""
    # Names come from the file: no control characters reach the terminal, and no endless ones.
    shown = [(n if n.isprintable() else repr(n))[:120] for n in names[:count]]
    more = f" and {len(names) - count} more" if len(names) > count else ""
    return ", ".join(shown) + more
