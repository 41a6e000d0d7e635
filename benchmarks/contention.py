"""What sleeping OpenMP threads are worth on a shared machine, and what they cost on one's own.

    python benchmarks/contention.py [--rounds 3] [--neighbours 1] [--quick]

Each measurement is a process of its own that draws 32 outputs of the embedded model at 16 steps
(`--quick`: 4) with a thread per core, alone and beside busy processes. `spin` is what torch does by
itself (it is loaded before strop can say anything), `sleep` what strop asks for. All are timed in
turn; ratios are spin over sleep within a round, so that what else the machine does touches both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = ("spin", "sleep")


def measure(kind: str, steps: int) -> dict[str, float]:
    """CPU and wall seconds of one pool (in this process)."""
    if kind == "spin":
        import torch  # noqa: F401  # before strop: it reads its settings once
    import strop

    denoiser = strop.load_denoiser("embedded:tales", device="cpu")
    spec = strop.SamplerSpec(steps=steps)
    strop.draw.sample(denoiser, spec, n=4, seed=0)
    wall, cpu = time.perf_counter(), time.process_time()
    strop.draw.sample(denoiser, spec, n=32, seed=1)
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


@contextmanager
def neighbour() -> Iterator[None]:
    """A process that wants a core all the time."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            yield
        finally:
            busy.kill()


def child(kind: str, quick: bool) -> dict[str, float]:
    """The same in a process of its own, without settings of this shell's."""
    command = [sys.executable, __file__, "--child", kind, *(["--quick"] if quick else [])]
    own = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY", "OMP_NUM_THREADS")
    env = {name: value for name, value in os.environ.items() if name not in own}
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return json.loads(answer.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--neighbours", type=int, default=1, help="busy processes")
    parser.add_argument("--quick", action="store_true", help="4 steps")
    parser.add_argument("--child", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.child, 4 if options.quick else 16)))
        return
    found: dict[tuple[int, str], list[dict[str, float]]] = {}
    for _ in range(options.rounds):
        for busy in dict.fromkeys((0, options.neighbours)):
            with ExitStack() as running:
                for _ in range(busy):
                    running.enter_context(neighbour())
                for kind in KINDS:
                    found.setdefault((busy, kind), []).append(child(kind, options.quick))
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores; load average at the end {load:.1f}\n")
    print("| busy neighbours | threads | wall s | CPU s |\n|---|---|---|---|")
    for (busy, kind), rows in found.items():
        wall, cpu = (statistics.median(row[key] for row in rows) for key in ("wall", "cpu"))
        print(f"| {busy} | {kind} | {wall:.2f} | {cpu:.2f} |")
    print("\n| busy neighbours | wall, spin over sleep | CPU, spin over sleep |\n|---|---|---|")
    for busy in dict.fromkeys(busy for busy, _ in found):
        pairs = list(zip(found[busy, "spin"], found[busy, "sleep"], strict=True))
        print(f"| {busy} | {spread(pairs, 'wall')} | {spread(pairs, 'cpu')} |")


def spread(pairs: list[tuple[dict[str, float], dict[str, float]]], key: str) -> str:
    """The median ratio, and the range over rounds."""
    ratios = sorted(spin[key] / sleep[key] for spin, sleep in pairs)
    return f"{statistics.median(ratios):.2f}x ({ratios[0]:.2f} to {ratios[-1]:.2f})"


if __name__ == "__main__":
    main()
