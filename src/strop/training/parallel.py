"""Devices and processes: Lightning Fabric under `torchrun`, and whole states out of any of them."""

from __future__ import annotations

import os
import warnings
from typing import Any, Literal

import torch
from torch import nn

from strop.denoisers.dit import Block
from strop.denoisers.load import resolve_device
from strop.errors import UserError, unknown_name
from strop.training.spec import TrainSpec

__all__ = ["STRATEGIES", "Parts", "make_fabric", "network_dtype"]

STRATEGIES = ("auto", "ddp", "fsdp")


def make_fabric(device: str, strategy: str) -> Any:
    """One process as it is started, or as many as `torchrun` has started.

    `auto` is plain for one process and data-parallel (DDP) for several.
    """
    from lightning_fabric import Fabric

    if strategy not in STRATEGIES:
        raise unknown_name("strategy", strategy, STRATEGIES, where="--strategy")
    place = resolve_device(device)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", str(world)))
    if strategy == "fsdp" and place.type != "cuda":
        raise UserError(
            "FSDP needs CUDA devices.", where="--strategy", got=f"fsdp on {place}", expected="ddp"
        )
    chosen: Any = "ddp" if world > 1 and strategy == "auto" else strategy
    if strategy == "fsdp":
        chosen = fsdp_strategy()
    devices: Any = local
    if world == 1 and place.type == "cuda" and place.index is not None:
        devices = [place.index]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice on launchers and unused devices
        fabric = Fabric(
            accelerator="cuda" if place.type == "cuda" else "cpu",
            devices=devices,
            num_nodes=max(1, world // local),
            strategy=chosen,
            precision="32-true",  # the networks choose the dtype of their products themselves
        )
        fabric.launch()
    return fabric


def fsdp_strategy() -> Any:
    """Sharded by transformer block."""
    from lightning_fabric.strategies.fsdp import FSDPStrategy
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    return FSDPStrategy(auto_wrap_policy={Block, LlamaDecoderLayer}, state_dict_type="full")


def network_dtype(spec: TrainSpec, device: torch.device) -> torch.dtype:
    """Of the matrix products: bfloat16 on CUDA, float32 on the CPU, unless the spec says."""
    if spec.precision == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if spec.precision == "bfloat16" and device.type != "cuda":
        raise UserError(
            "bfloat16 is for GPUs: CPUs are slower with it, and some builds crash.",
            where="TrainSpec.precision",
            got=f"bfloat16 on {device}",
            fix="set precision: auto",
        )
    return getattr(torch, spec.precision)


class Parts:
    """A module and its optimizer, sharded or not, as whole states on the CPU."""

    def __init__(
        self, kind: Literal["plain", "sharded"], module: nn.Module, optimizer: Any = None
    ) -> None:
        self.kind, self.module, self.optimizer = kind, module, optimizer

    def weights(self) -> dict[str, Any]:
        """The module's state; under FSDP every process must call this."""
        if self.kind == "plain":
            return dict(self.module.state_dict())
        from torch.distributed.checkpoint.state_dict import get_model_state_dict

        return get_model_state_dict(self.module, options=_whole())

    def load_weights(self, state: dict[str, Any]) -> None:
        """Put a whole state back."""
        if self.kind == "plain":
            self.module.load_state_dict(state)
            return
        from torch.distributed.checkpoint.state_dict import set_model_state_dict

        set_model_state_dict(self.module, state, options=_whole())

    def optimizer_state(self) -> dict[str, Any]:
        """The optimizer's state; under FSDP every process must call this."""
        if self.kind == "plain":
            return self.optimizer.state_dict()
        from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

        return get_optimizer_state_dict(self.module, self.optimizer, options=_whole())

    def load_optimizer(self, state: dict[str, Any]) -> None:
        """Put it back."""
        if self.kind == "plain":
            self.optimizer.load_state_dict(state)
            return
        from torch.distributed.checkpoint.state_dict import set_optimizer_state_dict

        set_optimizer_state_dict(self.module, self.optimizer, state, options=_whole())


def _whole() -> Any:
    from torch.distributed.checkpoint.state_dict import StateDictOptions

    return StateDictOptions(full_state_dict=True, cpu_offload=True)
