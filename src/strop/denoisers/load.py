"""From a source to a denoiser, and what a family's loader is asked for."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypedDict, Unpack

import torch

from strop.assets import EMBEDDED
from strop.checkpoints.checkpoint import Located, locate, read_checkpoint, refuse_choice
from strop.checkpoints.config import infer_shape
from strop.checkpoints.family import (
    chosen_family,
    family_of_classes,
    family_of_config,
    known_family,
)
from strop.checkpoints.files import read_json_object
from strop.denoisers.base import Denoiser, Model, in_one_line
from strop.denoisers.device import PUBLIC, resolve_device, resolve_dtype
from strop.denoisers.network import NetworkDenoiser
from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError
from strop.records.record import FAMILIES
from strop.registry import resolve
from strop.runtime import MOST_LENGTH
from strop.served.address import ServerAddress, is_served
from strop.spec.generator import CheckpointSpec


@dataclass(frozen=True)
class Loading:
    """How a checkpoint is to be loaded, checked as far as that goes without its files."""

    weights: Literal["ema", "raw"] | None
    """Averaged or raw weights of a training file."""
    family: str | None
    """As the user says; None: as the files say."""
    device: torch.device
    """`meta` where the weights stay away: other processes have them."""
    dtype: str
    """The dtype of the matrix products."""
    load: Mapping[str, Any] = field(default_factory=dict)
    """Options that are handed to transformers, where the family is loaded by it."""

    def refuse_weights(self, located: Located, what: str = "The checkpoint") -> None:
        """Refuse a choice of weights, for a family that has one set of them."""
        refuse_choice(self.weights, located.source, what)


@dataclass(frozen=True)
class LoadRecipe:
    """How a model was loaded, so that another process can load it too: all but the device."""

    as_written: str
    """As the user wrote it."""
    source: str
    """A whole path, a hub id, `embedded:NAME`: the same wherever a process starts."""
    revision: str | None
    """Of a hub id, the commit that was found."""
    weights: Literal["ema", "raw"] | None
    family: str | None
    dtype: str
    load: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, located: Located, how: Loading) -> LoadRecipe:
        """From where a checkpoint was found, and how it was loaded."""
        source = located.source
        if located.revision is not None:
            source = source.partition("@")[0]
        elif not source.startswith(EMBEDDED):
            source = str(located.path.resolve())
        options = how.weights, how.family, how.dtype, dict(how.load)
        return cls(located.source, source, located.revision, *options)

    def model(self, device: str) -> Model:
        """Load it once more, on a device."""
        names = ("revision", "weights", "family", "dtype", "load")
        return load_model(self.source, device=device, **{key: getattr(self, key) for key in names})


_SHARED = "strop.denoisers.load:load_transformer"


class LoadArguments(TypedDict, total=False):
    """The arguments of `load_model` besides the source."""

    revision: str | None
    weights: Literal["ema", "raw"] | None
    family: str | None
    device: str
    dtype: str
    load: Mapping[str, Any] | None


def load_denoiser(source: str | os.PathLike[str], **arguments: Unpack[LoadArguments]) -> Denoiser:
    """Load a masked denoiser; the arguments are those of `load_model`."""
    model = load_model(source, **arguments)
    if not isinstance(model, Denoiser):
        raise UserError(
            "The checkpoint is not a masked denoiser.",
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
    load: Mapping[str, Any] | None = None,
) -> Model:
    """Load a checkpoint: a directory, a file, a hub id (`owner/name[@revision]`), `embedded:NAME`,
    or a model behind a server, `server:URL#MODEL`.

    A masked diffusion checkpoint becomes a `Denoiser`, a causal language model a `CausalModel`.

    `weights` chooses between EMA (the default) and raw weights of a training file; `family` names
    the diffusion family where the files do not. `dtype` is that of the matrix products;
    normalisations and the residual stream stay in float32 (in a causal model of transformers, where
    that library keeps them so); `public` has the casts of the family's public code. `load` are
    options for transformers, where it does the loading (LLaDA, Dream): attention kernel,
    quantisation, placement, an adapter.
    """
    if is_served(source):
        options = {"revision": revision, "weights": weights, "family": family, "dtype": dtype}
        return load_served(str(source), **options, load=load)
    torch_device = resolve_device(device)
    if dtype != PUBLIC:
        resolve_dtype(dtype, torch_device)  # before anything is fetched
    known_family(family)
    located = locate(source, revision)
    record = FAMILIES[family_at(located) or family or "mdlm"]
    dtype = resolve_dtype(dtype, torch_device, public=record.public_dtype)
    loading = Loading(weights, family, torch_device, dtype, load or {})
    if load and record.load == _SHARED:
        raise UserError(
            f"A checkpoint of the family {record.name!r} takes no options for transformers.",
            where="`load`",
            got=", ".join(load),
            fix="leave `load` out",
        )
    if torch_device.type == "meta" and "device_map" in loading.load:
        raise UserError(
            "Every worker would spread the model over all devices.",
            where="`load`: device_map",
            got=f"device_map={loading.load['device_map']!r} and a process per device",
            fix="leave `devices` and `engine` out, or `device_map`",
        )
    model = resolve(record.load)(located, loading)
    with suppress(AttributeError):  # of a plug-in's, which may take no attributes
        model.recipe = LoadRecipe.of(located, loading)
    return model


def load_transformer(located: Located, loading: Loading) -> Model:
    """A diffusion transformer of whichever family its files and the user say."""
    checkpoint = read_checkpoint(located, weights=loading.weights)
    family = chosen_family(checkpoint.family, loading.family, checkpoint.path)
    record, shape = FAMILIES[family], infer_shape(checkpoint, family)
    spec = CheckpointSpec(
        family=family,
        sha256=checkpoint.sha256,
        weights=checkpoint.weights,
        # Dropout has no part in sampling, so it has none in the generator's identity.
        shape={name: value for name, value in asdict(shape).items() if name != "dropout"},
        network_dtype=loading.dtype,
        version=record.version,
    )
    if record.denoiser is None:
        raise UserError(
            f"The family {family!r} is not one of diffusion transformers.",
            where=located.source,
            fix="leave `family` out, or pass a checkpoint that it loads",
        )
    kind: type[NetworkDenoiser] = resolve(record.denoiser)
    return kind.of_checkpoint(checkpoint, shape, spec, loading.device)


def family_at(located: Located) -> str | None:
    """The family of a directory with a configuration that names a known one."""
    path = (located.path if located.path.is_dir() else located.path.parent) / "config.json"
    if not path.is_file():
        return None
    content = read_json_object(path)
    family = family_of_classes(content) or family_of_config(content)
    return family if family in FAMILIES else None


DEFAULT_LENGTH = 256
"""The most tokens of a served model's reply by default."""


class ServedModel:
    """A model behind a server: what it is called, and nothing of its insides.

    Neither its weights nor its tokenizer are known. Its address and name stand for the weights;
    which fingerprint the server gives with its replies is kept in the journal of every cell, and
    one that changes ends the run. Texts are what it makes. Their ids, for entropy, repetition and
    diversity, are those of GPT-2's tokenizer, which loses nothing: a prompt comes back from its ids
    as it was.
    """

    mask_id = None
    device = torch.device("cpu")
    length = MOST_LENGTH
    default_length = DEFAULT_LENGTH
    __repr__ = in_one_line

    def __init__(self, address: ServerAddress) -> None:
        self.address, self.source = address, str(address)
        self.codec = TextCodec.gpt2()
        self.vocab_size = self.codec.vocab_size
        self.spec = CheckpointSpec(
            family="served",
            sha256=hashlib.sha256(self.source.encode()).hexdigest(),
            weights="unknown",
            shape={"vocab_size": self.vocab_size},
            network_dtype="unknown",
            normalisation_dtype="unknown",
        )


def load_served(source: str, **options: Any) -> ServedModel:
    """The model at `server:URL#MODEL`; arguments about weights do not apply to it."""
    for name, value in options.items():
        if value not in (None, "auto") and value != {}:
            raise UserError(
                "A served model is loaded by its server.",
                where=f"`{name}`",
                got=value,
                fix=f"leave `{name}` out; set it where the server is started",
            )
    return ServedModel(ServerAddress.parse(source))
