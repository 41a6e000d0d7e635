"""DiffusionGemma: a causal encoder of what is written, and a decoder of the canvas that is open.

The network is transformers' own class, text only; encoder and decoder share all weights but one
scalar a layer. A canvas of noise is read whole, behind the encoder's keys and values, and behind
what the call before predicted (self-conditioning). There is no mask: every id can be noise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from strop.checkpoints.checkpoint import Located
from strop.checkpoints.config import DiTShape
from strop.checkpoints.files import read_json_object
from strop.checkpoints.foreign import library, load_foreign
from strop.checkpoints.layout import Layout
from strop.checkpoints.transformer import Fields
from strop.denoisers.base import all_logits, checked_ids, in_one_line
from strop.denoisers.bidirectional_load import first_device, released_tokenizer
from strop.denoisers.load import Loading
from strop.denoisers.pretrained import (
    CONFIG,
    directory_of,
    hashed,
    load_network,
    load_options,
    pinned,
    spec_of,
    weight_files,
)
from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError
from strop.spec.generator import CheckpointSpec

CLASS = "DiffusionGemmaForBlockDiffusion"
MINIMUM = "5.22"
"""The transformers that was compared; the class is not in older ones."""
GENERATION = "generation_config.json"
BEGIN = 2
"""What Gemma's texts begin with."""
_IDENTITY = ("layer_types", "rope_parameters", "final_logit_softcapping", "rms_norm_eps")
_RELEASED = {
    "attention_bias": False,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
}
"""What the text part of every released file says; another value is another network."""


@dataclass
class CanvasMemory:
    """Keys and values of what is written, by layer."""

    cache: Any
    """transformers' dynamic cache: exact. (Its static one is wrong beyond the window.)"""
    length: int
    """The number of tokens that it holds."""
    seen: Tensor | None = None
    """[B, length], where a token is text; None: everywhere."""
    states: Tensor | None = None
    """[B, n, D], of the tokens that were read last."""

    def of(self, rows: Tensor) -> CanvasMemory:
        """The memory of some sequences."""
        cache = copy(self.cache)
        cache.layers = [copy(layer) for layer in self.cache.layers]
        for layer in cache.layers:
            layer.keys, layer.values = layer.keys[rows], layer.values[rows]
        return CanvasMemory(cache, self.length, None if self.seen is None else self.seen[rows])


class DiffusionGemma:
    """A DiffusionGemma checkpoint as a `Denoiser`, and as what its own decoder asks for."""

    time_conditioned = False
    __repr__ = in_one_line

    def __init__(
        self,
        network: Any,
        spec: CheckpointSpec,
        *,
        source: str,
        codec: TextCodec | None,
        device: torch.device,
        ends: tuple[int, ...] = (),
        pad_id: int | None = None,
    ) -> None:
        self.network = network.eval().requires_grad_(False)
        self.spec, self.source, self.codec, self.device = spec, source, codec, device
        self.vocab_size = self.mask_id = int(spec.shape["vocab_size"])
        self.length = int(spec.shape["length"])
        self.block_length = int(spec.shape["canvas_length"])
        """Positions of a canvas, as it was trained."""
        self.default_length = min(self.length, self.block_length)
        self.start_id = int(spec.shape["start_id"])
        """What a text begins with that answers no prompt."""
        self.stop_ids, self.pad_id = ends, pad_id

    @torch.no_grad()
    def encode(
        self, ids: Tensor, memory: CanvasMemory | None = None, seen: Tensor | None = None
    ) -> CanvasMemory:
        """One causal pass over tokens [B, n] behind the memory, which is spent.

        `seen` [B, n] is false at padding. Positions count columns, padding too, as the public code
        has it: a padded row is not the row alone.
        """
        from transformers import DynamicCache

        text = self.network.model.encoder.language_model
        if memory is None:
            memory = CanvasMemory(DynamicCache(config=text.config), 0)
        if seen is not None or memory.seen is not None:
            seen = torch.ones_like(ids, dtype=torch.bool) if seen is None else seen
            past = seen[:, :0] if memory.seen is None else memory.seen
            seen = torch.cat([past, seen], 1)
        total = memory.length + ids.shape[1]
        position = torch.arange(memory.length, total, device=ids.device)[None]
        output = text(
            input_ids=ids, attention_mask=seen, position_ids=position, past_key_values=memory.cache
        )
        return CanvasMemory(output.past_key_values, total, seen, output.last_hidden_state)

    @torch.no_grad()
    def denoise(self, canvas: Tensor, memory: CanvasMemory, before: Tensor | None) -> Tensor:
        """Scores [B, C, V] in float32 of a canvas [B, C], capped, not tempered.

        `before` are the tempered scores of the call before it on this canvas; None in the first.
        """
        first, size = memory.length, canvas.shape[1]
        seen = memory.seen
        if seen is not None:
            seen = torch.nn.functional.pad(seen, (0, size), value=True)
        return self.network(
            decoder_input_ids=canvas,
            self_conditioning_logits=before,
            decoder_attention_mask=seen,
            decoder_position_ids=torch.arange(first, first + size, device=canvas.device)[None],
            past_key_values=memory.cache,
        ).logits

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights, in which predictions are passed to the next call."""
        return self.network.model.decoder.embed_tokens.weight.dtype

    @torch.no_grad()
    def hidden(self, ids: Tensor, sigma: Tensor | None) -> Tensor:  # noqa: ARG002
        """Scores at every position [B, L, V]: the last canvas behind what is before it.

        Where nothing else is before it, its first token is. What is encoded scores nothing: zeros.
        """
        first = max(1, ids.shape[1] - self.block_length)
        scores = self.denoise(ids[:, first:], self.encode(ids[:, :first]), None)
        return torch.nn.functional.pad(scores, (0, 0, first, 0))

    @torch.no_grad()
    def logits(self, hidden: Tensor, sequence: Tensor, position: Tensor) -> Tensor:
        """The scores at the rows asked for."""
        return hidden[sequence, position].clone()

    @torch.no_grad()
    def log_probs(self, ids: Tensor, sigma: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Log-probabilities [B, L, V] of the clean token, on the CPU; see `hidden`."""
        return all_logits(self, checked_ids(ids, self), None).log_softmax(-1).cpu()  # waits


def load_diffusion_gemma(located: Located, loading: Loading) -> DiffusionGemma:
    """Load the checkpoint at `found`; `loading.load` is handed to transformers."""
    loading.refuse_weights(located)
    options = load_options(loading.load, loading.dtype)
    directory = directory_of(located)
    config = read_json_object(directory / CONFIG)
    shape = _shape(config, directory / CONFIG)
    files = weight_files(directory)
    network = _network(directory, options, loading.device)
    placed = options.placed and loading.device.type != "meta"
    generation = directory / GENERATION
    defaults = read_json_object(generation) if generation.is_file() else {}
    ends = defaults.get("eos_token_id", config.get("eos_token_id", ()))
    pad = defaults.get("pad_token_id", config["text_config"].get("pad_token_id"))
    return DiffusionGemma(
        network,
        spec_of("diffusion-gemma", files, shape, options),
        source=pinned(located),
        codec=TextCodec.beside(directory, int(shape["vocab_size"]), -1),
        device=first_device(network) if placed else loading.device,
        ends=tuple(end for end in (ends if isinstance(ends, list) else [ends]) if end is not None),
        pad_id=pad if type(pad) is int else None,
    )


def _network(directory: Path, options: Any, device: torch.device) -> Any:
    transformers = library()
    if not hasattr(transformers, CLASS):
        raise UserError(
            "This transformers has no DiffusionGemma.",
            where=directory,
            got=f"transformers {transformers.__version__}",
            expected=f"transformers of at least {MINIMUM}",
            fix=f"pip install 'transformers>={MINIMUM}'",
        )
    if device.type == "meta":
        config = load_foreign("AutoConfig", directory)
        with torch.device("meta"):
            return getattr(transformers, CLASS)(config)
    return load_network(CLASS, directory, options, device, "DiffusionGemma checkpoint")


def _shape(config: Mapping[str, Any], where: Path) -> dict[str, int | float | bool]:
    """The network's part of a generator's identity; transformers reads the rest."""
    text = config.get("text_config")
    if not isinstance(text, Mapping):
        raise UserError(
            "The configuration has no text part.",
            where=where,
            got=f"text_config={text!r}"[:80],
            expected="an object, as google/diffusiongemma-26B-A4B-it has it",
        )
    text_fields, fields = Fields({"bos_token_id": BEGIN, **text}, where), Fields(config, where)
    text_fields.only(_RELEASED)
    if text.get("use_bidirectional_attention") == "all":
        raise UserError(
            "A bidirectional encoder is not the released network.",
            where=where,
            got="use_bidirectional_attention='all'",
            expected="'vision'",
        )
    return {
        "vocab_size": text_fields.count("vocab_size"),
        "length": text_fields.count("max_position_embeddings"),
        "canvas_length": fields.count("canvas_length", 256),
        "width": text_fields.count("hidden_size"),
        "n_blocks": text_fields.count("num_hidden_layers", most=4096),
        "n_heads": text_fields.count("num_attention_heads"),
        "sliding_window": text_fields.count("sliding_window"),
        "num_experts": text_fields.count("num_experts"),
        "top_k_experts": text_fields.count("top_k_experts"),
        "config": hashed({name: text.get(name) for name in _IDENTITY}),
        "start_id": text_fields.token("bos_token_id", text_fields.count("vocab_size")),
    }


CHAT_TEMPLATE = (
    "{{ '<bos>' }}{% for message in messages %}"
    "{{ '<|turn>' + message['role'] + '\n' + message['content'] | trim + '<turn|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|turn>model\n' }}{% endif %}"
)
"""Turns for tiny checkpoints; a released one brings its own template."""
SPECIAL = ("<bos>", "<|endoftext|>", "<pad>", "<|turn>", "<turn|>")
"""Tokens beyond those of text; the second ends a text."""
CANVAS, WINDOW = 16, 24
"""Positions of a tiny checkpoint's canvas and sliding window."""


def layout(shape: DiTShape) -> Layout:
    """The public layout of a network about as large as `shape` says, with a tokenizer."""
    files, specials, n_ids = released_tokenizer(SPECIAL, CHAT_TEMPLATE)
    texts = shape.vocab_size >= n_ids
    head = max(4, shape.hidden_dim // shape.n_heads // 4 * 4)
    begin, end, pad = (specials[token] if texts else i for i, token in enumerate(SPECIAL[:3]))
    text = {
        **_RELEASED,
        "model_type": "diffusion_gemma_text",
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_dim,
        "intermediate_size": 2 * shape.hidden_dim,
        "num_hidden_layers": shape.n_blocks,
        "num_attention_heads": shape.n_heads,
        "num_key_value_heads": shape.n_heads,
        "head_dim": head,
        "global_head_dim": 2 * head,
        "num_global_key_value_heads": 1,
        "max_position_embeddings": shape.length,
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention"] * (shape.n_blocks - 1) + ["full_attention"],
        "rms_norm_eps": 1e-6,
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": shape.hidden_dim // 2,
        "final_logit_softcapping": 30.0,
        "use_bidirectional_attention": "vision",
        "bos_token_id": begin,
        "eos_token_id": end,
        "pad_token_id": pad,
    }
    vision = {"model_type": "gemma4_vision", "hidden_size": 16, "intermediate_size": 16}
    vision |= {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    vision |= {"head_dim": 8, "patch_size": 4, "position_embedding_size": 16}
    config = {
        "architectures": [CLASS],
        "model_type": "diffusion_gemma",
        "canvas_length": CANVAS,
        "eos_token_id": [end],
        "tie_word_embeddings": True,
        "text_config": text,
        "vision_config": vision,
    }
    settings = library().AutoConfig.for_model(**config)
    with torch.device("meta"):
        network = getattr(library(), CLASS)(settings)
    sizes = {
        key: tuple(tensor.shape) for key, tensor in network.state_dict().items() if _stored(key)
    }
    defaults = {"eos_token_id": [end], "pad_token_id": pad}
    texts_beside = {GENERATION: json.dumps(defaults, indent=2)}
    return Layout(config, sizes, texts={**texts_beside, **(files if texts else {})})


def _stored(key: str) -> bool:
    """Shared tensors stand once in a file, under the decoder's name."""
    shared = key == "lm_head.weight" or key.startswith("model.encoder.language_model.")
    return not shared or key.endswith(".layer_scalar")
