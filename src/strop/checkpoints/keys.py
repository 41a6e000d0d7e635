"""The names of a backbone's tensors: prefixes off, and lists short enough to read.

Some checkpoints hold several networks: DiDi-Instruct's student, its discriminator, and the rest.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Literal

from torch import Tensor

from strop.errors import UserError

Modules = dict[str, dict[str, Tensor]]
"""Networks by name, their tensors by bare key."""

DISCRIMINATOR = "discriminator"
BASE = "base"
"""The network that was trained, of which the student is the average."""


def didi_modules(
    tensors: dict[str, Tensor], where: Path, weights: Literal["ema", "raw"]
) -> tuple[dict[str, Tensor], Modules]:
    """The student (averaged, or as trained) of a whole state dict, and the networks besides."""
    found = modules_of(tensors)
    name = "student_ema" if weights == "ema" else "backbone"
    if name not in found:
        other = "backbone" if weights == "ema" else "student_ema"
        choice = "raw" if weights == "ema" else "ema"
        raise UserError(
            "The checkpoint holds no averaged (EMA) student."
            if weights == "ema"
            else "The checkpoint holds no student as it was trained, only its average.",
            where=where,
            got=f"the networks {few(list(found))}",
            expected=f"keys that start with '{name}.'",
            fix=f"ask for `weights={choice}`" if other in found else "check that it is complete",
        )
    places = {DISCRIMINATOR: "discriminator", BASE: "backbone"}
    return found[name], {ours: found[its] for ours, its in places.items() if its in found}


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
