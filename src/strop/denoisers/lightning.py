"""A Lightning `.ckpt` of the public training code: which weights, and what it was trained with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from strop.denoisers.fields import flat_config
from strop.denoisers.keys import BUFFER, backbone_only, few
from strop.denoisers.pickles import load_pickle
from strop.errors import UserError

__all__ = ["TrainingFile", "read_lightning"]


@dataclass(frozen=True)
class TrainingFile:
    """What a training checkpoint holds for us."""

    tensors: dict[str, Tensor]
    """The backbone's tensors, bare keys."""
    config: dict[str, Any]
    """The known fields of its configuration, flat."""


def read_lightning(path: Path, weights: Literal["ema", "raw"]) -> TrainingFile:
    """Read the raw or the averaged (EMA) backbone from a training checkpoint."""
    content = load_pickle(path)
    state = content.get("state_dict") if isinstance(content, dict) else None
    if not isinstance(state, dict):
        got = f"the keys {few(list(map(repr, content)))}" if isinstance(content, dict) else None
        raise UserError(
            "The file is not a training checkpoint of the public code.",
            where=path,
            got=got or f"a {type(content).__name__}",
            expected="a top-level 'state_dict'",
            fix="pass a Lightning .ckpt, or a directory with model.safetensors and config.json",
        )
    raw = backbone_only(_tensors_only(state, path), path, bare=False)
    tensors = raw if weights == "raw" else _averaged(raw, content.get("ema"), path)
    return TrainingFile(tensors, flat_config(content.get("hyper_parameters"), path))


def _tensors_only(state: dict[Any, Any], path: Path) -> dict[str, Tensor]:
    odd = [repr(k) for k, v in state.items() if not (isinstance(k, str) and isinstance(v, Tensor))]
    if odd:
        raise UserError(
            "The checkpoint's state_dict holds things that are not tensors.",
            where=path,
            got=few(odd),
        )
    return state


def _averaged(raw: dict[str, Tensor], ema: Any, path: Path) -> dict[str, Tensor]:
    """The EMA weights under the names of the raw ones.

    The average is a bare list in the order of the network's parameters, which is the order of the
    state dict without its buffer. Entries after the backbone's belong to the noise schedule.
    """
    shadow = ema.get("shadow_params") if isinstance(ema, dict) else None
    if not isinstance(shadow, (list, tuple)) or not shadow:
        raise UserError(
            "The checkpoint holds no averaged (EMA) weights.",
            where=path,
            expected="a top-level 'ema' with a list 'shadow_params'",
            fix='ask for the raw weights: weights="raw"',
        )
    names = [name for name in raw if name != BUFFER]
    if len(shadow) < len(names) or not all(isinstance(p, Tensor) for p in shadow):
        raise UserError(
            "The averaged (EMA) weights do not match the network.",
            where=path,
            got=f"{sum(isinstance(p, Tensor) for p in shadow)} averaged tensors",
            expected=f"at least {len(names)}, one per parameter of the backbone",
            fix='ask for the raw weights: weights="raw"',
        )
    pairs = list(zip(names, shadow, strict=False))
    wrong = [
        f"{name}: {tuple(p.shape)} instead of {tuple(raw[name].shape)}"
        for name, p in pairs
        if p.shape != raw[name].shape
    ]
    if wrong:
        raise UserError(
            "The averaged (EMA) weights do not have the shapes of the network's parameters.",
            where=path,
            got=few(wrong),
            fix='ask for the raw weights: weights="raw"',
        )
    return {**raw, **dict(pairs)}
