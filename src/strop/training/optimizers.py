"""Which optimizer updates which weights.

Muon for the blocks' matrices: momentum whose singular values are set to one.

torch has a Muon, but its Newton-Schulz iteration runs in bfloat16, which many CPUs do slowly or not
at all. This is the same update in the dtype of the network's products, and the three square
matrices inside a query-key-value projection are treated one by one.

How far a run is, what the learning rate is there, and which checkpoints stay.

Averaged weights: torch's `AveragedModel` with the public decay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from strop.errors import UserError
from strop.training.spec import TrainSpec


def decay_at(decay: float, updates: int) -> float:
    """min(decay, (1 + n) / (10 + n)) at the n-th update, n from 1: young averages move fast."""
    return min(decay, (1 + updates) / (10 + updates))


def averaged(model: nn.Module, decay: float) -> AveragedModel:
    """An average that starts as a copy of the model; `update_parameters` moves it."""
    average = AveragedModel(model, multi_avg_fn=_moving(decay))
    average.requires_grad_(False).eval()
    average.update_parameters(model)  # the first call copies, and makes the counter 1
    return average


def _moving(decay: float) -> Callable[..., None]:
    def update(average: Any, current: Any, updates: Any) -> None:
        get_ema_multi_avg_fn(decay_at(decay, int(updates)))(average, current, updates)

    return update


def share_done(spec: TrainSpec, step: int, seconds: float) -> float:
    """The share of the run that lies behind after `step` steps and so many seconds of training."""
    by_steps = step / spec.steps if spec.steps is not None else 0.0
    by_time = seconds / (60 * spec.minutes) if spec.minutes is not None else 0.0
    return min(1.0, max(by_steps, by_time))


def is_over(spec: TrainSpec, step: int, seconds: float) -> bool:
    """Whether steps or minutes are used up."""
    return share_done(spec, step, seconds) >= 1.0


def learning_rate(spec: TrainSpec, step: int, share: float) -> float:
    """The rate of the update number `step` (from 0), as the public warm-up has it: it starts at 0.

    After the share `decay_from` it falls to `decay_to` of itself, in a line or along a cosine.
    """
    rate = spec.lr * min(1.0, step / spec.warmup) if spec.warmup else spec.lr
    if spec.decay == "constant" or share <= spec.decay_from:
        return rate
    way = (share - spec.decay_from) / (1 - spec.decay_from)
    left = 1 - way if spec.decay == "linear" else 0.5 * (1 + math.cos(math.pi * way))
    return rate * (spec.decay_to + (1 - spec.decay_to) * left)


def is_kept(spec: TrainSpec, step: int, before: float, now: float) -> bool:
    """Whether the checkpoint after `step` steps is one that stays.

    `before` and `now` are the shares done before and after the step.
    """
    return (
        step in spec.keep_steps
        or (spec.keep_every is not None and step % spec.keep_every == 0)
        or any(before < share <= now for share in spec.keep_shares)
    )


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


def optimizers_of(
    spec: TrainSpec, module: Any, sharded: bool, dtype: torch.dtype
) -> list[torch.optim.Optimizer]:
    """AdamW for everything, or Muon for the blocks' matrices and AdamW for the rest.

    `dtype` is that of the network's products.
    """
    chosen = matrices(module) if spec.optimizer == "muon" else []
    if chosen and sharded:
        raise UserError(
            "Muon needs whole matrices, and FSDP cuts them.",
            where="TrainSpec.optimizer",
            got="muon under fsdp",
            fix="use `strategy=ddp`, or set optimizer: adamw",
        )
    taken = {id(parameter) for parameter in chosen}
    rest = [parameter for parameter in module.parameters() if id(parameter) not in taken]
    adamw = torch.optim.AdamW(
        rest, lr=spec.lr, betas=spec.betas, eps=spec.eps, weight_decay=spec.weight_decay, fused=True
    )
    return [adamw, Muon(chosen, spec.muon_lr, dtype=dtype)] if chosen else [adamw]
