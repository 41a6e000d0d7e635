"""The diffusion transformer that MDLM, SEDD, DUO and DiDi-Instruct share.

Pre-norm blocks; every normalisation is shifted, scaled and gated by an embedding of the noise level
(adaLN); rotary positions; attention over the whole sequence. Parameter names and their order are
the public ones, so that files load without renaming and EMA lists map by position.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strop.denoisers.config import DiTShape

__all__ = ["DiT"]

SIGMA_FEATURES = 256
ROTARY_BASE = 10_000.0


class LayerNorm(nn.Module):
    """Normalisation in float32, with a weight and without a bias."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last axis."""
        with torch.autocast(x.device.type, enabled=False):
            normed = F.layer_norm(x.float(), x.shape[-1:])
        return normed * self.weight


class TokenEmbedding(nn.Module):
    """One row per token; no positions, no scaling."""

    def __init__(self, vocab_size: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(vocab_size, width))
        nn.init.kaiming_uniform_(self.embedding, a=math.sqrt(5))

    def forward(self, ids: Tensor) -> Tensor:
        """Look the tokens up."""
        return self.embedding[ids]


class SigmaEmbedding(nn.Module):
    """The noise level as a vector: 128 cosines, 128 sines, a small network."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(SIGMA_FEATURES, width), nn.SiLU(), nn.Linear(width, width)
        )

    def forward(self, sigma: Tensor) -> Tensor:
        """Embed noise levels [B] as [B, C]."""
        half = SIGMA_FEATURES // 2
        steps = torch.arange(half, dtype=torch.float32, device=sigma.device)
        angles = sigma[:, None].float() * torch.exp(-math.log(10_000) * steps / half)
        return self.mlp(torch.cat([angles.cos(), angles.sin()], dim=-1))


class Rotary:
    """Cosines and sines per position, computed once per length and device."""

    def __init__(self, head_dim: int) -> None:
        self.head_dim = head_dim
        self._tables: dict[tuple[int, torch.device, torch.dtype], tuple[Tensor, Tensor]] = {}

    def tables(self, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Two tables [L, head_dim / 2] in the dtype of `like`."""
        key = (length, like.device, like.dtype)
        if key not in self._tables:
            pairs = torch.arange(0, self.head_dim, 2, dtype=torch.float32, device=like.device)
            frequency = 1.0 / (ROTARY_BASE ** (pairs / self.head_dim))
            position = torch.arange(length, dtype=torch.float32, device=like.device)
            angles = torch.outer(position, frequency)
            self._tables[key] = (angles.cos().to(like.dtype), angles.sin().to(like.dtype))
        return self._tables[key]

    def __call__(self, x: Tensor) -> Tensor:
        """Rotate queries or keys [B, H, L, head_dim]; dimension j pairs with j + head_dim / 2."""
        cos, sin = self.tables(x.shape[-2], x)
        low, high = x.chunk(2, dim=-1)
        return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a modulated norm and a gate."""

    def __init__(self, shape: DiTShape) -> None:
        super().__init__()
        width = shape.hidden_dim
        self.n_heads, self.dropout = shape.n_heads, shape.dropout
        self.norm1 = LayerNorm(width)
        self.attn_qkv = nn.Linear(width, 3 * width, bias=False)
        self.attn_out = nn.Linear(width, width, bias=False)
        self.norm2 = LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )
        self.adaLN_modulation = zero_linear(shape.cond_dim, 6 * width)

    def forward(self, x: Tensor, condition: Tensor, rotary: Rotary) -> Tensor:
        """One block on x [B, L, D] under the condition [B, C]."""
        modulation = self.adaLN_modulation(condition)[:, None].chunk(6, dim=-1)
        shift1, scale1, gate1, shift2, scale2, gate2 = modulation
        attended = self.attend(modulate(self.norm1(x), shift1, scale1), rotary)
        x = x + gate1 * F.dropout(attended, self.dropout, self.training)
        fed = self.mlp(modulate(self.norm2(x), shift2, scale2))
        return x + gate2 * F.dropout(fed, self.dropout, self.training)

    def attend(self, x: Tensor, rotary: Rotary) -> Tensor:
        """Bidirectional attention, no mask."""
        batch, length, width = x.shape
        qkv = self.attn_qkv(x).view(batch, length, 3, self.n_heads, width // self.n_heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # each [B, H, L, head_dim]
        mixed = F.scaled_dot_product_attention(rotary(query), rotary(key), value)
        return self.attn_out(mixed.transpose(1, 2).reshape(batch, length, width))


class OutputLayer(nn.Module):
    """The final modulated norm and the head over the vocabulary."""

    def __init__(self, shape: DiTShape) -> None:
        super().__init__()
        self.norm_final = LayerNorm(shape.hidden_dim)
        self.linear = zero_linear(shape.hidden_dim, shape.vocab_size)
        self.adaLN_modulation = zero_linear(shape.cond_dim, 2 * shape.hidden_dim)

    def features(self, x: Tensor, condition: Tensor) -> Tensor:
        """Everything but the head: [B, L, D]."""
        shift, scale = self.adaLN_modulation(condition)[:, None].chunk(2, dim=-1)
        return modulate(self.norm_final(x), shift, scale)


class DiT(nn.Module):
    """Backbone and head, apart: `features` sees the sequence, `head` any rows of its result."""

    def __init__(self, shape: DiTShape) -> None:
        super().__init__()
        self.shape = shape
        self.vocab_embed = TokenEmbedding(shape.vocab_size, shape.hidden_dim)
        self.sigma_map = SigmaEmbedding(shape.cond_dim)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.n_blocks))
        self.output_layer = OutputLayer(shape)
        self.rotary = Rotary(shape.hidden_dim // shape.n_heads)

    def features(self, ids: Tensor, sigma: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """States [B, L, D] before the head; `dtype` is that of the matrix products."""
        x = self.vocab_embed(ids)
        condition = F.silu(self.sigma_map(sigma))
        with torch.autocast(ids.device.type, dtype=dtype, enabled=dtype != torch.float32):
            for block in self.blocks:
                x = block(x, condition, self.rotary)
            return self.output_layer.features(x, condition)

    def head(self, features: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Raw scores over the vocabulary for any rows [..., D] of `features`."""
        with torch.autocast(features.device.type, dtype=dtype, enabled=dtype != torch.float32):
            return self.output_layer.linear(features)


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """The affine step of adaLN."""
    return x * (1 + scale) + shift


def zero_linear(inputs: int, outputs: int) -> nn.Linear:
    """A layer that starts as the zero map, as the recipe has its modulations and its head."""
    layer = nn.Linear(inputs, outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
