"""The networks that are trained, as modules from a batch to a loss per sequence.

Loss inside the module's `forward` is what data parallelism needs: its hooks see one call per
backward pass. The network inside is the one that checkpoints hold.

`plain_attention` attends by plain products, for short sequences in bfloat16 on the CPU. torch's
fused attention for the CPU does not use the processor's bfloat16 units for its gradient. For
sequences whose weights fit in memory plain products are faster: a training step of the embedded
model took 0.53 s instead of 0.69 s (`benchmarks/training_precision.py`). The gradient is written
out because the one that torch.compile makes of the same forward was not finite (torch 2.13, CPU,
bfloat16).

`local_init` is an initialisation for short runs: it skips the steps in which only word frequencies
are learned. The public recipe starts with closed gates and a zero head; a small network then spends
its first minutes at the unigram plateau. Here the gates are open, the output bias is the log
frequency of each token, and in the first blocks some heads attend to the nearest neighbours: the
shift of the norm is a constant vector, query and key answer to it, and the rotary positions turn
that constant into a preference for one offset. Same keys, same functions, another starting point.

`save_network` writes loadable checkpoints: the hub layout for MDLM, LLaDA's own, transformers' for
causal models. `begin_with` begins a run with the weights of a checkpoint instead of new ones.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from strop.checkpoints.config import DiTShape
from strop.checkpoints.layout import Layout, flat_names, write_checkpoint
from strop.checkpoints.transformer import FIELDS, TransformerShape
from strop.denoisers.bd3lm import layout
from strop.denoisers.dit import ROTARY_BASE, Block, DiT
from strop.denoisers.llada import RELEASE, stored_name
from strop.denoisers.load import load_model
from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError
from strop.rng import derive_seed
from strop.training.objective import Noise, causal_surprise, hidden_surprise, loss_of, surprise_of
from strop.training.spec import TrainSpec

# ------------------------------------------------------------------------------------------ model

OFFSETS = ((-1, 1, -2, 2, -3, 3, -4, 4), (-1, 1), (-1, 1))
"""Neighbours that the heads of the first blocks look at; further blocks repeat the last."""
MARK = 4.0
"""Norm of the constant that marks every position."""
SHARPNESS = 20.0
"""Score of the preferred neighbour before the division by the root of the head's size."""
FAST_PAIRS = 16
"""Rotary pairs that tell neighbours apart; slower ones hardly turn in a few positions."""
GAIN = 0.6


@torch.no_grad()
def local_init(network: DiT, frequencies: np.ndarray) -> None:
    """Overwrite a freshly made network's weights, drawing from torch's current generator."""
    shape = network.shape
    counts = np.asarray(frequencies, dtype=np.float64)[: shape.mask_id] + 0.5
    bias = network.output_layer.linear.bias
    bias[: shape.mask_id] = torch.from_numpy(np.log(counts / counts.sum())).to(bias.dtype)
    width = shape.hidden_dim
    network.vocab_embed.embedding.normal_(0, 1 / math.sqrt(width))
    for number, block in enumerate(network.blocks):
        assert isinstance(block, Block)
        _scale(block, width, shape.n_blocks)
        offsets = OFFSETS[min(number, len(OFFSETS) - 1)]
        _look_at_neighbours(block, width, shape.n_heads, offsets)


def _scale(block: Block, width: int, blocks: int) -> None:
    """Normal weights whose branches add up to a moderate stream, with open gates."""
    block.attn_qkv.weight.normal_(0, GAIN / math.sqrt(width))
    block.attn_out.weight.normal_(0, GAIN / math.sqrt(width * 2 * blocks))
    first, last = block.mlp[0], block.mlp[2]
    assert isinstance(first, torch.nn.Linear)
    assert isinstance(last, torch.nn.Linear)
    first.weight.normal_(0, GAIN / math.sqrt(width))
    last.weight.normal_(0, GAIN / math.sqrt(4 * width * 2 * blocks))
    first.bias.zero_()
    last.bias.zero_()
    modulation = block.adaLN_modulation.bias
    modulation[2 * width : 3 * width] = 1.0
    modulation[5 * width :] = 1.0


def _look_at_neighbours(block: Block, width: int, heads: int, offsets: tuple[int, ...]) -> None:
    mark = torch.randn(width)
    unit = mark / mark.norm()
    block.adaLN_modulation.bias[:width] = unit * MARK
    size = width // heads
    turn = ROTARY_BASE ** (-torch.arange(0, size, 2).float() / size)
    pairs = min(FAST_PAIRS, size // 2)
    strength = math.sqrt(SHARPNESS) / MARK
    for head, offset in zip(range(heads), offsets, strict=False):
        key, query = torch.zeros(size), torch.zeros(size)
        key[:pairs] = strength
        # The score of positions i, j is a sum of cos((i - j) turn + phase): a query turned by the
        # offset has its peak at j = i + offset.
        query[:pairs] = strength * torch.cos(offset * turn[:pairs])
        query[size // 2 : size // 2 + pairs] = strength * torch.sin(offset * turn[:pairs])
        for part, answer in ((0, query), (1, key)):
            first = part * width + head * size
            _answer(block.attn_qkv.weight[first : first + size], unit, answer)


def _answer(weight: Tensor, unit: Tensor, answer: Tensor) -> None:
    """Let a matrix map `unit` to `answer` and leave everything orthogonal to it alone."""
    weight -= torch.outer(weight @ unit, unit)
    weight += torch.outer(answer, unit)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        scores = (query @ key.mT).float() * query.shape[-1] ** -0.5
        weights = scores.softmax(-1).to(value.dtype)
        ctx.save_for_backward(query, key, value, weights)
        return weights @ value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key, value, weights = ctx.saved_tensors
        gradient = gradient.to(value.dtype)
        of_weights, exact = (gradient @ value.mT).float(), weights.float()
        centred = of_weights - (of_weights * exact).sum(-1, keepdim=True)
        of_scores = (exact * centred * query.shape[-1] ** -0.5).to(query.dtype)
        return of_scores @ key, of_scores.mT @ query, weights.mT @ gradient


def plain_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention without a mask over [..., L, head_dim]; weights in float32, products as given."""
    return _Attention.apply(query, key, value)  # pyright: ignore[reportReturnType]


class _WithLoss(nn.Module):
    """A network, called with ids and the tensors of a `Noise`."""

    def __init__(self, network: Any, dtype: torch.dtype) -> None:
        super().__init__()
        self.network = network
        self.dtype = dtype

    def autocast(self, ids: Tensor) -> torch.autocast:
        """Products in the network's dtype."""
        return torch.autocast(ids.device.type, self.dtype, enabled=self.dtype != torch.float32)


class Diffusion(_WithLoss):
    """A masked diffusion network (`DiT`) with its loss, in blocks or over the whole row."""

    def __init__(self, network: DiT, dtype: torch.dtype, block: int | None = None) -> None:
        super().__init__(network, dtype)
        self.block = block

    def forward(self, ids: Tensor, *parts: Any) -> Tensor:
        """Loss per token of every sequence, [B], under the noise given by its parts."""
        noise, shape = Noise(*parts), self.network.shape
        assert noise.text is None  # the spec refuses responses for this family
        surprise = hidden_surprise(
            self.network,
            ids,
            noise,
            shape.mask_id,
            time_conditioned=shape.time_conditioning,
            dtype=self.dtype,
            block=self.block,
        )
        return loss_of(surprise, noise)


class Causal(_WithLoss):
    """A causal language model of transformers' own classes with its loss."""

    def forward(
        self,
        ids: Tensor,
        predicted: Tensor | None = None,
        weight: Tensor | None = None,
        *_noise: Tensor | None,
    ) -> Tensor:
        """Loss per predicted token of every sequence, [B]: all of them, or those of a response.

        What fills a row after its response comes too late for a causal model to see.
        """
        with self.autocast(ids):
            logits = self.network(input_ids=ids, use_cache=False).logits
        surprise = causal_surprise(logits, ids)
        if predicted is None or weight is None:
            return surprise.mean(-1)
        return (surprise * predicted[:, 1:]).sum(-1) * weight / ids.shape[1]


class BothWays(_WithLoss):
    """A Llama that looks both ways, LLaDA's network, with the loss of masked diffusion."""

    def __init__(self, network: Any, mask_id: int, dtype: torch.dtype) -> None:
        super().__init__(network, dtype)
        self.mask_id = mask_id

    def forward(self, ids: Tensor, *parts: Any) -> Tensor:
        """Loss per token of every sequence, [B]; what lies outside `text` is not looked at."""
        noise = Noise(*parts)
        width, text = ids.shape[1], noise.text
        if text is not None:
            width, text = text.shape[1], text.long()
        noisy, where = torch.where(noise.hidden, self.mask_id, ids)[:, :width], noise.where()
        with self.autocast(ids):
            states = self.network.model(
                input_ids=noisy, attention_mask=text, use_cache=False
            ).last_hidden_state
            logits = self.network.lm_head(states[where]).float()
        return loss_of(surprise_of(logits, ids[where], self.mask_id), noise)


Trainable = Diffusion | BothWays | Causal
"""A module that can be trained."""


def build(
    spec: TrainSpec,
    vocabulary: int,
    end_of_text: int,
    dtype: torch.dtype,
    frequencies: Callable[[], np.ndarray],
) -> Trainable:
    """A new network for a tokenizer of `vocabulary` tokens, initialised by the spec's seed.

    `frequencies` counts the training tokens; it is called only where the initialisation asks.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(spec.seed, "init"))
        if spec.model.family == "ar":
            ends = {"bos_token_id": end_of_text, "eos_token_id": end_of_text}
            return Causal(_llama(spec, vocabulary, tie_word_embeddings=True, **ends), dtype)
        if spec.model.family == "llada":
            ways = {"is_causal": False, "bos_token_id": None, "eos_token_id": None}
            network = _llama(spec, vocabulary + 1, tie_word_embeddings=False, **ways)
            return BothWays(network, vocabulary, dtype)
        network = DiT(shape_of(spec, vocabulary))
        if spec.model.init == "local":
            local_init(network, frequencies())
        return Diffusion(network, dtype, spec.model.block_size)


def attend_plainly(module: Trainable) -> None:
    """Let the blocks of a diffusion network attend by plain products; transformers' own stay."""
    if isinstance(module, Diffusion):
        for block in module.network.blocks:
            block.mix = plain_attention


def compile_blocks(module: Trainable, device: torch.device) -> None:
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


def _llama(spec: TrainSpec, classes: int, **more: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    model = spec.model
    config = LlamaConfig(
        vocab_size=classes,
        hidden_size=model.hidden_dim,
        # Three matrices of this width cost what two of four times the width do.
        intermediate_size=-(-8 * model.hidden_dim // 3 // 32) * 32,
        num_hidden_layers=model.n_blocks,
        num_attention_heads=model.n_heads,
        max_position_embeddings=spec.data.length,
        attention_dropout=model.dropout,
        **more,
    )
    return LlamaForCausalLM(config)


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
        network_config = module.network.config
        fields = {
            field: getattr(network_config, foreign_name) for field, foreign_name in FIELDS.items()
        }
        theta = float(network_config.rope_parameters["rope_theta"])
        shape = TransformerShape(**fields, rope_theta=theta, mask_id=module.mask_id)
        config = RELEASE.written(shape, end_of_text)
        tensors = {stored_name(key): value for key, value in tensors.items()}
    else:
        # What `AutoModelForCausalLM` reads: it says float32 whatever is stored, so that the library
        # computes in it.
        config = module.network.config.to_dict()
        config |= {"architectures": [type(module.network).__name__], "dtype": "float32"}
        config.pop("_name_or_path", None)  # a local path does not belong into a checkpoint
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
    source_shape, run_shape = _unseen(network), _unseen(module.network)
    if source_shape != run_shape:
        raise _unfit("shape", source, _facts_text(source_shape), _facts_text(run_shape))
    weights = network.state_dict()
    run_sizes = {name: tuple(value.shape) for name, value in module.network.state_dict().items()}
    for name in sorted({*run_sizes, *weights}):
        stored_size = tuple(weights[name].shape) if name in weights else None
        if run_sizes.get(name) != stored_size:
            raise _unfit(f"shape ({name})", source, stored_size, run_sizes.get(name))
    module.network.load_state_dict(weights)
    return model.spec.sha256


def _unseen(network: Any) -> dict[str, Any]:
    if isinstance(network, DiT):
        shape = network.shape
        names = ("n_heads", "time_conditioning", "mask_id")
        return {name: getattr(shape, name) for name in names}
    names = ("model_type", "hidden_act", "num_attention_heads", "num_key_value_heads")
    return {name: getattr(network.config, name, None) for name in names}


def _facts_text(facts: dict[str, Any]) -> str:
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
