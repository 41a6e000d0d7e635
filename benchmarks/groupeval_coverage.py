"""How often GEQ's 95% intervals hold what they should, by pool size and share of valid texts.

    python benchmarks/groupeval_coverage.py [--quick]

Pools are drawn from a law whose mean quality is known: a text is valid with some probability; a
valid one has a level of its own (uniform between .25 and .75), and each of its two judgments gives
four grades, binomial(2, level). For GEQ the interval of one pool must hold the law's mean; for
differences that of two pools of one law must hold 0. `claimed` is how often a difference of such
null pairs is told to exclude 0, by the rule of at least five outputs above 0 on each side.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy loads

import numpy as np

from strop.groupeval.bootstrap import FLOOR, geq_interval, geq_replicates
from strop.groupeval.scores import Cell

SIZES = (8, 16, 32, 64, 128)
VALID = (0.05, 0.2, 0.5, 0.95)
LEVELS = (0.25, 0.75)


def pool(n: int, valid: float, rng: np.random.Generator) -> Cell:
    """The judgments of one pool, two per output."""
    level = rng.uniform(*LEVELS, n)
    is_valid = rng.random(n) < valid
    grades = rng.binomial(2, np.broadcast_to(level[:, None, None], (n, 2, 4))).sum(axis=2)
    q = 10 / 8 * np.where(is_valid[:, None], grades, 0)
    outputs = tuple(range(n))
    return Cell("cell", (), outputs, (0, 1), q, np.ones((n, 2), dtype=bool), {})


def drawn(cell: Cell, v: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return geq_replicates(cell, v, rng.standard_exponential((len(v), len(cell.outputs))))


def measure(n: int, valid: float, pools: int, replicates: int, seed: int) -> dict[str, float]:
    rng = np.random.default_rng([seed, n, round(1000 * valid)])
    truth = 10 * valid * sum(LEVELS) / 2
    geq = difference = claimed = 0
    for _ in range(pools):
        v = rng.dirichlet(np.ones(2), replicates)
        a, b = pool(n, valid, rng), pool(n, valid, rng)
        one, other = drawn(a, v, rng), drawn(b, v, rng)
        geq += not geq_interval(one, a).excludes(truth)
        apart = geq_interval(other - one, a, b).excludes(0)
        difference += not apart
        claimed += apart and min(a.nonzero, b.nonzero) >= FLOOR
    return {"geq": geq / pools, "difference": difference / pools, "claimed": claimed / pools}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the pools")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    pools, replicates = (200 if options.quick else 2_000), 1_000
    print(f"{pools} pools each, {replicates} replicates, seed {options.seed}")
    print(
        "| n | valid | GEQ holds the mean | difference holds 0 | claimed |\n|---|---|---|---|---|"
    )
    for n in SIZES:
        for valid in VALID:
            row = measure(n, valid, pools, replicates, options.seed)
            shares = " | ".join(f"{row[key]:.3f}" for key in ("geq", "difference", "claimed"))
            print(f"| {n} | {valid:.0%} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
