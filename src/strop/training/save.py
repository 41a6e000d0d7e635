"""Loadable checkpoints: the hub layout for MDLM, LLaDA's own, transformers' for causal models.

Also the other way: beginning a run with the weights of one instead of new ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from strop.checkpoints.layout import Layout, flat_names, write_checkpoint
from strop.checkpoints.transformer import TransformerShape
from strop.denoisers.bd3lm import layout
from strop.denoisers.dit import DiT
from strop.denoisers.llada import RELEASE, stored_name
from strop.denoisers.load import load_model
from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError
from strop.training.model import BothWays, Diffusion, Trainable


def save_network(
    directory: Path,
    module: Trainable,
    tensors: Mapping[str, Tensor],
    tokenizer: bytes,
    end_of_text: int,
    *,
    dtype: torch.dtype = torch.float32,
) -> None:
    """The weights `tensors` of a module's network in the layout of its family."""
    prefix, texts = "", {"tokenizer.json": tokenizer.decode()}
    if isinstance(module, Diffusion):
        shape, prefix = module.network.shape, "backbone."
        config = flat_names(shape) if module.block is None else layout(shape, module.block).config
    elif isinstance(module, BothWays):
        config = RELEASE.written(_shape(module), end_of_text)
        tensors = {stored_name(key): value for key, value in tensors.items()}
    else:
        config = _causal_config(module.network.config)
        tensors = {k: v for k, v in tensors.items() if k != "lm_head.weight"}  # it is the embedding
        end = "<|endoftext|>"
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": module.network.config.max_position_embeddings,
            "bos_token": end,
            "eos_token": end,
            "clean_up_tokenization_spaces": False,
        }
        texts["tokenizer_config.json"] = json.dumps(settings, indent=2) + "\n"
    stored = {key: value.detach().to("cpu", dtype) for key, value in tensors.items()}
    write_checkpoint(directory, Layout(config, {}, prefix, texts=texts), stored)


def _causal_config(config: Any) -> dict[str, Any]:
    """What `AutoModelForCausalLM` reads.

    It says float32 whatever is stored, so that the library computes in it.
    """
    from transformers import LlamaForCausalLM

    whole = {**config.to_dict(), "architectures": [LlamaForCausalLM.__name__], "dtype": "float32"}
    whole.pop("_name_or_path", None)  # where it was read from is nobody's business
    return whole


def _shape(module: BothWays) -> TransformerShape:
    config = module.network.config
    return TransformerShape(
        vocab_size=config.vocab_size,
        length=config.max_position_embeddings,
        width=config.hidden_size,
        n_blocks=config.num_hidden_layers,
        n_heads=config.num_attention_heads,
        n_kv_heads=config.num_key_value_heads,
        mlp_width=config.intermediate_size,
        norm_eps=config.rms_norm_eps,
        rope_theta=float(config.rope_parameters["rope_theta"]),
        mask_id=module.mask_id,
    )


def begin_with(module: Trainable, source: str, codec: TextCodec) -> str:
    """Fill a new module with the weights of `source`; returns their SHA-256.

    The checkpoint must be of the run's family, shape and tokenizer. Its optimiser is not taken
    over: checkpoints do not have it, and a run after one whose rate has fallen wants a new one.
    """
    model = load_model(source, device="cpu", dtype="float32")
    families = {Diffusion: ("mdlm",), BothWays: ("llada",)}.get(type(module), ("ar",))
    if isinstance(module, Diffusion) and module.block is not None:
        families = ("bd3lm", "mdlm")  # one network: blocks are learned from whole rows, or others
    if model.spec.family not in families:
        raise _unfit("family", source, model.spec.family, " or ".join(families))
    if model.codec is None or model.codec.to_json() != codec.to_json():
        raise _unfit(
            "tokenizer",
            source,
            "none" if model.codec is None else f"one of {model.codec.vocab_size:,} tokens",
            f"the corpus's own, of {codec.vocab_size:,} tokens",
            fix="set data.tokenizer to the checkpoint's directory, or start another run without it",
        )
    network: Any = model.network  # pyright: ignore[reportAttributeAccessIssue]
    # What sizes of weights do not show: a network with other heads would take them and be wrong.
    theirs, mine = _unseen(network), _unseen(module.network)
    if theirs != mine:
        raise _unfit("shape", source, _told(theirs), _told(mine))
    weights = network.state_dict()
    ours = {name: tuple(value.shape) for name, value in module.network.state_dict().items()}
    for name in sorted({*ours, *weights}):
        theirs = tuple(weights[name].shape) if name in weights else None
        if ours.get(name) != theirs:
            raise _unfit(f"shape ({name})", source, theirs, ours.get(name))
    module.network.load_state_dict(weights)
    return model.spec.sha256


def _unseen(network: Any) -> dict[str, Any]:
    if isinstance(network, DiT):
        shape = network.shape
        names = ("n_heads", "time_conditioning", "mask_id")
        return {name: getattr(shape, name) for name in names}
    names = ("model_type", "hidden_act", "num_attention_heads", "num_key_value_heads")
    return {name: getattr(network.config, name, None) for name in names}


def _told(facts: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in facts.items())


def _unfit(
    what: str,
    source: str,
    got: object,
    expected: object,
    fix: str = "make the configuration's model fit the checkpoint, or choose another",
) -> UserError:
    return UserError(
        f"The run cannot begin with this checkpoint: its {what} is not the run's.",
        where=f"TrainSpec.start: {source}",
        got="nothing" if got is None else got,
        expected="nothing" if expected is None else expected,
        fix=fix,
    )
