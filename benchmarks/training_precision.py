"""Training steps in bfloat16 against float32 on the CPU, at the shape of `embedded`.

    python benchmarks/training_precision.py              compiled, as `embedded` is (two minutes)
    python benchmarks/training_precision.py --eager

A step is forward, backward, clipping, Muon with AdamW, and the average, on random tokens. The steps
compared run interleaved in one process; medians of rounds. `fused attention` is bfloat16 with
torch's own attention instead of plain products.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from strop.errors import UserError
from strop.training.model import Diffusion, attend_plainly, build, compile_blocks
from strop.training.objective import any_order_noise
from strop.training.optimizers import averaged, network_dtype, optimizers_of
from strop.training.spec import TrainSpec, read_spec

VOCABULARY = 4096


def stepper(spec: TrainSpec, *, plain: bool, compiled: bool) -> Callable[[], float]:
    """A function that does one training step and returns its seconds."""
    cpu = torch.device("cpu")
    dtype = network_dtype(spec, cpu)
    generator = torch.Generator().manual_seed(1)
    shape = (spec.batch, spec.data.length)

    def drawn() -> torch.Tensor:
        return torch.randint(0, VOCABULARY, shape, generator=generator)

    module = build(spec, VOCABULARY, 0, dtype, lambda: np.ones(VOCABULARY))
    assert isinstance(module, Diffusion)
    average = averaged(module, spec.ema)
    if plain:
        attend_plainly(module)
    if compiled:
        compile_blocks(module, cpu)
    optimizers = optimizers_of(spec, module, False, dtype)

    def step() -> float:
        ids, noise = drawn(), any_order_noise(*shape, generator)
        began = time.perf_counter()
        module(ids, noise.hidden, noise.weight).mean().backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), spec.clip)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        average.update_parameters(module)
        return time.perf_counter() - began

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description="Training steps in bfloat16 on the CPU.")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--quick", action="store_true", help="eager, two rounds")
    parser.add_argument("--rounds", type=int)
    options = parser.parse_args()
    rounds = options.rounds or (2 if options.quick else 7)
    compiled = not (options.eager or options.quick)
    forms = {
        "float32": ("float32", False),
        "bfloat16, fused attention": ("bfloat16", False),
        "bfloat16": ("bfloat16", True),
    }
    spec = read_spec("embedded")
    try:
        steps = [
            stepper(
                spec.model_copy(update={"precision": precision}), plain=plain, compiled=compiled
            )
            for precision, plain in forms.values()
        ]
    except UserError as error:
        print(f"not measured: {error}")
        return
    for step in steps:
        step()
        step()
    seconds = [[step() for step in steps] for _ in range(rounds)]
    tokens = spec.batch * spec.data.length
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, median of {rounds}")
    print("\n| products | seconds a step | tokens a second | against float32 |\n|---|---|---|---|")
    for number, name in enumerate(forms):
        median = statistics.median(row[number] for row in seconds)
        ratio = statistics.median(row[0] / row[number] for row in seconds)
        print(f"| {name} | {median:.3f} | {tokens / median:,.0f} | {ratio:.2f}x |")


if __name__ == "__main__":
    main()
