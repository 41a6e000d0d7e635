"""A causal language model of transformers as a generator: its own classes, its weights, our draw.

Nothing from the checkpoint is run: only weights in safetensors and classes that transformers itself
has. A model that also sees or hears is read as the language model that it is too. What it starts
from is its beginning-of-text token; a model that has none starts from its end-of-text token, which
for GPT-2 and the models here is the same token.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from strop.checkpoints.checkpoint import Located
from strop.checkpoints.files import read_json_object, sha256_of_all
from strop.checkpoints.foreign import empty_foreign, library, load_foreign
from strop.denoisers.base import in_one_line
from strop.denoisers.load import Loading
from strop.denoisers.pretrained import CONFIG, complete, directory_of, hashed, pinned, weight_files
from strop.denoisers.tokenizer import TextCodec, stop_ids
from strop.errors import UserError
from strop.spec.generator import CheckpointSpec

DEFAULT_LENGTH = 1024
"""Tokens per output when none are asked for: what the comparisons use, not a long context's end."""
UNLIMITED = 2**20
"""The longest output of a model whose architecture knows no longest."""

_GPT2_VOCABULARY = 50257
# Fields of a configuration that have no part in what a trained model computes.
_BOOKKEEPING = ("dropout", "pdrop", "transformers_version", "dtype", "use_cache", "_name_or_path")


class CausalLM:
    """A causal language model as a `CausalModel`."""

    mask_id = None
    __repr__ = in_one_line

    def __init__(
        self,
        network: Any,
        spec: CheckpointSpec,
        *,
        source: str,
        start_id: int,
        codec: TextCodec | None,
        device: torch.device,
        eos_ids: Sequence[int] = (),
    ) -> None:
        self.network = network.to(device).eval().requires_grad_(False)
        self.spec, self.source, self.codec, self.device = spec, source, codec, device
        self.start_id = start_id
        self.stop_ids = stop_ids(eos_ids, codec)
        """The tokens that end a text and a turn, the text's first."""
        # A long prompt times a vocabulary is gigabytes, and only its last row is wanted.
        forward = signature(self.network.forward).parameters
        self._last = {"logits_to_keep": 1} if "logits_to_keep" in forward else {}
        self.vocab_size = int(spec.shape["vocab_size"])
        self.length = int(spec.shape["length"])
        self.default_length = min(self.length, DEFAULT_LENGTH)

    @torch.no_grad()
    def read(self, ids: Tensor, memory: Any) -> tuple[Tensor, Any]:
        """One call of the network, with its keys and values kept."""
        out = self.network(input_ids=ids, past_key_values=memory, use_cache=True, **self._last)
        return out.logits[:, -1].float().clone(), out.past_key_values


def load_causal(located: Located, loading: Loading) -> CausalLM:
    """Load the model that lies at `found`."""
    loading.refuse_weights(located, "A causal language model")
    device, dtype = loading.device, loading.dtype
    directory = directory_of(located)
    files = weight_files(directory)
    network = _network(directory, dtype, empty=device.type == "meta")
    config, stored = network.config.get_text_config(), read_json_object(directory / CONFIG)
    shape: dict[str, int | float | bool] = {
        "vocab_size": config.vocab_size,
        "length": getattr(config, "max_position_embeddings", None) or UNLIMITED,
        "start_id": _start(directory, config),
        "config": hashed({k: v for k, v in stored.items() if not k.endswith(_BOOKKEEPING)}),
    }
    sha256 = located.sha256 or sha256_of_all(files)
    spec = CheckpointSpec(family="ar", sha256=sha256, shape=shape, network_dtype=dtype)
    codec = TextCodec.beside(directory, config.vocab_size, _GPT2_VOCABULARY)
    return CausalLM(
        network,
        spec,
        source=pinned(located),
        start_id=int(shape["start_id"]),
        codec=codec,
        device=device,
        eos_ids=[*_ids(config, "eos_token_id"), *_ids(network.config, "eos_token_id")],
    )


def _network(directory: Path, dtype: str, *, empty: bool) -> Any:
    """The network of transformers, complete: nothing may be left at its random start.

    An empty one has no weights at all.
    """
    options = {"dtype": getattr(torch, dtype), "use_safetensors": True}

    def load() -> Any:
        config = load_foreign("AutoConfig", directory)
        if config.is_encoder_decoder:
            raise ValueError(f"{config.model_type} encodes one text and decodes another")
        # A model that also sees or hears may have no class for text alone: its own reads text, too.
        text = type(config) in library().MODEL_FOR_CAUSAL_LM_MAPPING
        auto_class = "AutoModelForCausalLM" if text else "AutoModelForMultimodalLM"
        if empty:
            with torch.device("meta"):
                return empty_foreign(auto_class, config), {"missing_keys": ()}
        return load_foreign(auto_class, directory, output_loading_info=True, **options)

    return complete(load, "causal language model", directory)


def _start(directory: Path, config: Any) -> int:
    """The beginning-of-text token, else the end-of-text token."""
    for name in ("bos_token_id", "eos_token_id"):
        for token in _ids(config, name)[:1]:
            if 0 <= token < config.vocab_size:
                return token
    raise UserError(
        "The token that a text begins with is unknown.",
        where=directory / CONFIG,
        expected="bos_token_id or eos_token_id, an id of the vocabulary",
        fix="write it into config.json",
    )


def _ids(config: Any, name: str) -> list[int]:
    """The ids in a field of a configuration, which holds one or several."""
    value = getattr(config, name, None)
    several = value if isinstance(value, (list, tuple)) else [value]
    return [token for token in several if isinstance(token, int)]
