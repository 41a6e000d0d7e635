"""From a source to a denoiser."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from strop.checkpoints.checkpoint import Checkpoint, locate, read_checkpoint
from strop.checkpoints.config import DiTShape, check_tensors, expected_tensors, infer_shape
from strop.checkpoints.family import chosen_family, known_family
from strop.checkpoints.keys import BUFFER
from strop.checkpoints.modules import BASE, DISCRIMINATOR
from strop.denoisers.base import Denoiser, Model
from strop.denoisers.causal import is_causal, load_causal
from strop.denoisers.didi import DiDi
from strop.denoisers.discriminator import Discriminator, discriminator_tensors
from strop.denoisers.dit import DiT
from strop.denoisers.duo import DUO
from strop.denoisers.mdlm import MDLM
from strop.denoisers.sedd import SEDD
from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError, unknown_name
from strop.spec import CheckpointSpec

__all__ = ["DTYPES", "load_denoiser", "load_model", "resolve_device", "resolve_dtype"]

DTYPES = ("float32", "bfloat16", "float16")


def load_denoiser(
    source: str | os.PathLike[str],
    *,
    revision: str | None = None,
    weights: Literal["ema", "raw"] | None = None,
    family: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> Denoiser:
    """Load a masked denoiser; the arguments are those of `load_model`."""
    model = load_model(
        source, revision=revision, weights=weights, family=family, device=device, dtype=dtype
    )
    if not isinstance(model, Denoiser):
        raise UserError(
            "The checkpoint is no masked denoiser.",
            where=source,
            got=f"a model of the family {model.spec.family!r}",
            fix="use strop.load_model, or a masked diffusion checkpoint",
        )
    return model


def load_model(
    source: str | os.PathLike[str],
    *,
    revision: str | None = None,
    weights: Literal["ema", "raw"] | None = None,
    family: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> Model:
    """Load a checkpoint: a directory, a file, a hub id (`owner/name[@revision]`), `embedded:NAME`.

    A masked diffusion checkpoint becomes a `Denoiser`, a causal language model a `CausalModel`.

    `weights` chooses between EMA (the default) and raw weights of a training file; `family` names
    the diffusion family where the files do not. `dtype` is that of the matrix products;
    normalisations and the residual stream stay in float32 (in a causal model of transformers, where
    that library keeps them so).
    """
    place = resolve_device(device)
    kind = resolve_dtype(dtype, place)
    known_family(family)
    found = locate(source, revision)
    if is_causal(found):
        return load_causal(found, weights, place, kind)
    checkpoint = read_checkpoint(found, weights=weights)
    family = chosen_family(checkpoint.family, family, checkpoint.path)
    shape = infer_shape(checkpoint, family)
    spec = CheckpointSpec(
        family=family,
        sha256=checkpoint.sha256,
        weights=checkpoint.weights,
        # Dropout has no part in sampling, so it has none in the generator's identity.
        shape={name: value for name, value in asdict(shape).items() if name != "dropout"},
        network_dtype=kind,
    )
    common: dict[str, Any] = {
        "source": checkpoint.source if checkpoint.revision is None else _pinned(checkpoint),
        "codec": TextCodec.for_checkpoint(checkpoint, shape.vocab_size),
        "device": place,
    }
    network = _filled(DiT, shape, checkpoint.tensors)
    if family == "didi":
        return DiDi(network, spec, **common, **_others(checkpoint, shape))
    return {"mdlm": MDLM, "sedd": SEDD, "duo": DUO}[family](network, spec, **common)


def _others(checkpoint: Checkpoint, shape: DiTShape) -> dict[str, Any]:
    """DiDi-Instruct's networks beside the student, checked like it."""
    path, networks = checkpoint.path, {}
    if BASE in checkpoint.modules:
        tensors = checkpoint.modules[BASE]
        check_tensors(tensors, expected_tensors(shape), path, shape)
        networks["base"] = _filled(DiT, shape, tensors)
    if DISCRIMINATOR in checkpoint.modules:
        tensors = checkpoint.modules[DISCRIMINATOR]
        seen = tensors.get("vocab_embed.embedding")
        if seen is not None and len(seen) != shape.vocab_size:
            raise UserError(
                "The discriminator's vocabulary is not the student's.",
                where=path,
                got=f"{len(seen)} against {shape.vocab_size} classes",
                fix="put the discriminator that was trained with the student beside it",
            )
        check_tensors(tensors, discriminator_tensors(shape), path, shape)
        networks["discriminator"] = _filled(Discriminator, shape, tensors)
    return networks


Network = TypeVar("Network", DiT, Discriminator)


def _filled(kind: type[Network], shape: DiTShape, tensors: dict[str, Tensor]) -> Network:
    with torch.device("meta"):  # no memory and no time for weights that are replaced at once
        network = kind(shape)
    # A copy: the tensors may be views of the file, which somebody could write to later.
    copies = {
        key: tensor.to(torch.float32, copy=True) for key, tensor in tensors.items() if key != BUFFER
    }
    network.load_state_dict(copies, assign=True)
    return network


def _pinned(checkpoint: Checkpoint) -> str:
    return f"{checkpoint.source.partition('@')[0]}@{checkpoint.revision}"


def resolve_device(name: str) -> torch.device:
    """`auto`, `cpu`, `cuda` or `cuda:i`, if it is there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise unknown_name("device", name, ["auto", "cpu", "cuda", "cuda:0"], where="`device`")
    if kind == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "There is no CUDA device here.",
            where="`device`",
            got=name,
            expected="auto or cpu" if torch.version.cuda else "a CUDA build of torch",
            fix="use `device=cpu`, or see `strop doctor`",
        )
    if kind == "cuda" and number and int(number) >= torch.cuda.device_count():
        raise UserError(
            "There is no CUDA device of that number.",
            where="`device`",
            got=name,
            expected=f"cuda:0 to cuda:{torch.cuda.device_count() - 1}",
        )
    return torch.device(name)


def resolve_dtype(name: str, device: torch.device) -> str:
    """Full precision unless asked otherwise: the sampler's law should not hang on the device."""
    if name == "auto":
        return "float32"
    if name not in DTYPES:
        raise unknown_name("network dtype", name, ["auto", *DTYPES], where="`dtype`")
    if name != "float32" and device.type == "cpu":
        # Seen: an eighth of float32's speed, and on one machine an illegal instruction.
        raise UserError(
            f"{name} is for GPUs: CPUs are slower with it, and some builds crash.",
            where="`dtype`",
            got=f"{name} on {device}",
            fix="use `dtype=float32`, or use `device=cuda`",
        )
    return name
