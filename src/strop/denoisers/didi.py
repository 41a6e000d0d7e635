"""DiDi-Instruct: a distilled student and the discriminator that guides it.

The student predicts clean tokens at masks like MDLM, with two differences that the public sampler
makes: it is given the true noise level, and the mask keeps its place in the softmax. Training files
also hold the network that was trained (`base`), of which the student is the average; the public
code finishes with it.

The discriminator is the transformer's trunk with a score per position on top. Its two output layers
are kept in spectral norm: the stored matrix W is divided by u'Wv, where u and v are the stored
estimates of its first singular vectors.
"""

from __future__ import annotations

from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from strop.checkpoints.checkpoint import Checkpoint
from strop.checkpoints.config import (
    BASE,
    DISCRIMINATOR,
    DiTShape,
    Sizes,
    check_tensors,
    expected_tensors,
)
from strop.checkpoints.hub import DISCRIMINATOR as DISCRIMINATOR_FILE
from strop.checkpoints.layout import Layout, flat_names
from strop.denoisers.dit import DiT, Trunk
from strop.denoisers.network import MDLM, NetworkDenoiser, cast_products, described, filled
from strop.errors import UserError
from strop.spec.generator import CheckpointSpec


class SpectralLinear(nn.Module):
    """A linear layer whose matrix is divided by its estimated largest singular value."""

    weight_u: Tensor
    weight_v: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.weight_orig = nn.Parameter(torch.empty(outputs, inputs))
        nn.init.kaiming_uniform_(self.weight_orig, a=5**0.5)
        self.register_buffer("weight_u", F.normalize(torch.ones(outputs), dim=0))
        self.register_buffer("weight_v", F.normalize(torch.ones(inputs), dim=0))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the normalised matrix."""
        scale = torch.dot(self.weight_u, torch.mv(self.weight_orig, self.weight_v))
        return F.linear(x, self.weight_orig / scale, self.bias)


class ScoreHead(nn.Module):
    """The output layer: one number per position."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.main = nn.Sequential(SpectralLinear(width, width), nn.SiLU(), SpectralLinear(width, 1))


class Discriminator(Trunk):
    """How much a position looks like the teacher's rather than the student's."""

    def __init__(self, shape: DiTShape) -> None:
        super().__init__(shape)
        self.output_layer = ScoreHead(shape.hidden_dim)

    def scores(
        self, embedded: Tensor, sigma: Tensor, dtype: torch.dtype, *, frugal: bool = False
    ) -> Tensor:
        """Scores [B, L] of embedded sequences [B, L, D] at noise levels [B].

        `frugal` computes the blocks again in the backward pass instead of remembering them.
        """
        x, condition = embedded, F.silu(self.sigma_map(sigma))
        with torch.autocast(x.device.type, dtype=dtype, enabled=dtype != torch.float32):
            for block in self.blocks:
                if frugal:
                    x = checkpoint(block, x, condition, self.rotary, use_reentrant=False)
                else:
                    x = block(x, condition, self.rotary)
            return self.output_layer.main(x)[..., 0].float()

    def reward(
        self, ids: Tensor, sigma: Tensor, dtype: torch.dtype, counted: Tensor | None = None
    ) -> Tensor:
        """The sum of the scores of every position, [B]; or of those that are `counted` [B, L]."""
        with torch.no_grad():
            scores = self.scores(self.vocab_embed(ids), sigma, dtype)
            return (scores if counted is None else scores * counted).sum(-1)

    def gradient(
        self, embedded: Tensor, masked: Tensor, sigma: Tensor, dtype: torch.dtype
    ) -> Tensor:
        """d(sum of the scores at masked positions) / d(embedding): [B, L, D]."""
        with torch.enable_grad():
            leaf = embedded.detach().requires_grad_()
            total = (self.scores(leaf, sigma, dtype, frugal=True) * masked).sum()
            (slope,) = torch.autograd.grad(total, leaf)
        return slope


def discriminator_tensors(shape: DiTShape) -> Sizes:
    """Every tensor of the discriminator and its shape, buffers of the spectral norm included."""
    D = shape.hidden_dim
    sizes = {k: v for k, v in expected_tensors(shape).items() if not k.startswith("output_layer.")}
    for layer, outputs in ((0, D), (2, 1)):
        prefix = f"output_layer.main.{layer}."
        sizes[prefix + "bias"] = (outputs,)
        sizes[prefix + "weight_orig"] = (outputs, D)
        sizes[prefix + "weight_u"] = (outputs,)
        sizes[prefix + "weight_v"] = (D,)
    return sizes


class DiDi(NetworkDenoiser):
    """A DiDi-Instruct checkpoint as a `Denoiser`; hidden states and logits are the student's."""

    def __init__(
        self,
        network: DiT,
        spec: CheckpointSpec,
        *,
        source: str,
        discriminator: Discriminator | None = None,
        base: DiT | None = None,
        device: torch.device | str = "cpu",
        **more: Any,
    ) -> None:
        super().__init__(network, spec, source=source, device=device, **more)
        self.time_conditioned = True
        self.base = None if base is None else MDLM(base, spec, source=source, device=device)
        """The trained network behind the averaged student, where the file holds it."""
        self._discriminator = discriminator
        if discriminator is not None:
            discriminator.to(device).eval().requires_grad_(False)
            cast_products(discriminator, self.dtype)

    @classmethod
    def of_checkpoint(
        cls, checkpoint: Checkpoint, shape: DiTShape, spec: CheckpointSpec, device: torch.device
    ) -> Self:
        """The student with the networks beside it, checked like it."""
        network = filled(DiT, shape, checkpoint.tensors, device)
        others = _others(checkpoint, shape, device)
        return cls(network, spec, device=device, **others, **described(checkpoint, shape))

    @property
    def discriminator(self) -> Discriminator:
        """The reward; its absence is the user's error, told when it is needed."""
        if self._discriminator is None:
            raise UserError(
                "The checkpoint has no discriminator, which reward-guided sampling needs.",
                where=self.source,
                expected="discriminator.safetensors beside model.safetensors, or a training file",
                fix="add the file, or sample without the reward: `sampler=didi-ancestral`",
            )
        return self._discriminator


def _others(checkpoint: Checkpoint, shape: DiTShape, device: torch.device) -> dict[str, Any]:
    """The networks beside the student."""
    path, networks = checkpoint.path, {}
    if BASE in checkpoint.modules:
        tensors = checkpoint.modules[BASE]
        check_tensors(tensors, expected_tensors(shape), path, shape)
        networks["base"] = filled(DiT, shape, tensors, device)
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
        networks["discriminator"] = filled(Discriminator, shape, tensors, device)
    return networks


def layout(shape: DiTShape) -> Layout:
    """The student as a flat file, its discriminator in another."""
    beside = {DISCRIMINATOR_FILE: discriminator_tensors(shape)}
    return Layout(flat_names(shape), expected_tensors(shape), beside=beside)
