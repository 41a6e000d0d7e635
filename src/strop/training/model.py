"""The networks that are trained, as modules from a batch to a loss per sequence.

Loss inside the module's `forward` is what data parallelism needs: its hooks see one call per
backward pass. The network inside is the one that checkpoints hold.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from strop.checkpoints.config import DiTShape
from strop.denoisers.dit import Block, DiT
from strop.errors import UserError
from strop.rng import derive_seed
from strop.training.attention import plain_attention
from strop.training.init import local_init
from strop.training.objective import Noise, causal_surprise, hidden_surprise, loss_of
from strop.training.spec import TrainSpec

__all__ = [
    "Causal",
    "Diffusion",
    "attend_plainly",
    "build",
    "check_compiler",
    "compile_blocks",
    "shape_of",
]


class Diffusion(nn.Module):
    """A masked diffusion network with its loss."""

    def __init__(self, network: DiT, dtype: torch.dtype) -> None:
        super().__init__()
        self.network = network
        self.dtype = dtype

    def forward(
        self, ids: Tensor, hidden: Tensor, weight: Tensor, sigma: Tensor | None = None
    ) -> Tensor:
        """Loss per token of every sequence, [B], under the noise given by its parts."""
        noise = Noise(hidden, weight, sigma)
        shape = self.network.shape
        surprise = hidden_surprise(
            self.network,
            ids,
            noise,
            shape.mask_id,
            time_conditioned=shape.time_conditioning,
            dtype=self.dtype,
        )
        return loss_of(surprise, noise)


class Causal(nn.Module):
    """A causal language model of transformers' own classes with its loss."""

    def __init__(self, network: Any, dtype: torch.dtype) -> None:
        super().__init__()
        self.network = network
        self.dtype = dtype

    def forward(self, ids: Tensor, *_noise: Tensor | None) -> Tensor:
        """Loss per predicted token of every sequence, [B]."""
        with torch.autocast(ids.device.type, self.dtype, enabled=self.dtype != torch.float32):
            logits = self.network(input_ids=ids, use_cache=False).logits
        return causal_surprise(logits, ids).mean(-1)


def build(
    spec: TrainSpec,
    vocabulary: int,
    end_of_text: int,
    dtype: torch.dtype,
    frequencies: Callable[[], np.ndarray],
) -> Diffusion | Causal:
    """A new network for a tokenizer of `vocabulary` tokens, initialised by the spec's seed.

    `frequencies` counts the training tokens; it is called only where the initialisation asks.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(spec.seed, "init"))
        if spec.model.family == "ar":
            return Causal(_causal(spec, vocabulary, end_of_text), dtype)
        network = DiT(shape_of(spec, vocabulary))
        if spec.model.init == "local":
            local_init(network, frequencies())
        return Diffusion(network, dtype)


def attend_plainly(module: Diffusion | Causal) -> None:
    """Let the blocks of a diffusion network attend by plain products; transformers' own stay."""
    if isinstance(module, Diffusion):
        for block in module.network.blocks:
            assert isinstance(block, Block)
            block.mix = plain_attention


def compile_blocks(module: Diffusion | Causal, device: torch.device) -> None:
    """Let torch compile what runs before the head: its shapes are the same in every step.

    Only this object's call is replaced: names of weights, and so checkpoints, stay as they are.
    """
    check_compiler(device)
    if isinstance(module, Diffusion):
        module.network.features = torch.compile(module.network.features, dynamic=False)
    else:
        module.network.model.forward = torch.compile(module.network.model.forward, dynamic=False)


def check_compiler(device: torch.device) -> None:
    """Refuse to compile for a CPU without the means."""
    compilers = ("c++", "g++", "clang++")
    if device.type == "cpu" and not any(shutil.which(name) for name in compilers):
        raise UserError(
            "Compiling for the CPU needs a C++ compiler.",
            where="TrainSpec.compile",
            got="none of " + ", ".join(compilers),
            fix="install one, or set compile: false (slower, the same recipe)",
        )


def shape_of(spec: TrainSpec, vocabulary: int) -> DiTShape:
    """The diffusion network's shape: the mask follows the tokenizer's last token."""
    model = spec.model
    return DiTShape(
        vocab_size=vocabulary + 1,
        length=spec.data.length,
        hidden_dim=model.hidden_dim,
        cond_dim=model.cond_dim,
        n_blocks=model.n_blocks,
        n_heads=model.n_heads,
        dropout=model.dropout,
        time_conditioning=model.time_conditioning,
        mask_id=vocabulary,
    )


def _causal(spec: TrainSpec, vocabulary: int, end_of_text: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    model = spec.model
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=model.hidden_dim,
        # Three matrices of this width cost what two of four times the width do.
        intermediate_size=-(-8 * model.hidden_dim // 3 // 32) * 32,
        num_hidden_layers=model.n_blocks,
        num_attention_heads=model.n_heads,
        max_position_embeddings=spec.data.length,
        attention_dropout=model.dropout,
        bos_token_id=end_of_text,
        eos_token_id=end_of_text,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)
