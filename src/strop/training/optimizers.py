"""Which optimizer updates which weights."""

from __future__ import annotations

from typing import Any

import torch

from strop.errors import UserError
from strop.training.muon import Muon, matrices
from strop.training.spec import TrainSpec


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
        rest,
        lr=spec.lr,
        betas=spec.betas,
        eps=spec.eps,
        weight_decay=spec.weight_decay,
        fused=True,
    )
    return [adamw, Muon(chosen, spec.muon_lr, dtype=dtype)] if chosen else [adamw]
