"""Dense against fast sampling of SEDD, DUO and DiDi-Instruct: time and peak memory in one run.

    python benchmarks/families.py [--quick] [--steps 64] [--json FILE]

Random weights at the MDLM-Small shape, length 1,024, one sequence, float64 draws; `--quick` takes a
smaller shape and finishes in about a minute. CPU seconds of one thread, whole runs, dense and fast
one after the other in one process; peak memory of two updates and a finish on top of the weights,
each in a process of its own. The limit is the time of the networks alone, which every law here
needs at every update: only what comes after the backbone can be saved.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from strop.checkpoints.config import SHAPES, DiTShape
from strop.denoisers.didi import DiDi, Discriminator
from strop.denoisers.dit import DiT
from strop.denoisers.network import DUO
from strop.denoisers.sedd import SEDD
from strop.instruments.cost import PeakMemory
from strop.samplers import dense_batch, fast
from strop.spec import CheckpointSpec, Implementation, SamplerSpec

SAMPLERS = ("sedd-analytic", "duo-ancestral", "didi-ancestral", "didi-guided")
KINDS: tuple[Implementation, ...] = ("dense", "fast")


def shape_of(quick: bool) -> DiTShape:
    """MDLM-Small, or a few narrow blocks with a vocabulary that still dominates."""
    if not quick:
        return SHAPES["small"]
    return replace(
        SHAPES["tiny"],
        vocab_size=8001,
        mask_id=8000,
        length=128,
        hidden_dim=128,
        n_blocks=4,
        n_heads=4,
    )


def model(name: str, shape: DiTShape) -> Any:
    """Random weights; a Zipf law in the output bias."""
    torch.manual_seed(0)
    family = name.partition("-")[0]
    if family == "duo":
        shape = replace(shape, mask_id=shape.vocab_size)
    shape = replace(shape, time_conditioning=family != "didi")
    network = DiT(shape)
    with torch.no_grad():
        for key, parameter in network.named_parameters():
            if "adaLN" in key or key == "output_layer.linear.weight":
                parameter.normal_(std=0.02)
        rank = torch.randperm(shape.vocab_size).float()
        # SEDD's scores sum to about 1 / (e^sigma - 1) when its logits average to log 1.
        bias = -(rank + 2).log()
        bias -= bias.logsumexp(0) - torch.tensor(float(shape.vocab_size - 1)).log()
        network.output_layer.linear.bias.copy_(bias)
    spec = CheckpointSpec(family=family, sha256="random", shape={})
    if family == "didi":
        return DiDi(network, spec, source="random", discriminator=Discriminator(shape))
    return {"sedd": SEDD, "duo": DUO}[family](network, spec, source="random")


def run(denoiser: Any, name: str, kind: Implementation, steps: int) -> tuple[float, int]:
    """CPU seconds and network calls of one sequence."""
    spec = SamplerSpec(name=name, steps=steps, implementation=kind)
    length = denoiser.length
    start = time.process_time()
    if kind == "dense":
        done = dense_batch(denoiser, spec, seed=0, first=0, count=1, length=length)
    else:
        done = list(fast(denoiser, spec, seed=0, outputs=[0], slots=1, length=length))
    return time.process_time() - start, done[0].nfe


def backbone_seconds(denoiser: Any) -> float:
    """One pass of the predicting network without its head."""
    ids = torch.zeros((1, denoiser.length), dtype=torch.long)
    sigma = torch.ones(1)
    denoiser.hidden(ids, sigma)
    start = time.process_time()
    denoiser.hidden(ids, sigma)
    return time.process_time() - start


def peak(name: str, kind: Implementation, quick: bool) -> None:
    """Print the megabytes that two updates and a finish need beyond the model (a child process)."""
    tiny = replace(shape_of(True), length=8)
    run(model(name, tiny), name, kind, 2)  # whatever is imported on first use
    denoiser = model(name, shape_of(quick))
    memory = PeakMemory(torch.device("cpu"))
    run(denoiser, name, kind, 2)
    print(json.dumps((memory.extra() or 0) / 2**20))


def measured(name: str, shape: DiTShape, steps: int, quick: bool) -> dict[str, Any]:
    denoiser = model(name, shape)
    row: dict[str, Any] = {"sampler": name, "steps": steps, "backbone": backbone_seconds(denoiser)}
    for kind in KINDS:
        run(denoiser, name, kind, 2)  # warm-up
    for kind in KINDS:
        row[f"{kind}_seconds"], row[f"{kind}_calls"] = run(denoiser, name, kind, steps)
        command = [sys.executable, __file__, "--peak", name, kind, *(["--quick"] if quick else [])]
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
        row[f"{kind}_mb"] = json.loads(answer.stdout)
    row["speedup"] = row["dense_seconds"] / row["fast_seconds"]
    row["memory_ratio"] = row["dense_mb"] / row["fast_mb"]
    row["of_limit"] = row["backbone"] * (steps + 1) / row["fast_seconds"]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a smaller shape, about a minute")
    parser.add_argument("--steps", type=int, default=None, help="64; 16 with --quick")
    parser.add_argument("--samplers", default=",".join(SAMPLERS))
    parser.add_argument("--json", type=Path, help="write the numbers here as well")
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.peak:
        name, kind = options.peak
        peak(name, kind, options.quick)
        return
    shape, steps = shape_of(options.quick), options.steps or (16 if options.quick else 64)
    print(
        f"width {shape.hidden_dim}, {shape.n_blocks} blocks, {shape.vocab_size} classes, ", end=""
    )
    print(f"L = {shape.length}, M = {steps}; CPU seconds of one thread; float64 draws\n")
    titles = ["sampler", "dense s", "fast s", "speed-up", "dense calls", "fast calls"]
    titles += ["student backbone alone", "dense MB", "fast MB", "ratio"]
    print("| " + " | ".join(titles) + " |\n" + "|---" * len(titles) + "|", flush=True)
    rows = []
    for name in options.samplers.split(","):
        row = measured(name, shape, steps, options.quick)
        rows.append(row)
        print(
            f"| {row['sampler']} | {row['dense_seconds']:.2f} | {row['fast_seconds']:.2f} "
            f"| {row['speedup']:.2f}x | {row['dense_calls']} | {row['fast_calls']} "
            f"| {row['of_limit']:.0%} | {row['dense_mb']:.0f} | {row['fast_mb']:.0f} "
            f"| {row['memory_ratio']:.1f}x |",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
