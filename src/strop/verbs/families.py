"""The checkpoints of the studies across families: public ones, and small ones to run anywhere.

The small ones are `embedded:tales` in the other families' public layouts, changed only so that each
family's sampler finds what it reads:

    sedd   time-blind, logits shifted by a constant so that the scores sum to about what they should
    didi   time-blind, the mask ruled out; the discriminator has random weights
    duo    time-blind, without the mask's row: it was never shown uniform noise and writes nonsense

They exercise loaders, samplers and studies end to end. Their quality says nothing of the families.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.assets import CHECKPOINT, EVALUATOR, HELD_OUT, embedded_path
from strop.errors import UserError, unknown_name
from strop.records.record import FAMILIES
from strop.registry import resolve
from strop.verbs.points import SHARPENED

if TYPE_CHECKING:
    from torch import Tensor

    from strop.checkpoints.config import DiTShape

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
    family: str = "mdlm"
    small: str | None = None
    """An embedded model that replaces it in a smoke run; None: its family's small one."""


MODELS: dict[str, Contender] = {
    "MDLM-Small": Contender("kuleshov-group/mdlm-owt", (STANDARD, SHARPENED), small=CHECKPOINT),
    "DUO": Contender("s-sahoo/duo", family="duo"),
    "DUO-DCD": Contender("s-sahoo/duo-distilled", family="duo"),
    "SEDD": Contender("louaaron/sedd-small", family="sedd"),
    "DiDi-Instruct": Contender(
        "haoyangzheng/didi-instruct-small", (STANDARD, SHARPENED), family="didi"
    ),
    "GPT-2": Contender("openai-community/gpt2", reference=True, family="ar", small=EVALUATOR),
}
"""In the order of the paper's table; the last is the reference."""

PROTOCOL = (
    "tokens: every output has as many as the model was trained on (the paper's: 1,024)",
    "random numbers: one stream per output, so the paper's very outputs cannot recur",
    "implementation: fast where there is one, dense elsewhere; the law of the public code, but for "
    "DiDi-Instruct, whose finish and predictor differ (docs/families/didi.md)",
    "spans: content after the first non-leading end-of-text is not scored, as in the paper's sweep",
    "intervals: over outputs, which the paper does not give; 40 outputs leave wide ones",
)
"""Differences, or possible ones, from the paper's protocol."""


def run_folder(name: str) -> str:
    """The run directory of a row inside the study's."""
    return name.lower()


def named_sources(words: Sequence[str]) -> dict[str, str]:
    """Checkpoints as NAME=SOURCE; without any, the public ones. Only the named take part."""
    if not words:
        return {name: contender.source for name, contender in MODELS.items()}
    sources = {}
    for word in words:
        name, _, source = word.partition("=")
        if not source:
            raise UserError(
                "A model of the comparison needs a name and a source.",
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
    checkpoints = small_checkpoints(out / CHECKPOINTS)
    return {
        name: contender.small or checkpoints[contender.family] for name, contender in MODELS.items()
    }


# ---------------------------------------------------------------- the small checkpoints

ROWS = 32
"""Held-out rows over which SEDD's shift is averaged."""
NEVER = -30.0
"""The mask's logit in the small DiDi-Instruct."""


@dataclass
class Embedded:
    """The embedded model, about to be written in another family's layout."""

    tensors: dict[str, Tensor]
    shape: DiTShape
    beside: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    """Networks besides, by file name."""


def small_checkpoints(directory: Path) -> dict[str, str]:
    """Write the checkpoints that are not there yet; their paths by family."""
    makers = {
        name: (family.small, family.layout)
        for name, family in FAMILIES.items()
        if family.small is not None and family.layout is not None
    }
    paths = {name: directory / name for name in makers}
    missing = [name for name, path in paths.items() if not (path / "config.json").exists()]
    if missing:
        from strop.checkpoints.layout import write_checkpoint
        from strop.disk import write

        source = embedded_path(CHECKPOINT)
        tokenizer = (source / "tokenizer.json").read_bytes()
        for name in missing:
            model, (change, layout) = _load_embedded(source), makers[name]
            resolve(change)(model)
            paths[name].mkdir(parents=True, exist_ok=True)
            write(paths[name] / "tokenizer.json", tokenizer)
            write_checkpoint(paths[name], resolve(layout)(model.shape), model.tensors, model.beside)
    return {name: str(path) for name, path in paths.items()}


def _load_embedded(source: Path) -> Embedded:
    import torch
    from safetensors.torch import load_file

    from strop.checkpoints.config import TIME_FEATURES, DiTShape

    tensors = {
        key.removeprefix("backbone."): value.float()
        for key, value in load_file(source / "model.safetensors").items()
    }
    config = json.loads((source / "config.json").read_bytes())
    config["length"] = config["model_length"]
    shape = DiTShape(**{name: config[name] for name in DiTShape.__dataclass_fields__})
    # Freeze the condition at noise zero, the only one that the embedded network has seen.
    weight = tensors["sigma_map.mlp.0.weight"]
    features = torch.zeros(TIME_FEATURES)
    features[: TIME_FEATURES // 2] = 1.0  # the cosines of zero; the sines are zero
    tensors["sigma_map.mlp.0.bias"] = tensors["sigma_map.mlp.0.bias"] + weight @ features
    tensors["sigma_map.mlp.0.weight"] = torch.zeros_like(weight)
    return Embedded(tensors, shape)


def small_sedd(model: Embedded) -> None:
    """Scores should sum to 1/(e^sigma - 1): logits to V - 1, on average over held-out contexts."""
    bias = model.tensors["output_layer.linear.bias"]
    level = math.log(model.shape.vocab_size - 1) - _log_total()
    model.tensors["output_layer.linear.bias"] = bias + level


def _log_total() -> float:
    """The mean logarithm of the summed exponentials of the logits, half of each row hidden."""
    import torch

    from strop.denoisers import load_denoiser

    denoiser = load_denoiser(CHECKPOINT, device="cpu")
    lines = HELD_OUT.read_text().splitlines()[:ROWS]
    ids = torch.tensor([json.loads(line)["ids"] for line in lines])
    hidden = torch.rand(ids.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    sequence, position = hidden.nonzero(as_tuple=True)
    with torch.no_grad():
        state = denoiser.hidden(torch.where(hidden, denoiser.mask_id, ids), None)
        logits = denoiser.logits(state, sequence, position)
        logits[:, denoiser.mask_id] = -torch.inf
        return float(logits.logsumexp(-1).mean())


def small_duo(model: Embedded) -> None:
    """Without the mask's row."""
    mask = model.shape.mask_id
    for key in ("vocab_embed.embedding", "output_layer.linear.weight", "output_layer.linear.bias"):
        model.tensors[key] = model.tensors[key][:mask]
    model.shape = replace(model.shape, vocab_size=mask)


def small_didi(model: Embedded) -> None:
    """The mask ruled out, and a discriminator of random weights."""
    import torch

    from strop.checkpoints.hub import DISCRIMINATOR
    from strop.denoisers.didi import Discriminator

    mask = model.shape.mask_id
    bias = model.tensors["output_layer.linear.bias"].clone()
    weight = model.tensors["output_layer.linear.weight"].clone()
    bias[mask], weight[mask] = NEVER, 0.0
    model.tensors |= {"output_layer.linear.bias": bias, "output_layer.linear.weight": weight}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model.beside[DISCRIMINATOR] = dict(Discriminator(model.shape).state_dict())
