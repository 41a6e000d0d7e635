"""The checkpoints of the studies across families: public ones, and small ones to run anywhere.

The small ones are `embedded:tales` in the other families' public layouts, changed only so that each
family's sampler gets what it reads:

    sedd   time-blind, logits shifted by a constant so that the scores sum to about what they should
    didi   time-blind, the mask ruled out; the discriminator has random weights
    duo    time-blind, without the mask's row: it was never shown uniform noise and writes nonsense

They exercise loaders, samplers and studies end to end. Their quality says nothing of the families.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.assets import CHECKPOINT, EVALUATOR, HELD_OUT, embedded_path
from strop.errors import UserError, unknown_name
from strop.studies.measure import SHARPENED

if TYPE_CHECKING:
    from torch import Tensor

    from strop.checkpoints.config import DiTShape

__all__ = [
    "CHECKPOINTS",
    "DRESSED",
    "MODELS",
    "PROTOCOL",
    "Contender",
    "dressed",
    "named_sources",
    "run_folder",
    "smoke_sources",
]

CHECKPOINTS = "checkpoints"
"""Where a smoke run keeps the checkpoints that it makes."""
STANDARD: dict[str, Any] = {}


@dataclass(frozen=True)
class Contender:
    """One checkpoint of the comparison."""

    source: str
    """The public release."""
    settings: tuple[dict[str, Any], ...] = (STANDARD,)
    """The paper sharpens MDLM and DiDi-Instruct only."""
    reference: bool = False
    """A causal model: one row that does not depend on the number of updates."""
    small: str = ""
    """What stands in its place in a smoke run: a dressed family, or an embedded model."""


MODELS: dict[str, Contender] = {
    "MDLM-Small": Contender("kuleshov-group/mdlm-owt", (STANDARD, SHARPENED), small=CHECKPOINT),
    "DUO": Contender("s-sahoo/duo", small="duo"),
    "DUO-DCD": Contender("s-sahoo/duo-distilled", small="duo"),
    "SEDD": Contender("louaaron/sedd-small", small="sedd"),
    "DiDi-Instruct": Contender(
        "haoyangzheng/didi-instruct-small", (STANDARD, SHARPENED), small="didi"
    ),
    "GPT-2": Contender("openai-community/gpt2", reference=True, small=EVALUATOR),
}
"""In the order of the paper's table; the last is the reference."""

PROTOCOL = (
    "tokens: every output has as many as the model was trained on (the paper's: 1,024)",
    "random numbers: one stream per output, so the paper's very outputs cannot recur",
    "implementation: fast where there is one (the same law as the public code), dense elsewhere",
    "spans: content after the first non-leading end-of-text is not scored, as in the paper's sweep",
    "intervals: over outputs, which the paper does not give; 40 outputs leave wide ones",
)
"""What differs from the paper's protocol, or may."""


def run_folder(name: str) -> str:
    """The run directory of a row inside the study's."""
    return name.lower()


def named_sources(words: Sequence[str]) -> dict[str, str]:
    """Checkpoints as NAME=SOURCE; without any, the public ones. Only the named take part."""
    if not words:
        return {name: one.source for name, one in MODELS.items()}
    sources = {}
    for word in words:
        name, equals, source = word.partition("=")
        if not equals or not source:
            raise UserError(
                "A model of the comparison is named and placed.",
                got=word,
                expected="NAME=SOURCE, with a name among " + ", ".join(MODELS),
                fix="for example DUO=runs/duo",
            )
        if name not in MODELS:
            raise unknown_name("model of the comparison", name, MODELS)
        sources[name] = source
    return {name: sources[name] for name in MODELS if name in sources}


def smoke_sources(out: Path) -> dict[str, str]:
    """The embedded model in every family's layout; both DUO rows are one checkpoint."""
    made = dressed(out / CHECKPOINTS)
    return {name: made.get(one.small, one.small) for name, one in MODELS.items()}


# ---------------------------------------------------------------- the embedded model, dressed

ROWS = 32
"""Held-out rows over which SEDD's shift is averaged."""
NEVER = -30.0
"""The mask's logit in the dressed student."""


def dressed(directory: Path) -> dict[str, str]:
    """Write the checkpoints that are not there yet; their paths by family."""
    found = {family: directory / family for family in DRESSED}
    missing = [family for family, path in found.items() if not (path / "config.json").exists()]
    if missing:
        from safetensors.torch import load_file

        from strop.checkpoints.config import DiTShape
        from strop.disk import write

        source = embedded_path(CHECKPOINT)
        tensors = {
            key.removeprefix("backbone."): value.float()
            for key, value in load_file(source / "model.safetensors").items()
        }
        said = json.loads((source / "config.json").read_bytes())
        said["length"] = said["model_length"]
        shape = DiTShape(**{name: said[name] for name in DiTShape.__dataclass_fields__})
        _forget_time(tensors)
        tokenizer = (source / "tokenizer.json").read_bytes()
        for family in missing:
            path = found[family]
            path.mkdir(parents=True, exist_ok=True)
            write(path / "tokenizer.json", tokenizer)
            DRESSED[family](path, dict(tensors), shape)
    return {family: str(path) for family, path in found.items()}


def _forget_time(tensors: dict[str, Tensor]) -> None:
    """Freeze the condition at noise zero, the only one that the embedded network has seen."""
    import torch

    from strop.checkpoints.config import TIME_FEATURES

    weight = tensors["sigma_map.mlp.0.weight"]
    features = torch.zeros(TIME_FEATURES)
    features[: TIME_FEATURES // 2] = 1.0  # the cosines of zero; the sines are zero
    tensors["sigma_map.mlp.0.bias"] = tensors["sigma_map.mlp.0.bias"] + weight @ features
    tensors["sigma_map.mlp.0.weight"] = torch.zeros_like(weight)


def _sedd(path: Path, tensors: dict[str, Tensor], shape: DiTShape) -> None:
    """Scores should sum to 1/(e^sigma - 1): logits to V - 1, on average over held-out contexts."""
    bias = tensors["output_layer.linear.bias"]
    level = math.log(shape.vocab_size - 1) - _log_total()
    tensors["output_layer.linear.bias"] = bias + level
    model = {
        "hidden_size": shape.hidden_dim,
        "cond_dim": shape.cond_dim,
        "length": shape.length,
        "n_blocks": shape.n_blocks,
        "n_heads": shape.n_heads,
        "scale_by_sigma": True,
    }
    config = {
        "tokens": shape.vocab_size - 1,
        "graph": {"type": "absorb"},
        "noise": {"type": "loglinear"},
        "model": model,
    }
    _save(path, config, tensors)


def _log_total() -> float:
    """The mean logarithm of the summed exponentials of the logits, half of each row hidden."""
    import torch

    from strop.denoisers import load_denoiser

    denoiser = load_denoiser(CHECKPOINT, device="cpu")
    rows = [json.loads(line)["ids"] for line in HELD_OUT.read_text().splitlines()[:ROWS]]
    ids = torch.tensor(rows)
    hidden = torch.rand(ids.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    sequence, position = hidden.nonzero(as_tuple=True)
    with torch.no_grad():
        state = denoiser.hidden(torch.where(hidden, denoiser.mask_id, ids), None)
        logits = denoiser.logits(state, sequence, position)
        logits[:, denoiser.mask_id] = -torch.inf
        return float(logits.logsumexp(-1).mean())


def _duo(path: Path, tensors: dict[str, Tensor], shape: DiTShape) -> None:
    for key in ("vocab_embed.embedding", "output_layer.linear.weight", "output_layer.linear.bias"):
        tensors[key] = tensors[key][: shape.mask_id]
    config = {**_flat(shape), "model_type": "DUO", "vocab_size": shape.mask_id}
    _save(path, config, {f"backbone.{key}": value for key, value in tensors.items()})


def _didi(path: Path, tensors: dict[str, Tensor], shape: DiTShape) -> None:
    import torch
    from safetensors.torch import save

    from strop.denoisers.discriminator import Discriminator
    from strop.disk import write

    bias = tensors["output_layer.linear.bias"].clone()
    weight = tensors["output_layer.linear.weight"].clone()
    bias[shape.mask_id], weight[shape.mask_id] = NEVER, 0.0
    tensors |= {"output_layer.linear.bias": bias, "output_layer.linear.weight": weight}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        judge = Discriminator(shape)
    stored = {key: value.contiguous() for key, value in judge.state_dict().items()}
    write(path / "discriminator.safetensors", save(stored))
    _save(path, {**_flat(shape), "time_conditioning": False}, tensors)


def _flat(shape: DiTShape) -> dict[str, Any]:
    """The hub's flat names, without what a family has no field for."""
    fields = ("vocab_size", "hidden_dim", "cond_dim", "n_blocks", "n_heads", "dropout")
    return {name: getattr(shape, name) for name in fields} | {"model_length": shape.length}


def _save(path: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """The configuration last: its presence means that the checkpoint is complete."""
    from safetensors.torch import save

    from strop.disk import write

    stored = {key: value.contiguous() for key, value in tensors.items()}
    write(path / "model.safetensors", save(stored, metadata={"format": "pt"}))
    write(path / "config.json", (json.dumps(config, indent=2) + "\n").encode())


DRESSED: dict[str, Callable[[Path, dict[str, Tensor], DiTShape], None]] = {
    "sedd": _sedd,
    "duo": _duo,
    "didi": _didi,
}
"""How each family's checkpoint is written."""
