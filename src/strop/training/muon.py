"""Muon for the blocks' matrices: momentum whose singular values are set to one.

torch has a Muon, but its Newton-Schulz iteration runs in bfloat16, which many CPUs do slowly or not
at all. This is the same update in the dtype of the network's products, and the three square
matrices inside a query-key-value projection are treated one by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic whose iteration drives singular values in (0, 1] towards one."""
ITERATIONS = 5


def orthogonal(update: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """The nearest matrix with orthonormal rows or columns, roughly, over the last two axes.

    Products are in `dtype`, by default the update's own.
    """
    a, b, c = COEFFICIENTS
    tall = update.shape[-2] > update.shape[-1]
    x = update.mT if tall else update
    x = (x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)).to(dtype or update.dtype)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).to(update.dtype)


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised."""

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        momentum: float = 0.95,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One update of every matrix that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is not None:
                    self._update(matrix, matrix.grad, group["lr"], group["momentum"])

    def _update(self, matrix: Tensor, gradient: Tensor, lr: float, momentum: float) -> None:
        state = self.state[matrix]
        if not state:
            state["momentum"] = torch.zeros_like(matrix)
        state["momentum"].lerp_(gradient, 1 - momentum)
        update = gradient.lerp(state["momentum"], momentum)
        rows, columns = update.shape
        if rows == 3 * columns:
            update = update.view(3, columns, columns)
        scale = max(1.0, update.shape[-2] / update.shape[-1]) ** 0.5
        matrix.add_(orthogonal(update, self.dtype).reshape(rows, columns), alpha=-lr * scale)


def matrices(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that Muon is for: matrices inside blocks, modulations and norms apart."""
    return [
        parameter
        for name, parameter in module.named_parameters()
        if parameter.ndim == 2
        and any(part in name for part in (".blocks.", ".layers."))
        and "adaLN" not in name
    ]
