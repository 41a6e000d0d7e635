"""Averaged weights: torch's `AveragedModel` with the public decay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


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
