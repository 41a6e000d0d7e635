"""Which family a checkpoint belongs to, as far as its files say.

MDLM, SEDD and DUO networks have the same tensors, so the configuration decides: the hub's
`model_type`, the training code's `algo.name` or `parameterization`, SEDD's `graph`. DiDi-Instruct
is known by its other networks, a model of transformers by its classes. What the families are called
is in their records. Where nothing is said the user says it, with `family`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from strop.checkpoints.fields import levels
from strop.checkpoints.inert import placeholder_value
from strop.errors import UserError, unknown_name
from strop.records import FAMILIES, diffusion_families

_PLACES = (
    ("model_type",),
    ("algo", "name"),
    ("graph", "type"),
    ("parameterization",),
)


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
        if ends and any(str(one).endswith(ends) for one in classes):
            return name
    return None


def _ours(word: str) -> str:
    """Our name for what a configuration calls a family; its own word where we have none."""
    word = word.lower().replace("-", "_")
    for known in (FAMILIES.here(), FAMILIES):  # other packages are loaded only for a word of theirs
        for name, family in known.items():
            if word == name.replace("-", "_") or word in family.names:
                return name
    return word


def family_of_config(content: Any) -> str | None:
    """The family that a configuration names, in our word or (where we have none) in its own."""
    for level in levels(content):
        for place in _PLACES:
            word = placeholder_value(level, *place)
            if isinstance(word, str) and word and not word.startswith("${"):
                return _ours(word)
        # A field of MDLM's configuration that SEDD's and DUO's do not have.
        if isinstance(placeholder_value(level, "time_conditioning"), bool):
            return "mdlm"
    return None


def known_family(asked: str | None) -> None:
    """Refuse a name that is no family's."""
    if asked is not None and FAMILIES.find(asked, where="`family`").noise is None:
        raise unknown_name("family", asked, diffusion_families(), where="`family`")


def chosen_family(said: str | None, asked: str | None, where: Path) -> str:
    """The family to load: as the files say, as the user says, or MDLM with a warning."""
    known_family(asked)
    if said is not None and said not in diffusion_families():
        raise UserError(
            f"The checkpoint is of the kind {said!r}, which is no diffusion family known here.",
            where=where,
            got=said,
            expected="one of " + ", ".join(diffusion_families()),
            fix="pass another checkpoint; a causal language model is no denoiser",
        )
    if said is not None and asked is not None and asked != said:
        raise UserError(
            f"The checkpoint is of the family {said!r}, not {asked!r}.",
            where=where,
            got=asked,
            expected=said,
            fix="leave `family` out",
        )
    if said is None and asked is None:
        warnings.warn(
            f"{where}: nothing says which family it is of; taking mdlm (`family` says otherwise)",
            UserWarning,
            stacklevel=2,
        )
    return asked or said or "mdlm"
