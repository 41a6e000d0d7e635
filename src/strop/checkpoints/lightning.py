"""Training files of the public codes: which weights, and what they were trained with.

A Lightning `.ckpt` has a `state_dict` with prefixed keys (MDLM, DUO, DiDi-Instruct); SEDD's `.pth`
has a `model` with bare ones. Both have an `ema`, except DiDi-Instruct's, whose average is one of
its networks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from strop.checkpoints.config import BUFFER, Modules, backbone_only, didi_modules, few
from strop.checkpoints.family import described, family_of_config, family_of_keys, flat_config
from strop.checkpoints.pickles import load_pickle
from strop.errors import UserError


@dataclass(frozen=True)
class TrainingFile:
    """What a training checkpoint holds for us."""

    tensors: dict[str, Tensor]
    """The network's tensors, bare keys."""
    config: dict[str, Any]
    """The known fields of its configuration, flat."""
    family: str | None = None
    """As far as the file says."""
    modules: Modules = field(default_factory=dict)
    """Its other networks."""


def read_training_file(path: Path, weights: Literal["ema", "raw"]) -> TrainingFile:
    """Read the raw or the averaged (EMA) network from a training checkpoint."""
    content = load_pickle(path)
    known = content if isinstance(content, dict) else {}
    state = known.get("state_dict")
    if not isinstance(state, dict) and isinstance(known.get("model"), dict) and "ema" in known:
        raw = _tensors_only(known["model"], path)
        tensors = raw if weights == "raw" else _averaged(raw, known["ema"], path)
        return TrainingFile(tensors, {}, "sedd")
    if not isinstance(state, dict):
        raise UserError(
            "The file is not a training checkpoint of the public code.",
            where=path,
            got=_got(content),
            expected="a top-level 'state_dict' of tensors by name, or SEDD's 'model' and 'ema'",
            fix="pass a Lightning .ckpt, or a directory with model.safetensors and config.json",
        )
    tensors, hyper = _tensors_only(state, path), known.get("hyper_parameters")
    config = flat_config(hyper, path)
    if family_of_keys(tensors):
        student, others = didi_modules(tensors, path, weights)
        return TrainingFile(student, config, "didi", others)
    raw = backbone_only(tensors, path, bare=False)
    tensors = raw if weights == "raw" else _averaged(raw, known.get("ema"), path)
    return TrainingFile(tensors, config, family_of_config(hyper))


def _got(content: Any) -> str:
    if not isinstance(content, dict):
        return described(content)
    if "state_dict" in content:
        return f"a 'state_dict' that is {described(content['state_dict'])}"
    return f"the keys {few(list(map(repr, content)))}" if content else "an empty mapping"


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
            fix="ask for the raw weights: `weights=raw`",
        )
    names = [name for name in raw if name != BUFFER]
    if len(shadow) < len(names) or not all(isinstance(p, Tensor) for p in shadow):
        raise UserError(
            "The averaged (EMA) weights do not match the network.",
            where=path,
            got=f"{sum(isinstance(p, Tensor) for p in shadow)} averaged tensors",
            expected=f"at least {len(names)}, one per parameter of the backbone",
            fix="ask for the raw weights: `weights=raw`",
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
            fix="ask for the raw weights: `weights=raw`",
        )
    return {**raw, **dict(pairs)}
