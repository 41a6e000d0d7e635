"""What the fast loop costs the host: CPU time per network call, with a network that costs nothing.

    python benchmarks/host.py [--quick] [--json FILE]
    python benchmarks/host.py --waits

A fast GPU waits whenever the loop around it takes longer than the network. Here the network is two
lookups (vocabulary 500, length 1,024, a Zipf law at every position), so that what is left is the
loop: choosing rounds and rows, shaping and drawing, handing out. One thread, 1,024 steps, 8 and 64
sequences at once, both laws. Other work on the machine adds to CPU time too (caches, interrupts),
but nothing takes from it: a run is repeated, cut into pieces of four network calls, and of every
piece the least time counts. The yardstick, a fixed workload of the same kind (small steps of numpy
and torch), is timed likewise between the runs, so that other machines can be compared.

`--waits` prints instead how often each family's loop waits for a pretend device (`docs/gpu.md`).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from strop.denoisers.base import all_log_probs
from strop.instruments import gpu
from strop.instruments.pretend import moved, pretended
from strop.records import SAMPLERS
from strop.samplers import fast
from strop.spec import CheckpointSpec, Precision, SamplerSpec

LENGTH, VOCABULARY, STEPS = 1024, 500, 1024
PIECE = 4  # network calls
AIMS: dict[tuple[Precision, int], float] = {
    ("float64", 8): 0.4,
    ("float64", 64): 0.8,
    ("float32", 8): 0.8,
    ("float32", 64): 2.0,
}
"""Milliseconds per network call, by law and sequences at once."""


class Free:
    """A Zipf law in some order at every position, looked up."""

    time_conditioned, codec, source = False, None, "free"
    device = torch.device("cpu")
    spec = CheckpointSpec(family="mdlm", sha256="free", shape={})
    vocab_size, mask_id, length = VOCABULARY, VOCABULARY - 1, LENGTH

    def __init__(self, slots: int) -> None:
        generator = torch.Generator().manual_seed(0)
        ranks = [torch.randperm(VOCABULARY, generator=generator) for _ in range(64)]
        self._rows = -(torch.stack(ranks).float() + 2).log()
        self._states = torch.zeros(slots, LENGTH, 1)
        self.times = [time.process_time()]

    def hidden(self, ids: torch.Tensor, sigma: torch.Tensor | None) -> torch.Tensor:  # noqa: ARG002
        self.times.append(time.process_time())
        return self._states[: len(ids)]

    def logits(
        self,
        hidden: torch.Tensor,  # noqa: ARG002
        sequence: torch.Tensor,  # noqa: ARG002
        position: torch.Tensor,
    ) -> torch.Tensor:
        return self._rows[position % len(self._rows)]

    def log_probs(self, ids: torch.Tensor, sigma: torch.Tensor | None = None) -> torch.Tensor:
        return all_log_probs(self, ids, sigma)


def yardstick() -> float:
    """CPU milliseconds of a fixed workload: as many small steps as a loop might make."""
    numbers, table = np.arange(64), torch.zeros(16, VOCABULARY)
    times = []
    for _ in range(100):
        start = time.process_time()
        for _ in range(40):
            numbers[numbers % 3 == 0].sum()
        for _ in range(5):
            table.exp().cumsum(-1)
        times.append(time.process_time() - start)
    return min(times) * 1e3


def run(precision: Precision, slots: int) -> tuple[np.ndarray, int]:
    """CPU milliseconds of the pieces of a run, from the first sequence to the last; its calls."""
    free, spec = Free(slots), SamplerSpec(steps=STEPS, precision=precision)
    for _ in fast(free, spec, seed=1, outputs=range(slots), slots=slots, length=LENGTH):
        pass
    ends = np.array([*free.times[:-1:PIECE], time.process_time()])
    return np.diff(ends) * 1e3, len(free.times) - 1


def print_waits() -> None:
    """Waits and operations per network call, by loop, fast and dense."""
    print("| family | sampler | form | waits per call | operations per call |")
    print("|---|---|---|---|---|")
    with TemporaryDirectory() as folder:
        for family, name in gpu.CASES:
            for form in ("fast", "dense"):
                if getattr(SAMPLERS[name], form) is None:
                    continue
                model = gpu.loaded(family, Path(folder))
                outputs = 1 if (family, form) == ("dream", "dense") else gpu.OUTPUTS
                with pretended():
                    moved(model)
                with gpu.calls_of(model) as calls, pretended() as watched:
                    gpu.drawn(model, gpu.sampler(name, form), outputs)
                waits = sum(watched.waits.values()) / len(calls)
                each = watched.operations / len(calls)
                print(f"| {family} | {name} | {form} | {waits:.1f} | {each:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="three runs of each instead of nine")
    parser.add_argument("--json", type=Path, help="write the numbers here as well")
    parser.add_argument("--waits", action="store_true", help="count waits on a pretend device")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.waits:
        print_waits()
        return
    found: dict[tuple[Precision, int], list[np.ndarray]] = {what: [] for what in AIMS}
    calls, yards = {}, []
    for _ in range(3 if options.quick else 9):
        for what, times in found.items():
            pieces, calls[what] = run(*what)
            times.append(pieces)
            yards.append(yardstick())
    yard = min(yards)
    print(f"yardstick: {yard:.3f} ms of CPU\n")
    print("| law | sequences | ms per network call | yardsticks | aim, ms |\n|---|---|---|---|---|")
    rows = []
    for (precision, slots), times in found.items():
        least = float(np.min(times, axis=0).sum()) / calls[precision, slots]
        aim = AIMS[precision, slots]
        print(f"| {precision} | {slots} | {least:.2f} | {least / yard:.2f} | {aim:.1f} |")
        rows.append(
            {"precision": precision, "slots": slots, "ms": least, "yardsticks": least / yard}
        )
    if options.json:
        document = {"yardstick_ms": yard, "rows": rows}
        options.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
