"""The partition-blocked bootstrap against a plain loop, and how planning and scoring grow.

    python benchmarks/groupeval.py [--quick]

The promises, as ratios inside one run: at least 60 times a plain loop for a cell of the paper's
size (128 outputs, two partitions of groups of eight, 10,000 replicates), drawing the weights
included; and ten times the texts in one cell (1,000, 10,000, 100,000) take at most 25 times as long
to plan, to read and to score (ten times the work, and out of the processor's cache).
"""

from __future__ import annotations

import argparse
import json
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy loads

import math
import random
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np

from strop.groupeval.bootstrap import partition_weights, replicate, score
from strop.groupeval.judgments import load_judgments
from strop.groupeval.plan import Source, make_plan
from strop.groupeval.profile import Profile, sha256
from strop.groupeval.scores import JudgedCell, by_cell
from strop.groupeval.series import Series, write_plan
from strop.groupeval.verdict import Grade, GroupVerdict
from strop.spec import JudgeSpec

T = TypeVar("T")

LEAST, MOST_GROWTH = 60.0, 25.0
SIZE = 8
DIMENSIONS = ("readability", "coherence", "substance", "nondegeneration")


def plain_ged(cell: JudgedCell, v: Sequence[float], w: Sequence[float]) -> float:
    """GED of one replicate, by loops over groups and modes."""
    index = {output: i for i, output in enumerate(cell.outputs)}
    column = {partition: r for r, partition in enumerate(cell.partitions)}
    diversity = weight = 0.0
    for verdict in cell.verdicts:
        share = v[column[verdict.partition]]
        masses: dict[str | None, float] = {}
        total = valid = 0.0
        for one in verdict.outputs:
            i = index[one.index]
            total += w[i]
            if one.valid:
                valid += w[i]
                masses[one.mode] = masses.get(one.mode, 0.0) + w[i]
        spread = -sum(m / valid * math.log(m / valid) for m in masses.values()) if valid else 0.0
        ged = 10 * valid / total * spread / math.log(len(verdict.outputs))
        diversity += share * total * ged
        weight += share * total
    return diversity / weight


def plain_loop(cell: JudgedCell, replicates: int, seed: int) -> list[float]:
    """What the vectorised form does, one replicate at a time, its weights included."""
    rng = np.random.default_rng(seed)
    scores = []
    for _ in range(replicates):
        v = rng.dirichlet(np.ones(len(cell.partitions)))
        w = rng.dirichlet(np.ones(len(cell.outputs)))
        scores.append(plain_ged(cell, v.tolist(), w.tolist()))
    return scores


def random_cell(outputs: int, partitions: int, rng: np.random.Generator) -> JudgedCell:
    """Judgments with some invalid outputs and modes of every size."""
    verdicts = []
    for partition in range(partitions):
        order = rng.permutation(outputs)
        for group, members in enumerate(order.reshape(-1, SIZE)):
            grades = []
            for index in members:
                valid = bool(rng.random() > 0.1)
                scores = tuple(int(s) for s in rng.integers(0, 3, 4)) if valid else (0, 0, 0, 0)
                mode = str(rng.integers(0, 12)) if valid else None
                grades.append(Grade(int(index), valid, scores, mode))
            verdicts.append(GroupVerdict("cell", partition, group, tuple(grades), "high"))
    return by_cell(verdicts)["cell"]


def timed(work: Callable[[], T]) -> tuple[float, T]:
    start = time.process_time()
    done = work()
    return time.process_time() - start, done


def planned(run: Path, texts: int) -> None:
    """One cell of short texts, planned and written."""
    profile = Profile.load("webtext-v1")
    source = Source("cell", tuple(f"Text {i} of a harbour." for i in range(texts)), None, "cell")
    plan, frozen = make_plan([source], profile)
    write_plan(run, plan, profile, frozen)


def judged(run: Path) -> None:
    """A verdict on every sheet, written without the sync that each would have while judging."""
    series = Series.create(run, JudgeSpec(kind="benchmark"))
    rng = random.Random(0)
    with open(series.journal.path, "w") as file:
        for sheet in series.plan.sheets:
            reply = json.dumps(verdict(sheet.labels, rng))
            entry = {"sheet": sheet.id, "repeat": 0, "outcome": "verdict", "reply": reply}
            file.write(json.dumps({**entry, "reply_sha256": sha256(reply)}) + "\n")


def verdict(labels: Sequence[str], rng: random.Random) -> dict[str, Any]:
    outputs = []
    for label in labels:
        valid = rng.random() > 0.1
        grades = {name: rng.randrange(3) if valid else 0 for name in DIMENSIONS}
        mode = rng.choice("ABCDEFGH") if valid else None
        outputs.append({"id": label, "valid": valid, **grades, "mode": mode, "hybrid": False})
    return {"outputs": outputs, "confidence": "high"}


def grow(sizes: Sequence[int], replicates: int) -> None:
    """Seconds and memory for pools of one cell, each ten times the one before."""
    before: dict[str, float] = {}
    for texts in sizes:
        with TemporaryDirectory() as place:
            run = Path(place) / "run"
            seconds = {"plan": timed(lambda run=run, n=texts: planned(run, n))[0]}
            judged(run)
            seconds["read"], judgments = timed(lambda run=run: load_judgments(str(run)))
            seconds["score"], _ = timed(
                lambda judgments=judgments: score(judgments, replicates=replicates)
            )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        growth = {name: seconds[name] / before[name] for name in before}
        told = {"texts": texts, "replicates": replicates, "peak_gb": round(peak, 2)}
        rounded = {f"{name}_cpu_seconds": round(value, 2) for name, value in seconds.items()}
        print(
            json.dumps({**told, **rounded, "growth": {k: round(v, 1) for k, v in growth.items()}})
        )
        for name, ratio in growth.items():
            if ratio > MOST_GROWTH:
                raise SystemExit(f"{name}: {ratio:.0f}x for ten times the texts")
        before = seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a shorter loop, scaled up")
    quick = parser.parse_args().quick
    cell = random_cell(128, 2, np.random.default_rng(0))
    replicates, looped = 10_000, 300 if quick else 3_000
    fast, slow = [], []
    for _ in range(3 if quick else 5):  # in turn, so that both meet the same machine
        start = time.process_time()
        replicate(cell, partition_weights(cell.partitions, replicates, 0))
        fast.append(time.process_time() - start)
        start = time.process_time()
        plain_loop(cell, looped, 0)
        slow.append((time.process_time() - start) * replicates / looped)
    ratio = float(np.median(slow) / np.median(fast))
    report = {
        "outputs": len(cell.outputs),
        "replicates": replicates,
        "vectorised_cpu_seconds": float(np.median(fast)),
        "plain_loop_cpu_seconds": float(np.median(slow)),
        "loop_replicates_timed": looped,
        "ratio": ratio,
        "promised": LEAST,
    }
    print(json.dumps(report, indent=2))
    if ratio < LEAST:
        raise SystemExit(f"the bootstrap is {ratio:.0f}x a plain loop, less than {LEAST:.0f}x")
    if quick:
        grow((1_000, 10_000), 1_000)
    else:
        grow((1_000, 10_000, 100_000), 10_000)


if __name__ == "__main__":
    main()
