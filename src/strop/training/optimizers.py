"""Which optimizer updates which weights, at what rate, on which devices.

Muon, for the blocks' matrices, is momentum whose singular values are set to one. torch has a Muon,
but its Newton-Schulz iteration runs in bfloat16, which many CPUs do slowly or not at all. This is
the same update in the dtype of the network's products, and the three square matrices inside a
query-key-value projection are treated one by one.

Also here: how far a run is, its learning rate there, and which checkpoints stay; the averaged
weights (torch's `AveragedModel` with the public decay); and devices and processes (Lightning Fabric
under `torchrun`), with whole states whatever the strategy.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from strop.denoisers.device import resolve_device
from strop.denoisers.dit import Block
from strop.errors import UserError, unknown_name
from strop.training.spec import TrainSpec


def decay_at(decay: float, updates: int) -> float:
    """min(decay, (1 + n) / (10 + n)) at the n-th update, n from 1: young averages move fast."""
    return min(decay, (1 + updates) / (10 + updates))


def averaged(model: nn.Module, decay: float) -> AveragedModel:
    """An average that starts as a copy of the model; `update_parameters` moves it."""

    def move(average: Any, current: Any, updates: Any) -> None:
        get_ema_multi_avg_fn(decay_at(decay, int(updates)))(average, current, updates)

    average = AveragedModel(model, multi_avg_fn=move)
    average.requires_grad_(False).eval()
    average.update_parameters(model)  # the first call copies, and makes the counter 1
    return average


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
    progress = (share - spec.decay_from) / (1 - spec.decay_from)
    left = 1 - progress if spec.decay == "linear" else 0.5 * (1 + math.cos(math.pi * progress))
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
    others = [parameter for parameter in module.parameters() if id(parameter) not in taken]
    adamw = torch.optim.AdamW(
        others,
        lr=spec.lr,
        betas=spec.betas,
        eps=spec.eps,
        weight_decay=spec.weight_decay,
        fused=True,
    )
    return [adamw, Muon(chosen, spec.muon_lr, dtype=dtype)] if chosen else [adamw]


STRATEGIES = ("auto", "ddp", "fsdp")


def make_fabric(device: str, strategy: str) -> Any:
    """One process as it is started, or as many as `torchrun` has started.

    `auto` is plain for one process and data-parallel (DDP) for several.
    """
    from lightning_fabric import Fabric

    if strategy not in STRATEGIES:
        raise unknown_name("strategy", strategy, STRATEGIES, where="`strategy`")
    torch_device = resolve_device(device)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", str(world)))
    chosen: Any = "ddp" if world > 1 and strategy == "auto" else strategy
    if strategy == "fsdp":
        chosen = fsdp_strategy(world)
    devices: Any = local
    if world == 1 and torch_device.type == "cuda" and torch_device.index is not None:
        devices = [torch_device.index]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice on launchers and unused devices
        fabric = Fabric(
            accelerator="cuda" if torch_device.type == "cuda" else "cpu",
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
    """The dtype of matrix products: bfloat16 on CUDA, float32 on the CPU, or the spec's."""
    if spec.precision == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if spec.precision == "bfloat16" and device.type == "cpu" and not _bfloat16_runs():
        raise UserError(
            "Matrix products in bfloat16 crash on this machine.",
            where="TrainSpec.precision",
            got="a test process that crashed in a bfloat16 matrix product on the CPU",
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
        """Load a whole state of the optimizer."""
        set_optimizer_state_dict(self.module, self.optimizers, state, options=self.options)
