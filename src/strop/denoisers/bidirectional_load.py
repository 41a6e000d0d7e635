"""Loading a bidirectional network of transformers from a hub directory, with everything checked.

Also the public layouts of LLaDA and Dream, for tiny checkpoints: sizes, tokenizer, template.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from strop.assets import CHECKPOINT, embedded_path
from strop.checkpoints.checkpoint import Located
from strop.checkpoints.config import DiTShape, Sizes
from strop.checkpoints.files import read_json_object
from strop.checkpoints.foreign import library
from strop.checkpoints.layout import Layout
from strop.checkpoints.transformer import (
    Fields,
    TransformerShape,
    check_sizes,
    checked_shape,
    decoder_config,
    stored_sizes,
)
from strop.denoisers.base import Denoiser
from strop.denoisers.load import Loading
from strop.denoisers.pretrained import (
    CONFIG,
    LoadOptions,
    directory_of,
    load_network,
    load_options,
    pinned,
    spec_of,
    weight_files,
)
from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError

END = "<|endoftext|>"
BEGIN, MASK = 0, 2
"""Where these stand among a family's special tokens."""


def _tokenizer(special: Sequence[str]) -> tuple[dict[str, Any], dict[str, int]]:
    """The embedded tokenizer with special tokens, and the ids of those."""
    content = json.loads(TextCodec.from_directory(embedded_path(CHECKPOINT)).to_json())
    vocabulary = content["model"]["vocab"]
    specials = {END: vocabulary[END]}
    for token in special:
        specials.setdefault(token, len(vocabulary) + len(specials) - 1)
    common = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    content["added_tokens"] = [
        {"id": number, "content": token, **common, "special": True}
        for token, number in sorted(specials.items(), key=lambda item: item[1])
    ]
    return content, specials


def _files(
    content: dict[str, Any], special: Sequence[str], chat_template: str, *, one_file: bool
) -> dict[str, str]:
    """The tokenizer in the files of the family's release: one file, or Qwen2's pairs."""
    added = content["added_tokens"]
    tokenizer_config = {
        "added_tokens_decoder": {
            str(token["id"]): dict(list(token.items())[1:]) for token in added
        },
        "bos_token": special[BEGIN],
        "eos_token": END,
        "pad_token": END,
        "chat_template": chat_template,
        "clean_up_tokenization_spaces": False,
    }
    if one_file:
        config = {**tokenizer_config, "tokenizer_class": "PreTrainedTokenizerFast"}
        files = {"tokenizer.json": json.dumps(content, ensure_ascii=False)}
    else:
        config = {
            **tokenizer_config,
            "mask_token": special[MASK],
            "tokenizer_class": "Qwen2Tokenizer",
        }
        pairs = [" ".join(p) if isinstance(p, list) else p for p in content["model"]["merges"]]
        files = {
            "vocab.json": json.dumps(content["model"]["vocab"], ensure_ascii=False),
            "merges.txt": "\n".join(["#version: 0.2", *pairs]) + "\n",
        }
    return {**files, "tokenizer_config.json": json.dumps(config, indent=2)}


def released_tokenizer(
    special: Sequence[str], chat_template: str
) -> tuple[dict[str, str], dict[str, int], int]:
    """The embedded tokenizer as files with special tokens, their ids, and the number of ids."""
    content, specials = _tokenizer(special)
    n_ids = len(content["model"]["vocab"]) + len(specials) - 1
    return _files(content, special, chat_template, one_file=True), specials, n_ids


MINIMUM = "5.2"
"""The first transformers whose decoders heed `is_causal=False`."""
_PROBE = 8


@dataclass(frozen=True)
class Release:
    """How a family's public checkpoints are laid out, and which network of transformers they are.

    The network's classes are `{architecture}Config` and `{architecture}ForCausalLM`.
    """

    family: str
    model_type: str
    """The `model_type` in config.json."""
    architectures: tuple[str, ...]
    """The `architectures` in config.json."""
    architecture: str
    """The name of the network's classes in transformers."""
    denoiser: type[Any]
    shape: Callable[[Fields], Any]
    """The shape, from the configuration's fields."""
    sizes: Callable[[Any], Sizes]
    """Every tensor's key and size in the public file."""
    config: Callable[[TransformerShape, int], dict[str, Any]]
    """A checkpoint's config.json of a shape and an end of text, all but what it is."""
    variants: Mapping[str, Any]
    """What a configuration could ask for otherwise, and no release does."""
    special: Sequence[str]
    """Tokens beyond those of text; the second ends a text, the third is the mask."""
    chat_template: str
    """Turns as the public chat models know them, for tiny checkpoints."""
    renaming: Mapping[str, str] = field(default_factory=dict)
    """From patterns of public keys to transformers' keys."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What configurations may leave to the code."""
    codec: Callable[[Path, int], TextCodec | None] | None = None
    """The tokenizer in a directory, where it is no plain `tokenizer.json`."""
    network: Callable[[Any], dict[str, Any]] = lambda _: {}
    """What its configuration for transformers says beyond a `TransformerShape`."""
    grown: Callable[[TransformerShape], TransformerShape] = lambda shape: shape
    """The shape of a tiny network of the family."""
    ends: tuple[int, ...] = ()
    """The end of a text where no file says it."""

    def load(self, located: Located, loading: Loading) -> Any:
        """Load the checkpoint of the family that lies at `found`.

        `loading.load` is handed to transformers: `attn_implementation`, `device_map`,
        `quantization_config`, ..., and `adapter`, the directory of a PEFT adapter. What of it
        changes the numbers is part of the checkpoint's identity.
        """
        loading.refuse_weights(located)
        device = loading.device
        options = load_options(loading.load, loading.dtype)
        directory = directory_of(located)
        config = read_json_object(directory / CONFIG)
        fields = Fields({**self.defaults, **config}, directory / CONFIG)
        fields.only(self.variants)
        shape = checked_shape(self.shape(fields), fields.where)
        files = weight_files(directory)
        if "quantization_config" not in config:  # packed weights have sizes of their own
            check_sizes(stored_sizes(files), self.sizes(shape), directory)
        if self.codec is not None and not (directory / "tokenizer.json").is_file():
            codec = self.codec(directory, shape.vocab_size)
        else:
            codec = TextCodec.beside(directory, shape.vocab_size, -1)
        network = self._network(shape, directory, options, device)
        spec = spec_of(self.family, files, asdict(shape), options)
        if options.placed and device.type != "meta":
            device = first_device(network)
        model = self.denoiser(
            network,
            spec,
            source=pinned(located),
            codec=codec,
            device=device,
            eos_id=_end(config, self.ends, shape.vocab_size),
        )
        if device.type != "meta":
            _check_both_ways(model)
        return model

    def _network(
        self, shape: TransformerShape, directory: Path, options: LoadOptions, device: torch.device
    ) -> Any:
        fields = {
            **decoder_config(shape),
            "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
            "is_causal": False,
            **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")),
            **self.network(shape),
        }
        config = getattr(library(), f"{self.architecture}Config")(**fields)
        name = f"{self.architecture}ForCausalLM"
        if device.type == "meta":  # the sizes in the files have been compared with these
            with torch.device("meta"):
                return getattr(library(), name)(config)
        arguments = {"config": config, "key_mapping": dict(self.renaming) or None}
        return load_network(
            name, directory, options, device, f"{self.family} checkpoint", **arguments
        )

    def written(self, shape: TransformerShape, eos_id: int) -> dict[str, Any]:
        """A checkpoint's config.json."""
        kind = {"architectures": list(self.architectures), "model_type": self.model_type}
        return {**kind, **self.variants, **self.config(shape, eos_id)}

    def layout(self, shape: DiTShape) -> Layout:
        """The public layout of a network about as large as `shape` says, with a tokenizer.

        That is the embedded model's with the family's special tokens; with a vocabulary too small
        for it there are ids only.
        """
        content, specials = _tokenizer(self.special)
        n_ids = len(content["model"]["vocab"]) + len(specials) - 1
        texts = shape.vocab_size >= n_ids
        heads = shape.n_heads
        qwen = self.architecture.startswith("Qwen")
        sized = checked_shape(
            TransformerShape(
                vocab_size=shape.vocab_size,
                length=shape.length,
                width=shape.hidden_dim,
                n_blocks=shape.n_blocks,
                n_heads=heads,
                n_kv_heads=heads // 2 if qwen and heads % 2 == 0 else heads,
                mlp_width=3 * shape.hidden_dim,
                norm_eps=1e-6 if qwen else 1e-5,
                rope_theta=1e6 if qwen else 5e5,
                mask_id=specials[self.special[MASK]] if texts else shape.mask_id,
            ),
            Path("config.json"),
        )
        sizes = self.sizes(self.grown(sized))
        files = _files(content, self.special, self.chat_template, one_file=self.codec is None)
        return Layout(
            self.written(sized, specials[END] if texts else 0),
            sizes,
            texts=files if texts else {},
            # A trained model never predicts the mask. The head is the last of the file's matrices.
            silent={list(sizes)[-1]: sized.mask_id},
        )


def first_device(network: Any) -> torch.device:
    """The device of the embedding; its weights may be elsewhere until it runs (offloading)."""
    embedding = network.get_input_embeddings()
    execution = getattr(getattr(embedding, "_hf_hook", None), "execution_device", None)
    if embedding.weight.device.type != "meta" or execution is None:
        return embedding.weight.device
    return torch.device(f"cuda:{execution}" if isinstance(execution, int) else execution)


def _end(config: Mapping[str, Any], release_ends: Sequence[int], vocab_size: int) -> int | None:
    ends = [
        config.get("eos_token_id"),
        *(release_ends and [config.get("pad_token_id"), *release_ends]),
    ]
    valid = [end for end in ends if type(end) is int and 0 <= end < vocab_size]
    return valid[0] if valid else None


def _check_both_ways(model: Denoiser) -> None:
    """A late token must move an early score, else the network was built looking back only.

    Two calls of one shape: without the late tokens the scores would be the same bits.
    """
    step = max(1, model.vocab_size // (2 * _PROBE))
    late = torch.arange(2 * _PROBE, device=model.device) * step % model.vocab_size
    none = torch.zeros(1, dtype=torch.long, device=model.device)
    texts = [torch.cat([none, late[i::2]])[None] for i in (0, 1)]
    first, second = (model.logits(model.hidden(text, None), none, none) for text in texts)
    if not (first - second).abs().max() > 1e-6 * first.abs().max():
        raise UserError(
            "The network cannot see tokens to the right: a late token moves no early score.",
            where=model.source,
            got=f"transformers {library().__version__}",
            expected=f"transformers of at least {MINIMUM}, which heeds is_causal=False, "
            "and an attention kernel that does too",
            fix="pip install -U transformers, or choose another `attn_implementation`",
        )
