"""Checkpoints of several networks: DiDi-Instruct's student, its discriminator, and the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from torch import Tensor

from strop.checkpoints.keys import few, modules_of
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
