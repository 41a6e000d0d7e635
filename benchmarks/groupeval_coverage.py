"""How often GEQ's 95% intervals hold what they should, by pool size, validity and the judge's mood.

    python benchmarks/groupeval_coverage.py [--quick]

Pools are drawn from a law whose mean quality is known: a text is valid with some probability; a
valid one has a level of its own (uniform between .25 and .75), and each of its two judgments gives
four grades, binomial(2, level). In the second table all texts are valid, qualities are not rounded,
and what a judge thinks of a group of eight moves all of it, by a normal number with some standard
deviation in points of GEQ. For GEQ the interval of one pool must hold the law's mean; for
differences that of two pools of one law must hold 0. `claimed` is how often a difference of such
null pairs is told to exclude 0, by the rule of at least five outputs above 0 on each side.

The third table is why GED has no interval: Student's limits over the groups of a partition, as if
the second partition added nothing, for texts of some number of equally likely modes.

The fourth (`--answers` prints it alone) is of answers to prompts: the share of a prompt's answers
that are valid is beta-distributed (`apart` is the sum of its parameters: the smaller, the more the
answers to one prompt go together), a prompt has a level of its own for the four grades, and a
Poisson number of equally likely modes. `wide` is how often prompts are too skewed for Student's
limits, so that the interval is that of any scores with these bounds; the others are how often an
interval holds the law's mean.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy loads

import numpy as np

from strop.groupeval.bootstrap import FLOOR
from strop.groupeval.by_prompt import over_prompts, share_over_prompts, too_skewed
from strop.stats.resample import Crossed, crossed, student

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from ged_formula import ged_of_counts

SIZES, SIZE = (8, 16, 32, 64, 128), 8
VALID = (0.05, 0.2, 0.5, 0.95)
MOODS = (0.0, 0.5, 1.0, 1.5)
LEVELS = (0.25, 0.75)
MODES = (5, 50, 300, 2000)
PROMPTS = (10, 30, 60, 125)
LAWS = ((0.5, 2.0, 3), (0.95, 2.0, 3), (0.95, 20.0, 50), (0.99, 2.0, 300))
"""Of answers: the share that is valid, `apart`, and the mean number of modes."""
MANY = 400_000
"""Prompts whose mean is the law's."""


def pool(n: int, valid: float, mood: float, rng: np.random.Generator) -> tuple[Crossed, int]:
    """The GEQ of one pool, two judgments per output, and how many outputs are above 0."""
    level = rng.uniform(*LEVELS, n)
    is_valid = rng.random(n) < valid
    grades = rng.binomial(2, np.broadcast_to(level[:, None, None], (n, 2, 4))).sum(axis=2)
    q = 10 / 8 * np.where(is_valid[:, None], grades, 0)
    groups = np.stack([rng.permutation(n) // SIZE for _ in range(2)], 1)
    moods = rng.normal(0, mood, (n // SIZE, 2))
    q = q + np.stack([moods[groups[:, r], r] for r in range(2)], 1)
    return crossed(q, np.ones((n, 2), bool), groups), int((q > 0).any(axis=1).sum())


def measure(n: int, valid: float, mood: float, pools: int, seed: int) -> dict[str, float]:
    rng = np.random.default_rng([seed, n, round(1000 * valid), round(10 * mood)])
    truth = 10 * valid * sum(LEVELS) / 2
    geq = difference = claimed = 0
    for _ in range(pools):
        (a, above_a), (b, above_b) = (pool(n, valid, mood, rng) for _ in range(2))
        geq += not a.interval().excludes(truth)
        apart = (b - a).interval().excludes(0)
        difference += not apart
        claimed += apart and min(above_a, above_b) >= FLOOR
    return {"geq": geq / pools, "difference": difference / pools, "claimed": claimed / pools}


def diversities(modes: np.ndarray) -> np.ndarray:
    """GED of every group."""
    counts = [np.unique(one, return_counts=True)[1].tolist() for one in modes.reshape(-1, SIZE)]
    return np.array([ged_of_counts(one, SIZE) for one in counts])


def ged_held(n: int, modes: int, pools: int, seed: int) -> float:
    rng = np.random.default_rng([seed, n, modes])
    truth = diversities(rng.integers(modes, size=SIZE * 20_000)).mean()
    held = 0
    for _ in range(pools):
        pool = rng.integers(modes, size=n)
        both = np.stack([diversities(rng.permutation(pool)) for _ in range(2)])
        error = np.sqrt(both.var(axis=1, ddof=1).mean() / (n // SIZE))
        held += abs(both.mean() - truth) <= student(0.95, n // SIZE - 1) * error
    return held / pools


def answers(
    prompts: int, each: int, law: tuple[float, float, int], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Quality, diversity, valid share and mode entropy of every prompt's answers."""
    valid, apart, modes = law
    share = rng.beta(valid * apart, (1 - valid) * apart, prompts)
    is_valid = rng.random((prompts, each)) < share[:, None]
    level = rng.uniform(*LEVELS, prompts)[:, None, None]
    grades = rng.binomial(2, np.broadcast_to(level, (prompts, each, 4))).sum(axis=2)
    kinds = np.maximum(rng.poisson(modes, prompts), 1)[:, None]
    mode = np.where(is_valid, rng.integers(kinds, size=(prompts, each)), -1)
    n_valid = is_valid.sum(axis=1)
    alike = (mode[:, :, None] == mode[:, None, :]).sum(axis=2) / np.maximum(n_valid, 1)[:, None]
    logs = np.where(is_valid, -np.log(np.where(is_valid, alike, 1.0)), 0.0)
    entropy = logs.sum(axis=1) / np.maximum(n_valid, 1)
    return {
        "GEQ": (10 / 8 * np.where(is_valid, grades, 0)).mean(axis=1),
        "GED": 10 * n_valid / each * entropy / np.log(each),
        "valid": n_valid / each,
        "mode entropy": entropy,
    }


def answers_held(
    prompts: int, each: int, law: tuple[float, float, int], pools: int, seed: int
) -> tuple[dict[str, float], dict[str, float]]:
    """How often each score's interval holds, and how often it is the wide one."""
    rng = np.random.default_rng([seed, prompts, each, *(round(1000 * one) for one in law)])
    truth = {name: values.mean() for name, values in answers(MANY, each, law, rng).items()}
    truth["valid"] = law[0]
    ends = {"GEQ": 10.0, "GED": 10.0, "mode entropy": float(np.log(each))}
    held, wide = dict.fromkeys(truth, 0), dict.fromkeys(truth, 0)
    for _ in range(pools):
        for name, values in answers(prompts, each, law, rng).items():
            some = values.tolist()
            found = (
                share_over_prompts(some, each)
                if name == "valid"
                else over_prompts(some, (0.0, ends[name]))
            )
            wide[name] += too_skewed(some)
            held[name] += found.bounded and not found.excludes(truth[name])
    shares = [{name: count / pools for name, count in one.items()} for one in (held, wide)]
    return shares[0], shares[1]


def print_answers(pools: int, seed: int) -> None:
    names = ("GEQ", "GED", "valid", "mode entropy")
    print("| valid | apart | modes | answers | prompts | " + " | ".join(names) + " | GED: wide |")
    print("|---" * 10 + "|")
    for law in LAWS:
        for each in (4, 8):
            for prompts in PROMPTS:
                held, wide = answers_held(prompts, each, law, pools, seed)
                told = " | ".join(f"{held[name]:.3f}" for name in names)
                head = f"{law[0]:.0%} | {law[1]:g} | {law[2]} | {each} | {prompts}"
                print(f"| {head} | {told} | {wide['GED']:.3f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the pools")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--answers", action="store_true", help="the fourth table alone")
    options = parser.parse_args()
    pools = 200 if options.quick else 2_000
    print(f"{pools} pools each, seed {options.seed}")
    if options.answers:
        print_answers(pools, options.seed)
        return
    laws = [("valid", [(f"{v:.0%}", v, 0.0) for v in VALID])]
    laws.append(("mood", [(f"{m:g}", 1.0, m) for m in MOODS]))
    for name, rows in laws:
        print(
            f"| n | {name} | GEQ holds the mean | difference holds 0 | claimed |\n"
            "|---|---|---|---|---|"
        )
        for n in SIZES[name == "mood" :]:
            for words, valid, mood in rows:
                row = measure(n, valid, mood, pools, options.seed)
                shares = " | ".join(f"{row[key]:.3f}" for key in ("geq", "difference", "claimed"))
                print(f"| {n} | {words} | {shares} |", flush=True)
    print("| n | modes | GED would hold the mean |\n|---|---|---|")
    for n in SIZES[2:]:
        for modes in MODES:
            print(f"| {n} | {modes} | {ged_held(n, modes, pools // 4, options.seed):.3f} |")
    print_answers(pools, options.seed)


if __name__ == "__main__":
    main()
