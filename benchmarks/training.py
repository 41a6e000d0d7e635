"""Training steps: tokens per second with the head at masked positions against everywhere.

    python benchmarks/training.py            the ratio, and three shapes (about a minute)
    python benchmarks/training.py --full     the whole shape table

A step is forward, backward, clipping, AdamW and the average, on random tokens: speed does not
depend on what they are. Everything compared runs interleaved in one process; medians of rounds.
With `--threads 1` the clock is the processor time of the process, which other load hardly disturbs.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from strop.checkpoints.config import DiTShape, parameter_count
from strop.denoisers.base import NEG_INFINITY
from strop.denoisers.dit import DiT
from strop.training.model import Diffusion
from strop.training.objective import Noise, any_order_noise
from strop.training.optimizers import averaged


@dataclass(frozen=True)
class Case:
    vocabulary: int
    width: int
    blocks: int
    length: int
    batch: int

    @property
    def shape(self) -> DiTShape:
        return DiTShape(
            self.vocabulary + 1, self.length, self.width, 128, self.blocks,
            max(1, self.width // 64), 0.0, False, self.vocabulary,
        )  # fmt: skip


TABLE = [
    Case(4096, 192, 6, 128, 32),
    Case(4096, 256, 4, 128, 32),
    Case(4096, 256, 6, 128, 32),
    Case(4096, 256, 6, 128, 64),
    Case(4096, 256, 6, 256, 16),
    Case(8192, 256, 6, 128, 32),
    Case(4096, 320, 6, 128, 32),
    Case(4096, 384, 6, 128, 32),
]
QUICK = [TABLE[0], TABLE[1], TABLE[2]]


def head_everywhere(network: DiT, ids: Tensor, noise: Noise) -> Tensor:
    """The same loss by the dense formula: scores at every position, most of them for nothing."""
    mask = network.shape.mask_id
    noisy = torch.where(noise.hidden, mask, ids)
    logits = network.head(network.features(noisy, torch.zeros(1)))
    logits[..., mask] += NEG_INFINITY
    surprise = F.cross_entropy(logits.flatten(0, 1), ids.flatten(), reduction="none")
    return (surprise.view(ids.shape) * noise.hidden * noise.weight[:, None]).mean(-1)


def stepper(case: Case, everywhere: bool) -> Callable[[], float]:
    """A function that does one training step and returns its seconds."""
    torch.manual_seed(0)
    module = Diffusion(DiT(case.shape), torch.float32)
    average = averaged(module, 0.999)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.0, fused=True)
    generator = torch.Generator().manual_seed(1)
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter

    def step() -> float:
        ids = torch.randint(0, case.vocabulary, (case.batch, case.length), generator=generator)
        noise = any_order_noise(case.batch, case.length, generator)
        began = clock()
        if everywhere:
            losses = head_everywhere(module.network, ids, noise)
        else:
            losses = module(ids, noise.hidden, noise.weight)
        losses.mean().backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        average.update_parameters(module)
        return clock() - began

    return step


def same_loss(case: Case) -> float:
    """The largest difference between the two forms' losses, to show that they are one."""
    torch.manual_seed(0)
    network = DiT(case.shape)
    torch.nn.init.normal_(network.output_layer.linear.weight, std=0.1)
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(0, case.vocabulary, (4, case.length), generator=generator)
    noise = any_order_noise(4, case.length, generator)
    with torch.no_grad():
        sparse = Diffusion(network, torch.float32)(ids, noise.hidden, noise.weight)
        return float((sparse - head_everywhere(network, ids, noise)).abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(description="Tokens per second of training steps.")
    parser.add_argument("--full", action="store_true", help="all shapes, more rounds")
    parser.add_argument("--quick", action="store_true", help="what it does anyway")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    rounds = options.rounds or (7 if options.full else 5)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, median of {rounds}")

    print("\n| V | d | n | L | B | params | tok/s | head everywhere | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for case in TABLE if options.full else QUICK:
        steps = [stepper(case, everywhere) for everywhere in (False, True)]
        for step in steps:
            step()
        seconds = [[step() for step in steps] for _ in range(rounds)]
        masked, dense = (statistics.median(column) for column in zip(*seconds, strict=True))
        tokens = case.batch * case.length
        ratio = statistics.median(pair[1] / pair[0] for pair in seconds)
        print(
            f"| {case.vocabulary} | {case.width} | {case.blocks} | {case.length} | {case.batch} "
            f"| {parameter_count(case.shape) / 1e6:.2f}M | {tokens / masked:,.0f} "
            f"| {tokens / dense:,.0f} | {ratio:.2f} |",
            flush=True,
        )
    print(f"\nlargest difference of the two losses: {same_loss(QUICK[1]):.1e} nats per token")


if __name__ == "__main__":
    main()
