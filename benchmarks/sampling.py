"""Dense against fast sampling at the MDLM-Small shape: time, peak memory, network calls.

    python benchmarks/sampling.py [--quick] [--threads N] [--json FILE]

Random weights (speed does not depend on them) with a Zipf output bias (the float32 law does depend
on the token distribution). Everything compared is timed inside one process, turn by turn, and
reported as medians: with one thread (the default) in CPU seconds, which other work on the machine
disturbs little, with more in wall-clock seconds. What is derived and not measured is labelled so:
totals at B = 8 and large M come from the measured cost of a round and the counted rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from strop.checkpoints.config import SHAPES
from strop.denoisers.base import all_log_probs
from strop.denoisers.dit import DiT
from strop.denoisers.network import MDLM
from strop.instruments.cost import PeakMemory
from strop.samplers import dense_batch, fast
from strop.samplers.ancestral import LatticeRace, RevealFirst, update
from strop.samplers.machinery.dense import DenseRun
from strop.samplers.machinery.packed import FastDraw, Packed
from strop.samplers.machinery.start import reveal_grid
from strop.spec import CheckpointSpec, Implementation, Precision, SamplerSpec

LENGTH = 1024
PRECISIONS: tuple[Precision, ...] = ("float64", "float32")
KINDS: tuple[Implementation, ...] = ("dense", "fast")
BUDGETS = (64, 1024)


def small_model() -> MDLM:
    """The 170M shape with random weights; a Zipf law in the output bias."""
    shape = SHAPES["small"]
    torch.manual_seed(0)
    network = DiT(shape)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "adaLN" in name or name == "output_layer.linear.weight":
                parameter.normal_(std=0.02)
        rank = torch.randperm(shape.vocab_size).float()
        network.output_layer.linear.bias.copy_(-(rank + 2).log())
    spec = CheckpointSpec(family="mdlm", sha256="random", shape={"hidden_dim": shape.hidden_dim})
    return MDLM(network, spec, source="random weights")


class Replay:
    """The model's all-mask prediction at every position: its law's rounds without its backbone."""

    time_conditioned, codec, source = False, None, "replay"

    def __init__(self, model: MDLM) -> None:
        self.spec, self.device = model.spec, model.device
        self.vocab_size, self.mask_id, self.length = model.vocab_size, model.mask_id, model.length
        blank = torch.full((1, LENGTH), model.mask_id)
        rows = torch.zeros(LENGTH, dtype=torch.long), torch.arange(LENGTH)
        hidden = model.hidden(blank, None)
        self._rows = model.logits(hidden, rows[0][:64], rows[1][:64])

    def hidden(self, ids: torch.Tensor, sigma: torch.Tensor | None) -> torch.Tensor:  # noqa: ARG002
        return torch.zeros((*ids.shape, 1))

    def logits(
        self,
        hidden: torch.Tensor,  # noqa: ARG002
        sequence: torch.Tensor,  # noqa: ARG002
        position: torch.Tensor,
    ) -> torch.Tensor:
        return self._rows[position % len(self._rows)]

    def log_probs(self, ids: torch.Tensor, sigma: torch.Tensor | None = None) -> torch.Tensor:
        return all_log_probs(self, ids, sigma)


def now() -> float:
    """The clock that suits the number of threads."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def alternate(actions: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median seconds of each action, all of them in turn."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for action in actions.values():
        action()  # warm-up
    for _ in range(repeats):
        for name, action in actions.items():
            start = now()
            action()
            times[name].append(now() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def round_costs(model: MDLM, batch: int, repeats: int) -> dict[str, float]:
    """Seconds per sequence of the parts of a dense step and of a fast round, half hidden."""
    rng = np.random.default_rng(1)
    hide = torch.from_numpy(rng.random((batch, LENGTH)) < 0.5)
    ids = torch.from_numpy(rng.integers(0, model.mask_id, (batch, LENGTH)))
    ids = torch.where(hide, model.mask_id, ids)
    actions: dict[str, Callable[[], Any]] = {"backbone": lambda: model.hidden(ids, None)}
    for precision in PRECISIONS:
        spec = SamplerSpec(steps=64, precision=precision, implementation="dense")
        grid = reveal_grid(spec)
        numbers, source = np.arange(batch), torch.Generator().manual_seed(0)
        run = DenseRun(model, spec, grid, numbers, LENGTH, generator=source)
        prediction = run.log_probs(ids, torch.zeros(())).to(run.dtype).exp()
        t, s = grid.t[32], grid.s[32]

        def network(run: DenseRun = run) -> None:
            run.log_probs(ids, torch.zeros(())).to(run.dtype).exp()

        def draw(run: DenseRun = run, p: torch.Tensor = prediction, t: Any = t, s: Any = s) -> None:
            update(run, ids, p, t, s)

        actions[f"dense {precision} network"] = network
        actions[f"dense {precision} draw"] = draw
        for steps in BUDGETS:
            actions[f"fast {precision} M={steps}"] = one_round(
                model, precision, steps, ids, hide.numpy()
            )
    return {name: value / batch for name, value in alternate(actions, repeats).items()}


def one_round(
    model: MDLM, precision: Precision, steps: int, ids: torch.Tensor, hide: np.ndarray
) -> Callable[[], None]:
    """A fast round as the sampler runs it: network, head and draw at the rows of this round."""
    spec = SamplerSpec(steps=steps, precision=precision)
    batch = len(ids)
    packed = Packed(FastDraw(model, spec, 0, (), batch, LENGTH))
    kind = RevealFirst if precision == "float64" else LatticeRace
    slots = np.arange(batch)
    wanted = np.zeros_like(hide)
    # A round has length / steps rows in the mean, and at least one.
    rows = max(1, round(LENGTH / steps))
    for row, hidden in zip(wanted, hide, strict=True):
        row[np.flatnonzero(hidden)[:rows]] = True

    law = kind(packed, 0)

    def play() -> None:
        packed.output[:] = slots
        packed.ids.copy_(ids)
        packed.masked[:], packed.blank[:], packed.round[:] = hide, False, steps // 2
        law.enter(slots, slots)
        law._due[:] = np.where(wanted, steps // 2, packed.done)
        packed._think(slots)
        packed._draw(slots, law)

    return play


def counted_rounds(model: MDLM, sequences: int) -> dict[str, float]:
    """Network passes per sequence in the fast sampler, counted (the shared one at zero)."""
    replay = Replay(model)
    counted = {}
    for precision in PRECISIONS:
        for steps in BUDGETS:
            spec = SamplerSpec(steps=steps, precision=precision)
            done = list(
                fast(
                    replay,
                    spec,
                    seed=1,
                    outputs=range(sequences),
                    slots=sequences,
                    length=LENGTH,
                )
            )
            counted[f"{precision} M={steps}"] = statistics.mean(one.nfe for one in done) - 1
    return counted


def necessary(steps: int) -> float:
    """Rounds in which a sequence reveals something: M (1 - (1 - p)^L)."""
    p = (1 - 1e-5) / steps
    return steps * (1 - (1 - p) ** LENGTH)


def public_calls(steps: int, batch: int) -> float:
    """Network calls of the public cached sampler: a batch shares its cache, the finish has none."""
    p = (1 - 1e-5) / steps
    return 2 + (steps - 1) * (1 - (1 - p) ** (LENGTH * batch))


def derive(
    costs: dict[str, float], rounds: dict[str, float], whole: list[dict[str, Any]], batch: int
) -> list[dict[str, Any]]:
    """Totals per sequence at B = `batch`, from measured costs and counted rounds.

    The dense cost of a step is that of the whole run at one sequence. Its parts, timed alone, add
    up to more (4.5 against 6.3 s in float64, for a reason not established; new memory is a guess),
    so they only say how to split it. Cost is taken as linear in B.
    """
    rows = []
    for precision in PRECISIONS:
        network = costs[f"dense {precision} network"]
        share = network / (network + costs[f"dense {precision} draw"])
        run = next(r for r in whole if r["precision"] == precision and r["batch"] == 1)
        step = run["dense_seconds"] / (run["dense_calls"] * share + run["steps"] * (1 - share))
        for steps in BUDGETS:
            ours = rounds[f"{precision} M={steps}"]
            fast_seconds = ours * costs[f"fast {precision} M={steps}"]
            calls = public_calls(steps, batch)
            dense_seconds = step * (calls * share + steps * (1 - share))
            rows.append(
                {
                    "precision": precision,
                    "steps": steps,
                    "batch": batch,
                    "dense_calls": calls,
                    "fast_calls": ours,
                    "necessary_calls": necessary(steps),
                    "dense_seconds": dense_seconds,
                    "fast_seconds": fast_seconds,
                    "speedup": dense_seconds / fast_seconds,
                    "share_of_limit": necessary(steps) * costs["backbone"] / fast_seconds,
                    "kind": "derived",
                }
            )
    return rows


def whole_runs(model: MDLM, steps: int, batch: int) -> list[dict[str, Any]]:
    """Both samplers from start to end, one after the other."""
    rows = []
    for precision in PRECISIONS:
        dense_spec = SamplerSpec(steps=steps, precision=precision, implementation="dense")
        fast_spec = SamplerSpec(steps=steps, precision=precision)
        start = now()
        dense_done = dense_batch(model, dense_spec, seed=0, first=0, count=batch, length=LENGTH)
        middle = now()
        fast_done = list(
            fast(model, fast_spec, seed=0, outputs=range(batch), slots=batch, length=LENGTH)
        )
        end = now()
        rows.append(
            {
                "precision": precision,
                "steps": steps,
                "batch": batch,
                "dense_calls": dense_done[0].nfe,
                "fast_calls": statistics.mean(one.nfe for one in fast_done),
                "necessary_calls": necessary(steps),
                "dense_seconds": (middle - start) / batch,
                "fast_seconds": (end - middle) / batch,
                "speedup": (middle - start) / (end - middle),
                "share_of_limit": None,
                "kind": "measured",
            }
        )
    return rows


def peak_extra_memory(kind: Implementation, precision: Precision, batch: int) -> None:
    """Print the megabytes that a few steps need on top of the loaded model (a child process)."""
    model = small_model()
    peak = PeakMemory(model.device)
    spec = SamplerSpec(steps=64, precision=precision, implementation=kind)
    if kind == "dense":
        grid = reveal_grid(spec)
        numbers, source = np.arange(batch), torch.Generator().manual_seed(0)
        run = DenseRun(model, spec, grid, numbers, LENGTH, generator=source)
        ids = run.start()
        for t, s in zip(grid.t[:2], grid.s[:2], strict=True):
            prediction = run.log_probs(ids, torch.zeros(())).to(run.dtype).exp()
            ids = update(run, ids, prediction, t, s)
            del prediction
    else:
        short = SamplerSpec(steps=3, precision=precision)  # more rows a round than 64 steps have
        for _ in fast(model, short, seed=0, outputs=range(batch), slots=batch, length=LENGTH):
            pass
    extra = peak.extra()
    if extra is None:
        sys.exit("peak memory is measured on Linux only")
    print(json.dumps(extra / 2**20))


def memory(batch: int) -> list[dict[str, Any]]:
    rows = []
    for precision in PRECISIONS:
        peaks = {}
        for kind in KINDS:
            command = [sys.executable, __file__, "--peak", kind, precision, str(batch)]
            answer = subprocess.run(command, capture_output=True, text=True, check=True)
            peaks[kind] = json.loads(answer.stdout)
        rows.append(
            {
                "precision": precision,
                "batch": batch,
                "dense_mb": peaks["dense"],
                "fast_mb": peaks["fast"],
                "ratio": peaks["dense"] / peaks["fast"],
            }
        )
    return rows


def machine() -> str:
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [x for x in cpuinfo.read_text().splitlines() if x.startswith("model name")]
        name = names[0].split(":")[1].strip() if names else name
    threads = torch.get_num_threads()
    clock = "CPU seconds, one thread" if threads == 1 else f"wall-clock seconds, {threads} threads"
    return f"{name}, {os.cpu_count()} cores, torch {torch.__version__}; {clock}"


def report(document: dict[str, Any]) -> None:
    print(f"\n{document['machine']}; MDLM-Small shape, L = {LENGTH}; seconds per sequence\n")
    titles = ["law", "M", "B", "dense calls", "fast calls", "needed", "dense s", "fast s"]
    titles += ["speed-up", "of limit", ""]
    print("| " + " | ".join(titles) + " |\n" + "|---" * len(titles) + "|")
    for row in document["runs"]:
        share = "" if row["share_of_limit"] is None else f"{row['share_of_limit']:.0%}"
        print(
            f"| {row['precision']} | {row['steps']} | {row['batch']} | {row['dense_calls']:.0f} "
            f"| {row['fast_calls']:.1f} | {row['necessary_calls']:.1f} "
            f"| {row['dense_seconds']:.1f} | {row['fast_seconds']:.1f} "
            f"| {row['speedup']:.2f}x | {share} | {row['kind']} |"
        )
    print("\n| law | B | dense peak MB | fast peak MB | ratio |\n|---|---|---|---|---|")
    for row in document["memory"]:
        print(
            f"| {row['precision']} | {row['batch']} | {row['dense_mb']:.0f} | {row['fast_mb']:.0f} "
            f"| {row['ratio']:.1f}x |"
        )
    print("\nround costs (s per sequence, measured):")
    for batch, costs in document["round_costs"].items():
        parts = ", ".join(f"{name} {value:.3f}" for name, value in costs.items())
        print(f"  B={batch}: {parts}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Dense against fast sampling.")
    parser.add_argument("--quick", action="store_true", help="fewer repeats, shorter runs")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the numbers here as well")
    parser.add_argument("--peak", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        kind, precision, batch = options.peak
        peak_extra_memory(kind, precision, int(batch))
        return
    model = small_model()
    repeats = 2 if options.quick else 5
    costs = {1: round_costs(model, 1, repeats)}
    if not options.quick:
        costs[2] = round_costs(model, 2, repeats)
    rounds = counted_rounds(model, sequences=2 if options.quick else 8)
    runs = whole_runs(model, steps=2 if options.quick else 16, batch=1)
    if not options.quick:
        runs += whole_runs(model, steps=4, batch=2)
    runs += derive(costs[1], rounds, runs, batch=8)
    del model
    peaks = memory(1) if options.quick else memory(1) + memory(4)
    document = {
        "machine": machine(),
        "runs": runs,
        "memory": peaks,
        "round_costs": costs,
        "rounds": rounds,
    }
    report(document)
    if options.json:
        options.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
