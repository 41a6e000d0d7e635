"""Devices and processes: Lightning Fabric under `torchrun`, and whole states out of any of them."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from strop.denoisers.dit import Block
from strop.denoisers.load import resolve_device
from strop.errors import UserError, unknown_name
from strop.training.spec import TrainSpec

STRATEGIES = ("auto", "ddp", "fsdp")


def make_fabric(device: str, strategy: str) -> Any:
    """One process as it is started, or as many as `torchrun` has started.

    `auto` is plain for one process and data-parallel (DDP) for several.
    """
    from lightning_fabric import Fabric

    if strategy not in STRATEGIES:
        raise unknown_name("strategy", strategy, STRATEGIES, where="`strategy`")
    place = resolve_device(device)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", str(world)))
    chosen: Any = "ddp" if world > 1 and strategy == "auto" else strategy
    if strategy == "fsdp":
        chosen = fsdp_strategy(world)
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


def fsdp_strategy(world: int) -> Any:
    """Weights, gradients, moments and the average sharded, block by block."""
    from lightning_fabric.strategies.model_parallel import ModelParallelStrategy
    from torch.distributed.fsdp import fully_shard
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    def shard(module: nn.Module, mesh: Any) -> nn.Module:
        for part in module.modules():
            if isinstance(part, (Block, LlamaDecoderLayer)):
                fully_shard(part, mesh=mesh["data_parallel"])
        fully_shard(module, mesh=mesh["data_parallel"])
        return module

    # Left to itself, the strategy would take the processes of a node for tensor parallelism.
    return ModelParallelStrategy(
        parallelize_fn=shard,
        data_parallel_size=world,
        tensor_parallel_size=1,
        save_distributed_checkpoint=False,
    )


def network_dtype(spec: TrainSpec, device: torch.device) -> torch.dtype:
    """Of the matrix products: bfloat16 on CUDA, float32 on the CPU, unless the spec says."""
    if spec.precision == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if spec.precision == "bfloat16" and device.type == "cpu" and not _bfloat16_runs():
        raise UserError(
            "Products in bfloat16 crash here.",
            where="TrainSpec.precision",
            got="a process that ended in one matrix product of bfloat16 on the CPU",
            expected="a CPU whose bfloat16 units the operating system lets programs use",
            fix="set precision: auto, or ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment",
        )
    return getattr(torch, spec.precision)


def _bfloat16_runs() -> bool:
    """Whether this machine survives a product in bfloat16: some report units that they refuse.

    The processor ends a program that uses them, so another program tries.
    """
    trial = "import torch; a = torch.ones(512, 512, dtype=torch.bfloat16); torch.mm(a, a)"
    return subprocess.run([sys.executable, "-c", trial], capture_output=True).returncode == 0


class Parts:
    """A module and its optimizers as whole states on the CPU, whatever the strategy.

    All processes must call each method; a state written under one strategy loads under another.
    """

    def __init__(self, module: Any, optimizers: Any = ()) -> None:
        # Fabric keeps the strategy's own wrapper here; torch's functions see through that one.
        self.module = getattr(module, "_forward_module", module)
        self.optimizers = optimizers
        self.options = StateDictOptions(full_state_dict=True, cpu_offload=True)

    def weights(self) -> dict[str, Any]:
        """The module's state by parameter name."""
        return get_model_state_dict(self.module, options=self.options)

    def load_weights(self, state: dict[str, Any]) -> None:
        """Put a whole state back."""
        set_model_state_dict(self.module, state, options=self.options)

    def optimizer_state(self) -> dict[str, Any]:
        """The optimizer's state by parameter name."""
        return get_optimizer_state_dict(self.module, self.optimizers, options=self.options)

    def load_optimizer(self, state: dict[str, Any]) -> None:
        """Put it back."""
        set_optimizer_state_dict(self.module, self.optimizers, state, options=self.options)
