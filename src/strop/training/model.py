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

The loss is a form of the negative ELBO of masked diffusion, or the causal loss:

`public`, the continuous-time form as the public code estimates it: one noise level t per sequence,
stratified over the batch on [1e-3, 1]; every token is masked with probability (1 - 1e-3) t; a
masked token costs -log p(token | visible) / t, others nothing. It estimates the bound clipped to
those times, not the whole of it.

`any-order`: a mask count k uniform on 1..L, stratified, and a uniform set of that size; a masked
token costs -log p(token | visible) L / k, so that a sequence costs, per token, the mean over the
masked ones. It is unbiased for the bound itself: the area under the loss profile.

`llada`, as LLaDA is trained: t uniform on [1e-3, 1] (stratified here), every token masked with
probability t itself; a masked token costs -log p(token | visible) / t.

In blocks (BD3-LM), each form is drawn for every block by itself (`block_noise`), and a block is
predicted behind the clean blocks before it. One pass over twice as many tokens, noisy and clean
side by side, does that for all blocks of a row. One block as long as the row is masked diffusion.

In rows of prompt and response, each form is drawn over the response alone and put where it lies
(`placed`): nothing of a prompt is ever masked, and the loss is per token of the response.

Visible tokens cost nothing, so the head is asked at masked positions only; the numbers are those
of the dense formula.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strop.checkpoints.config import DiTShape
from strop.checkpoints.layout import Layout, flat_names, write_checkpoint
from strop.checkpoints.transformer import FIELDS, TransformerShape
from strop.denoisers.base import NEG_INFINITY
from strop.denoisers.bd3lm import layout, training_sight
from strop.denoisers.device import upload
from strop.denoisers.dit import ROTARY_BASE, Block, DiT
from strop.denoisers.llada import RELEASE, stored_name
from strop.denoisers.load import load_model
from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError
from strop.rng import derive_seed
from strop.samplers.machinery.start import NOISE_EPSILON, sigma_of
from strop.training.spec import TrainSpec

# -------------------------------------------------------------------------------------- objective

TIME_EPSILON = 1e-3
"""The smallest time that training sees."""


def stratified_times(batch: int, generator: torch.Generator | None = None) -> Tensor:
    """One time in each of `batch` equal strata of [1e-3, 1]."""
    offsets = torch.rand(batch, generator=generator)
    u = (offsets / batch + torch.arange(batch) / batch) % 1
    return (1 - TIME_EPSILON) * u + TIME_EPSILON


@dataclass(frozen=True)
class Noise:
    """Which tokens of a batch are hidden, and what a hidden one counts."""

    hidden: Tensor
    """[B, L], true where masked."""
    weight: Tensor
    """[B], or [B, L] in blocks: the factor of a masked token's surprise in the loss per token."""
    sigma: Tensor | None = None
    """[B], the noise level; forms without one have none."""
    text: Tensor | None = None
    """[B, up to L], true up to the response's end, in rows of prompt and response: the rest is
    filling that no token may look at. None: every row is text to its end."""
    cells: Tensor | None = None
    """[2, n], row and column of every masked token, in order; None: not computed yet."""

    def part(self, rows: slice | Tensor) -> Noise:
        """The noise of some of the sequences."""
        hidden, weight, sigma, text, _ = self.tensors()
        parts = (None if part is None else part[rows] for part in (hidden, weight, sigma, text))
        return Noise(*parts)  # pyright: ignore[reportArgumentType]

    def to(self, device: torch.device) -> Noise:
        """The same elsewhere, from the host, which made it and goes on while it is copied.

        Where the masked tokens lie, and how far the longest text goes, is found out here: a device
        that was asked for it would be waited for.
        """
        text = self.text
        if text is not None:
            text = text[:, : int(text.sum(1).max())]
        cells = torch.stack(self.hidden.nonzero(as_tuple=True))
        return Noise(
            *(
                None if tensor is None else upload(tensor, device)
                for tensor in (self.hidden, self.weight, self.sigma, text, cells)  # pyright: ignore[reportArgumentType]
            )
        )

    def tensors(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """The fields, in order: what a module's `forward` takes after the ids."""
        return self.hidden, self.weight, self.sigma, self.text, self.cells

    def where(self) -> tuple[Tensor, Tensor]:
        """Rows and columns of the masked tokens; waits for a device, unless `to` has them."""
        cells = self.hidden.nonzero(as_tuple=True) if self.cells is None else self.cells
        return cells[0], cells[1]


def public_noise(batch: int, length: int, generator: torch.Generator | None = None) -> Noise:
    """The public form: stratified times, independent masking, weight 1/t."""
    t = stratified_times(batch, generator)
    sigma = sigma_of(t)
    move = 1 - (-sigma).exp()
    hidden = torch.rand(batch, length, generator=generator) < move[:, None]
    rate = (1 - NOISE_EPSILON) / (1 - (1 - NOISE_EPSILON) * t)  # d sigma / dt
    return Noise(hidden, rate / torch.expm1(sigma), sigma)


def any_order_noise(batch: int, length: int, generator: torch.Generator | None = None) -> Noise:
    """The any-order form: a stratified uniform mask count k in 1..L, weight L/k.

    One offset for the whole batch keeps every sequence's k uniform; a random shift of the strata
    keeps which sequence gets which stratum from mattering.
    """
    offset = torch.rand(1, generator=generator, dtype=torch.float64)
    u = (torch.arange(batch, dtype=torch.float64) / batch + offset) % 1
    count = 1 + (u * length).long().clamp(max=length - 1)
    order = torch.rand(batch, length, generator=generator).argsort(1).argsort(1)
    return Noise(order < count[:, None], length / count.float())


def llada_noise(batch: int, length: int, generator: torch.Generator | None = None) -> Noise:
    """LLaDA's form: stratified times, masked with probability t, weight 1/t."""
    t = stratified_times(batch, generator)
    return Noise(torch.rand(batch, length, generator=generator) < t[:, None], 1 / t)


def placed(noise: Noise, prompts: Tensor, length: int) -> Noise:
    """Noise over responses alone, moved into rows of `length` behind prompts of these lengths.

    The weights are scaled so that a loss per token of the row is one per token of the response.
    """
    response = noise.hidden.shape[1]
    within = torch.arange(length) - prompts[:, None]
    inside = (within >= 0) & (within < response)
    hidden = noise.hidden.gather(1, within.clamp(0, response - 1)) & inside
    return Noise(hidden, noise.weight * (length / response), noise.sigma, within < response)


def block_noise(
    form: str, batch: int, length: int, block: int, generator: torch.Generator | None = None
) -> Noise:
    """A form drawn for every block of `batch` rows by itself, the row's first token given.

    The first token is where every text begins; nothing predicts it. A block that is cut short,
    there or at the row's end, keeps the form's law: a part of a uniform order is uniform. The loss
    is one per predicted token.
    """
    blocks = -(-length // block)
    noise = NOISES[form](batch * blocks, block, generator)
    hidden = noise.hidden.view(batch, -1)[:, :length].clone()
    hidden[:, 0] = False
    weight = noise.weight.view(batch, -1).repeat_interleave(block, 1)[:, :length]
    return Noise(hidden, weight * (length / (length - 1)))


NOISES: dict[str, Callable[[int, int, torch.Generator | None], Noise]] = {
    "public": public_noise,
    "any-order": any_order_noise,
    "llada": llada_noise,
}
"""The forms by name."""


def hidden_surprise(
    network: DiT,
    ids: Tensor,
    noise: Noise,
    mask_id: int,
    *,
    time_conditioned: bool = False,
    dtype: torch.dtype = torch.float32,
    block: int | None = None,
) -> Tensor:
    """-log p(token | visible) at the masked tokens only, in the order of `ids[noise.hidden]`.

    With `block`, visible are the rest of a token's own block and the clean blocks before it.
    """
    noisy = torch.where(noise.hidden, mask_id, ids)
    # Without time conditioning the condition is one constant vector: one row, broadcast.
    sigma = noise.sigma if time_conditioned else torch.zeros(1, device=ids.device)
    assert sigma is not None  # the spec refuses the combination
    if block is None or block >= ids.shape[1]:
        features = network.features(noisy, sigma, dtype)
    else:
        sight = training_sight(ids.shape[1], block, ids.device)
        doubled = network.features(torch.cat([noisy, ids], 1), sigma, dtype, sight)
        features = doubled[:, : ids.shape[1]]
    where = noise.where()
    logits = network.head(features[where], dtype).float()
    return surprise_of(logits, ids[where], mask_id)


def surprise_of(logits: Tensor, tokens: Tensor, mask_id: int) -> Tensor:
    """-log p(token) of each row of scores [n, V], the mask ruled out; the scores are changed."""
    with torch.no_grad():  # a constant: its gradient is the identity, which needs no graph
        logits[:, mask_id] += NEG_INFINITY  # the mask is no clean token (SUBS)
    return F.cross_entropy(logits, tokens, reduction="none")


def loss_of(surprise: Tensor, noise: Noise) -> Tensor:
    """Loss per token of every sequence, [B], from the masked tokens' surprise."""
    batch, length = noise.hidden.shape
    total = torch.zeros(batch, dtype=surprise.dtype, device=surprise.device)
    row, column = noise.where()
    if noise.weight.dim() == 2:
        return total.index_add(0, row, surprise * noise.weight[row, column]) / length
    return total.index_add(0, row, surprise) * noise.weight / length


def causal_surprise(logits: Tensor, ids: Tensor) -> Tensor:
    """-log p(token | tokens before it), [B, L - 1]; the first token has no prediction."""
    flat = logits[:, :-1].float().flatten(0, 1)
    return F.cross_entropy(flat, ids[:, 1:].flatten(), reduction="none").view(len(ids), -1)


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
