"""What a sampler costs: seconds, network calls and peak memory, batch by batch.

Peak memory is what torch allocated on CUDA, and what was resident on Linux. On the CPU it is only
meaningful in a process of its own: `python -m strop.instruments.cost JSON` measures one cell there
and prints the numbers as JSON.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from strop.denoisers import load_denoiser
from strop.denoisers.base import Denoiser, Model, usable_length
from strop.errors import StropError, UserError
from strop.pool import Output
from strop.samplers import dense_batch, fast
from strop.spec.generator import SamplerSpec

STATUS, FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class PeakMemory:
    """Start it after the weights are loaded; `extra` is what was needed on top of them since.

    On the CPU the process must be one of its own: memory that earlier work freed may still be
    resident, and would hide what the measured work takes.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._before: int | None = None
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            self._before = torch.cuda.memory_allocated(device)
        elif _release() and _forget_peak():
            self._before = _status("VmRSS")

    @property
    def method(self) -> str:
        """How the peak is measured."""
        if self.device.type == "cuda":
            return "cuda: max_memory_allocated"
        return "resident: VmHWM" if self._before is not None else "not measured on this system"

    def extra(self) -> int | None:
        """Bytes at the peak, less what was there at the start; None where it cannot be known."""
        if self._before is None:
            return None
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) - self._before
        return _status("VmHWM") - self._before


def _release() -> bool:
    """Give freed memory back to the system, so that it does not count as already there."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        return False
    return True


def _forget_peak() -> bool:
    try:
        FORGET.write_text("5")
    except OSError:
        return False
    return True


def _status(field: str) -> int:
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


@dataclass(frozen=True)
class Cost:
    """One sampler on one device: totals of every measured batch, and the peak over all of them."""

    seconds: list[float]
    """Wall-clock seconds per batch."""
    cpu_seconds: list[float]
    """Processor time of this process, all threads, per batch."""
    calls: list[float]
    """Network calls per sequence, the mean of each batch."""
    weights_bytes: int
    """Of the network's parameters; none for an exact denoiser."""
    extra_bytes: int | None
    """Peak on top of the weights, warm-up included; None where it cannot be measured."""
    memory: str
    """How the peak was taken."""
    threads: int


def measure_cost(
    denoiser: Denoiser,
    spec: SamplerSpec,
    *,
    batch: int = 8,
    batches: int = 3,
    warmup: int = 1,
    length: int | None = None,
    seed: int = 0,
) -> Cost:
    """Draw `warmup` + `batches` batches; the first ones are not timed."""
    length = usable_length(denoiser, length)
    peak = PeakMemory(denoiser.device)
    rows: list[tuple[float, float, float]] = []
    for number in range(warmup + batches):
        wall, cpu = time.perf_counter(), time.process_time()
        done = draw_batch(denoiser, spec, batch, number * batch, length, seed)
        if denoiser.device.type == "cuda":
            torch.cuda.synchronize(denoiser.device)
        calls = sum(output.nfe for output in done) / len(done)
        rows.append((time.perf_counter() - wall, time.process_time() - cpu, calls))
    seconds, cpu_seconds, calls = (list(column) for column in zip(*rows[warmup:], strict=True))
    network = getattr(denoiser, "network", None)
    weights = () if network is None else network.parameters()
    size = sum(p.numel() * p.element_size() for p in weights)
    threads = torch.get_num_threads()
    return Cost(seconds, cpu_seconds, calls, size, peak.extra(), peak.method, threads)


def draw_batch(
    denoiser: Model, spec: SamplerSpec, batch: int, first: int, length: int, seed: int
) -> list[Output]:
    """Outputs of one batch, in order."""
    if spec.implementation == "dense":
        return dense_batch(denoiser, spec, seed=seed, first=first, count=batch, length=length)
    outputs = range(first, first + batch)
    done = fast(denoiser, spec, seed=seed, outputs=outputs, slots=batch, length=length)
    return sorted(done, key=lambda output: output.index)


def measure_apart(
    source: str, spec: SamplerSpec, *, device: str = "auto", dtype: str = "auto", **settings: Any
) -> Cost:
    """`measure_cost` on a checkpoint in a new process, which ends with all of its memory."""
    load = {"source": source, "device": device, "dtype": dtype}
    task = {"load": load, "spec": spec.model_dump(mode="json"), "settings": settings}
    command = [sys.executable, "-m", "strop.instruments.cost", json.dumps(task)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        lines = answer.stderr.strip().splitlines()
        # The system ends a process that takes too much memory without a word.
        killed = f"ended by signal {-answer.returncode}: not enough memory?"
        raise UserError(
            "A sampler's cost cannot be measured.",
            where=f"M = {spec.steps}, {spec.implementation}, {spec.precision}",
            got=lines[-1][:300] if lines and answer.returncode > 0 else killed,
            fix="use a smaller `batch_size`, or use a smaller `length`",
        )
    return Cost(**json.loads(answer.stdout))


def _main(text: str) -> int:
    task = json.loads(text)
    try:
        denoiser = load_denoiser(**task["load"])
        cost = measure_cost(denoiser, SamplerSpec(**task["spec"]), **task["settings"])
    except StropError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return error.exit_code
    print(json.dumps(asdict(cost)))
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
