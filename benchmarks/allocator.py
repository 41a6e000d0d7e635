"""What keeping freed pages is worth: sampling with glibc's habits and with strop's, in turn.

    python benchmarks/allocator.py [--rounds 3] [--quick]

Each measurement is a process of its own that draws 32 outputs of the embedded model at 64 steps
twice and tells the second time (`--quick`: 16 steps). Medians, and page faults.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time


def measure(keep: bool, steps: int) -> dict[str, float]:
    """Seconds of one pool, and the page faults of the process (in this process)."""
    from strop.cli.entry import keep_pages

    if keep and not keep_pages():
        raise SystemExit("this C library has no such settings")
    import strop

    denoiser = strop.load_denoiser("embedded:tales", device="cpu")
    spec = strop.SamplerSpec(steps=steps)
    strop.draw.sample(denoiser, spec, n=32, seed=0)
    began = time.perf_counter()
    strop.draw.sample(denoiser, spec, n=32, seed=1)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    return {"seconds": time.perf_counter() - began, "faults": faults}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="16 steps")
    parser.add_argument("--child", choices=["plain", "keep"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    steps = 16 if options.quick else 64
    if options.child:
        print(json.dumps(measure(options.child == "keep", steps)))
        return
    found: dict[str, list[dict[str, float]]] = {"plain": [], "keep": []}
    for _ in range(options.rounds):
        for kind, rows in found.items():
            command = [sys.executable, __file__, "--child", kind]
            command += ["--quick"] if options.quick else []
            answer = subprocess.run(command, capture_output=True, text=True, check=True)
            rows.append(json.loads(answer.stdout))
    seconds = {k: statistics.median(r["seconds"] for r in rows) for k, rows in found.items()}
    print("| allocator | seconds | page faults |\n|---|---|---|")
    for kind, rows in found.items():
        faults = statistics.median(row["faults"] for row in rows)
        print(f"| {kind} | {seconds[kind]:.2f} | {faults:,.0f} |")
    print(f"\nkeeping pages: {seconds['plain'] / seconds['keep']:.2f}x")


if __name__ == "__main__":
    main()
