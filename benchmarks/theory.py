"""Time and memory of the theory laboratory on one core: the two promises of its page.

    python benchmarks/theory.py [--quick]

- the 280-target study takes a few seconds;
- L = 6, V = 4, N = 4 (4,096 outputs, 4,096 paths) enumerates within 10 s and 2 GB.

The vectorised law is compared with a plain loop over paths and outputs in the same run, as a ratio.
"""

from __future__ import annotations

import argparse
import json
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy loads

import resource
import sys
import time
from collections.abc import Callable
from itertools import product
from typing import Any, TypeVar

import numpy as np

from strop.theory.accounting import account
from strop.theory.sampler import LawProblem, output_by_paths, output_by_subsets
from strop.theory.schedules import run_study
from strop.theory.target import Conditionals, Target
from strop.theory.temperature import direction
from strop.theory.verification import verify_all

T = TypeVar("T")


def peak_gb() -> float:
    """The process's largest resident memory so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def loop_law(problem: LawProblem) -> np.ndarray:
    """pi by plain loops over paths, outputs and coordinates, with dictionary tables."""
    shape, L = problem.target.shape, problem.target.L
    q, masses = problem.denoiser, problem.masses
    tables = {(i, m): q.table(i, m) for i in range(L) for m in range(1 << L) if not m >> i & 1}
    out = {}
    for x in product(*map(range, shape)):
        total = 0.0
        for rounds in product(range(problem.N), repeat=L):
            chance = 1.0
            for i, k in enumerate(rounds):
                seen = sum(1 << j for j in range(L) if rounds[j] < k)
                at = tuple(x[j] if (seen | 1 << i) >> j & 1 else 0 for j in range(L))
                chance *= masses[k] * tables[i, seen][at]
            total += chance
        out[x] = total
    return np.array(list(out.values()))


def timed(function: Callable[..., T], *args: Any, repeats: int = 1) -> tuple[float, T]:
    """CPU seconds of the best of a few runs, and the last result."""
    best, left = float("inf"), repeats
    while True:
        start = time.process_time()
        result = function(*args)
        best, left = min(best, time.process_time() - start), left - 1
        if left <= 0:
            return best, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="skip the slower parts")
    quick = parser.parse_args().quick
    rng = np.random.default_rng(0)
    report: dict[str, float] = {}

    small = LawProblem.bayes(Target.dirichlet((3, 3, 3), 1.0, rng), [0, 0.3, 0.6, 1])
    tables = small.tables()
    slow, wanted = timed(loop_law, small)
    by_paths, first = timed(lambda: np.exp(output_by_paths(tables, small.paths())), repeats=5)
    by_sets, second = timed(lambda: np.exp(output_by_subsets(tables, small.masses)), repeats=5)
    assert np.allclose(first, wanted, atol=1e-14)
    assert np.allclose(second, wanted, atol=1e-14)
    report["L3V3N3_loop_over_paths_ratio"] = slow / by_paths
    report["L3V3N3_loop_over_subsets_ratio"] = slow / by_sets

    seconds, study = timed(run_study)
    report["study_280_cpu_seconds"] = seconds
    report["study_280_sharpening_count"] = float((study.g < 0).sum())

    large = LawProblem(
        Target.dirichlet((4,) * 6, 1.0, rng),
        np.array([0, 0.2, 0.5, 0.8, 1]),
        Conditionals.bayes(Target.dirichlet((4,) * 6, 1.0, rng)),
        np.array([1.2]),
    )
    seconds, result = timed(account, large)
    report["L6V4N4_account_cpu_seconds"] = seconds
    report["L6V4N4_residual"] = abs(result.KL_out - (result.B_N + result.C_N - result.R_N))
    report["L6V4N4_direction_cpu_seconds"] = timed(direction, large)[0]
    report["peak_memory_gb"] = peak_gb()
    if not quick:
        seconds, verified = timed(verify_all)
        report["verify_cpu_seconds"] = seconds
        report["verify_assertions"] = float(sum(verified.counts.values()))
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
