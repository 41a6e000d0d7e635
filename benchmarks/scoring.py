"""Scoring text: the head in slices against all logits at once, time and peak memory.

GPT-2's vocabulary and width, random weights: cost, not quality. `logits` is what a direct
computation with transformers does: all logits of the batch, their log-softmax, the targets'
part. Both are timed in turn inside one process; the peaks are of a process each, on top of the
weights.

    python benchmarks/scoring.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from functools import partial
from typing import Any

import numpy as np
import torch

from sampling import alternate
from strop.instruments.cost import PeakMemory
from strop.measure.evaluator import Evaluator, EvaluatorRecipe
from strop.measure.perplexity import score_readings
from strop.measure.spans import Reading
from strop.spec import EvaluatorSpec

MEMORY_AT_LEAST = 8.0
"""How many times less memory the slices must take."""
NO_SLOWER = 1.05
"""Seconds of the slices over seconds of all logits; the margin is the noise of a busy machine."""


def build(blocks: int, length: int) -> Evaluator:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    network: Any = GPT2LMHeadModel(GPT2Config(n_layer=blocks, n_positions=length)).eval()
    spec = EvaluatorSpec(name="random", sha256="", tokenizer="", context=length)
    return Evaluator(
        spec=spec,
        source="random weights",
        network=network,
        tokenizer=None,
        device=torch.device("cpu"),
        end_of_text=None,
        sliced=True,
        recipe=EvaluatorRecipe("random", None, "float32"),
    )


def texts(batch: int, length: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 50257, length) for _ in range(batch)]


@torch.no_grad()
def all_logits(evaluator: Evaluator, ids: list[np.ndarray]) -> np.ndarray:
    batch = torch.from_numpy(np.stack(ids))
    logits = evaluator.network(input_ids=batch, use_cache=False).logits
    log_probs = logits[:, :-1].log_softmax(-1)
    return log_probs.gather(-1, batch[:, 1:, None])[..., 0].double().numpy()


def slices(evaluator: Evaluator, ids: list[np.ndarray]) -> np.ndarray:
    scored = np.arange(len(ids[0])) > 0
    return np.stack(score_readings(evaluator, [Reading(one, scored) for one in ids]))[:, 1:]


WAYS = {"logits": all_logits, "slices": slices}


def measure(blocks: int, length: int, batch: int, repeats: int) -> dict[str, Any]:
    evaluator, ids = build(blocks, length), texts(batch, length)
    actions = {name: partial(way, evaluator, ids) for name, way in WAYS.items()}
    middle = alternate(actions, repeats)
    values = {name: action() for name, action in actions.items()}
    peaks = {name: peak_of(name, blocks, length, batch) for name in WAYS}
    return {
        "blocks": blocks,
        "length": length,
        "batch": batch,
        "logits_s": middle["logits"],
        "slices_s": middle["slices"],
        "time_ratio": middle["slices"] / middle["logits"],
        "logits_mb": peaks["logits"],
        "slices_mb": peaks["slices"],
        "memory_ratio": peaks["logits"] / peaks["slices"],
        "largest_difference": float(np.abs(values["logits"] - values["slices"]).max()),
    }


def peak_of(name: str, *shape: int) -> float:
    command = [sys.executable, __file__, "--peak", name, *map(str, shape)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)


def print_peak(name: str, blocks: int, length: int, batch: int) -> None:
    """Peak resident memory of one pass on top of what the process holds before it, in MB."""
    evaluator, ids = build(blocks, length), texts(batch, length)
    slices(evaluator, [one[:8] for one in ids])  # what the libraries allocate once
    memory = PeakMemory(torch.device("cpu"))
    WAYS[name](evaluator, ids)
    print(json.dumps((memory.extra() or 0) / 2**20))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one block, one batch")
    parser.add_argument("--peak", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.peak:
        name, *shape = options.peak
        print_peak(name, *map(int, shape))
        return 0
    cases = [(1, 512, 4, 1)] if options.quick else [(1, 1024, 4, 5), (12, 1024, 4, 3)]
    rows = [measure(*case) for case in cases]
    print("| blocks | B | L | logits s | slices s | ratio | logits MB | slices MB | less |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['blocks']} | {row['batch']} | {row['length']} | {row['logits_s']:.2f} | "
            f"{row['slices_s']:.2f} | {row['time_ratio']:.2f} | {row['logits_mb']:.0f} | "
            f"{row['slices_mb']:.0f} | {row['memory_ratio']:.1f}x |"
        )
    largest = max(row["largest_difference"] for row in rows)
    print(f"largest difference of a log-probability: {largest:.1e}")
    bad = [r for r in rows if r["memory_ratio"] < MEMORY_AT_LEAST or r["time_ratio"] > NO_SLOWER]
    print(
        f"asked: memory {MEMORY_AT_LEAST:g}x less, no slower; missed in {len(bad)} of {len(rows)}"
    )
    return 3 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
