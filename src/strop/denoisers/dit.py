"""The diffusion transformer that MDLM, SEDD, DUO and DiDi-Instruct share.

Pre-norm blocks; every normalisation is shifted, scaled and gated by an embedding of the noise level
(adaLN); rotary positions; attention over the whole sequence. Parameter names and their order are
the public ones, so that files load without renaming and EMA lists map by position.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from strop.checkpoints.config import DiTShape
from strop.denoisers.device import on_host, upload

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
    """Cosines and sines per position: one table per device and dtype, of the longest length."""

    def __init__(self, head_dim: int) -> None:
        self.head_dim = head_dim
        self._tables: dict[tuple[torch.device, torch.dtype], tuple[Tensor, Tensor]] = {}

    def tables(self, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Two tables [L, head_dim / 2] in the dtype of `like`."""
        key = (like.device, like.dtype)
        if key not in self._tables or len(self._tables[key][0]) < length:
            pairs = torch.arange(0, self.head_dim, 2, dtype=torch.float32, device=like.device)
            frequency = 1.0 / (ROTARY_BASE ** (pairs / self.head_dim))
            position = torch.arange(length, dtype=torch.float32, device=like.device)
            angles = torch.outer(position, frequency)
            self._tables[key] = (angles.cos().to(like.dtype), angles.sin().to(like.dtype))
        cos, sin = self._tables[key]
        return cos[:length], sin[:length]

    def __call__(self, x: Tensor, position: Tensor | None = None, length: int = 0) -> Tensor:
        """Rotate queries or keys [B, H, L, head_dim]; dimension j pairs with j + head_dim / 2.

        Rows are positions 0 .. L - 1, or the ones given as `position` [B, R] for x [B, H, R, .],
        all below `length`.
        """
        if position is None:
            cos, sin = self.tables(x.shape[-2], x)
        else:
            cos, sin = (table[position][:, None] for table in self.tables(length, x))
        low, high = x.chunk(2, dim=-1)
        return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)


Sight = Callable[[Tensor, Tensor, Tensor, Rotary], Tensor]
"""Values by queries and keys that are not rotated yet, each [B, H, L, head_dim]: who sees whom."""


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a modulated norm and a gate."""

    def __init__(self, shape: DiTShape) -> None:
        super().__init__()
        width = shape.hidden_dim
        self.n_heads, self.dropout = shape.n_heads, shape.dropout
        self.mix: Callable[[Tensor, Tensor, Tensor], Tensor] = F.scaled_dot_product_attention
        """Values by queries and keys; training may put another form of the same in its place."""
        self.norm1 = LayerNorm(width)
        self.attn_qkv = nn.Linear(width, 3 * width, bias=False)
        self.attn_out = nn.Linear(width, width, bias=False)
        self.norm2 = LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )
        self.adaLN_modulation = zero_linear(shape.cond_dim, 6 * width)

    def forward(
        self, x: Tensor, condition: Tensor, rotary: Rotary, sight: Sight | None = None
    ) -> Tensor:
        """One block on x [B, L, D] under the condition [B, C]."""
        modulation = self.adaLN_modulation(condition)[:, None].chunk(6, dim=-1)
        shift1, scale1, gate1, shift2, scale2, gate2 = modulation
        attended = self.attend(modulate(self.norm1(x), shift1, scale1), rotary, sight)
        x = x + gate1 * F.dropout(attended, self.dropout, self.training)
        fed = self.mlp(modulate(self.norm2(x), shift2, scale2))
        return x + gate2 * F.dropout(fed, self.dropout, self.training)

    def attend(self, x: Tensor, rotary: Rotary, sight: Sight | None = None) -> Tensor:
        """Attention over the whole sequence, or over what `sight` lets through."""
        query, key, value = (self.heads(part) for part in self.attn_qkv(x).chunk(3, dim=-1))
        if sight is None:
            mixed = self.mix(rotary(query), rotary(key), value)
        else:
            mixed = sight(query, key, value, rotary)
        return self.attn_out(self.merged(mixed))

    def context(self, x: Tensor, condition: Tensor, rotary: Rotary) -> tuple[Tensor, Tensor]:
        """What any row of this block sees of the sequence x: keys and values, each [B, L, D]."""
        shift, scale = self.adaLN_modulation(condition)[:, None].chunk(6, dim=-1)[:2]
        width = x.shape[-1]
        seen = F.linear(modulate(self.norm1(x), shift, scale), self.attn_qkv.weight[width:])
        key, value = seen.chunk(2, dim=-1)
        return self.merged(rotary(self.heads(key))), value

    def rows(
        self,
        x: Tensor,
        position: Tensor,
        key: Tensor,
        value: Tensor,
        condition: Tensor,
        rotary: Rotary,
    ) -> Tensor:
        """The block at some rows x [B, R, D] at `position` [B, R], given its `context`."""
        modulation = self.adaLN_modulation(condition)[:, None].chunk(6, dim=-1)
        shift1, scale1, gate1, shift2, scale2, gate2 = modulation
        query = F.linear(
            modulate(self.norm1(x), shift1, scale1), self.attn_qkv.weight[: x.shape[-1]]
        )
        mixed = F.scaled_dot_product_attention(
            rotary(self.heads(query), position, key.shape[1]), self.heads(key), self.heads(value)
        )
        x = x + gate1 * self.attn_out(self.merged(mixed))
        return x + gate2 * self.mlp(modulate(self.norm2(x), shift2, scale2))

    def heads(self, x: Tensor) -> Tensor:
        """[B, L, D] as [B, H, L, head_dim]."""
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    @staticmethod
    def merged(x: Tensor) -> Tensor:
        """[B, H, L, head_dim] as [B, L, D]."""
        return x.transpose(1, 2).flatten(-2)


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


class Trunk(nn.Module):
    """Embedding, conditioning and blocks: everything but the output layer."""

    def __init__(self, shape: DiTShape) -> None:
        super().__init__()
        self.shape = shape
        self.vocab_embed = TokenEmbedding(shape.vocab_size, shape.hidden_dim)
        self.sigma_map = SigmaEmbedding(shape.cond_dim)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.n_blocks))
        self.rotary = Rotary(shape.hidden_dim // shape.n_heads)


class DiT(Trunk):
    """The network, split twice.

    For training, `features` runs all blocks and `head` turns any rows of them into scores. For
    sampling, `state` stops before the last block's queries, because only the rows that are drawn
    need the rest, and `scores` does the rest for them.
    """

    def __init__(self, shape: DiTShape) -> None:
        super().__init__(shape)
        self.output_layer = OutputLayer(shape)

    def features(
        self,
        ids: Tensor,
        sigma: Tensor,
        dtype: torch.dtype = torch.float32,
        sight: Sight | None = None,
    ) -> Tensor:
        """States [B, L, D] before the head; `dtype` is that of the matrix products."""
        x = self.vocab_embed(ids)
        condition = F.silu(self.sigma_map(sigma))
        with torch.autocast(ids.device.type, dtype=dtype, enabled=dtype != torch.float32):
            for block in self.blocks:
                x = block(x, condition, self.rotary, sight)
            return self.output_layer.features(x, condition)

    def state(self, ids: Tensor, sigma: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """All that `scores` needs of a sequence, [B, L, 3 D + C]: stream, keys, values, condition.

        Keys and values are the last block's; the condition is repeated at every position.
        """
        x = self.vocab_embed(ids)
        condition = F.silu(self.sigma_map(sigma))
        with torch.autocast(ids.device.type, dtype=dtype, enabled=dtype != torch.float32):
            for block in self.blocks[:-1]:
                x = block(x, condition, self.rotary)
            last: Block = self.blocks[-1]  # pyright: ignore[reportAssignmentType]
            key, value = last.context(x, condition, self.rotary)
        repeated = condition[:, None].expand(-1, ids.shape[1], -1)
        return torch.cat([x, key, value, repeated], dim=-1)

    def scores(
        self, state: Tensor, sequence: Tensor, position: Tensor, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Raw scores [R, V] at the rows (sequence[r], position[r]): last block, norm, head."""
        width = self.shape.hidden_dim
        present, owner, rank, where = _layout(sequence, position)
        present_states = state if len(present) == len(state) else state[present]
        stream, key, value, repeated = present_states.split(
            [width, width, width, self.shape.cond_dim], -1
        )
        condition = repeated[:, 0]
        rows = stream.gather(1, where[..., None].expand(-1, -1, width))
        last: Block = self.blocks[-1]  # pyright: ignore[reportAssignmentType]
        with torch.autocast(state.device.type, dtype=dtype, enabled=dtype != torch.float32):
            rows = last.rows(rows, where, key, value, condition, self.rotary)
            rows = self.output_layer.features(rows, condition)
        return self.head(rows[owner, rank], dtype)

    def head(self, features: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Raw scores over the vocabulary for any rows [..., D] of `features`."""
        with torch.autocast(features.device.type, dtype=dtype, enabled=dtype != torch.float32):
            return self.output_layer.linear(features)


def _layout(sequence: Tensor, position: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows of one sequence share its keys, so they are laid out side by side and padded.

    The sequences that are there [P]; of each row its sequence among them [R] and its number there
    [R]; the positions [P, W]. Sizes depend on the numbers, so it is done on the host and copied at
    once.
    """
    sequences = on_host(sequence)
    present, owner, number = np.unique(sequences, return_inverse=True, return_counts=True)
    order = owner.argsort(kind="stable")
    rank = np.empty_like(owner)
    rank[order] = np.arange(len(owner)) - (number.cumsum() - number)[owner[order]]
    where = np.zeros((len(present), number.max(initial=0)), np.int64)
    where[owner, rank] = on_host(position)
    parts = (present, owner, rank, where.ravel())
    on_device = upload(np.concatenate(parts), sequence.device).split([len(part) for part in parts])
    return on_device[0], on_device[1], on_device[2], on_device[3].view(where.shape)


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """The affine step of adaLN."""
    return x * (1 + scale) + shift


def zero_linear(inputs: int, outputs: int) -> nn.Linear:
    """A layer that starts as the zero map, as the recipe has its modulations and its head."""
    layer = nn.Linear(inputs, outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
