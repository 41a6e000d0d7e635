"""DiDi-Instruct's discriminator: the transformer's trunk with a score per position on top.

Its two output layers are kept in spectral norm: the stored matrix W is divided by u'Wv, where u and
v are the stored estimates of its first singular vectors.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from strop.checkpoints.config import DiTShape, expected_tensors
from strop.denoisers.dit import Trunk


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


def discriminator_tensors(shape: DiTShape) -> dict[str, tuple[int, ...]]:
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
