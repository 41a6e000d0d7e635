"""Attention of short sequences by plain products, for bfloat16 on the CPU.

torch's fused attention for the CPU does not use the processor's bfloat16 units for its gradient.
For sequences whose weights fit in memory plain products are faster: a training step of the embedded
model took 0.53 s instead of 0.69 s (`benchmarks/training_precision.py`). The gradient is written
out because the one that torch.compile makes of the same forward was not finite (torch 2.13, CPU,
bfloat16).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


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
