"""How time and memory grow with the outputs of one cell, and how large a page of many cells is.

    python benchmarks/growth.py [--sizes 1000,10000,100000] [--quick]

Outputs of 1,024 tokens are made up, so sampling is free: written in parts, merged, looked up, read
through, scored (entropy and repetition, and an evaluator that only counts), summarised and put on a
page. Every step runs in a process of its own and tells CPU seconds and the peak of its memory above
what it began with. The promises: ten times the outputs take at most 15 times as long, and from
10,000 outputs on no step but one needs more than 1.5 times the memory (a bounded number of rows).
The one is a `Pool`, which is all outputs in memory: it is told, and grows.

GroupEval's growth is measured too, and a report of 100 cells of 128 outputs is written, and opened
in Chromium where playwright and a browser are installed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy loads

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from strop import SamplerSpec
from strop.pool import Output
from strop.spec import CellSpec, CheckpointSpec, EvaluatorSpec, GeneratorSpec, MetricSpec
from strop.store import Cell, Run

LENGTH, VOCABULARY, STEPS = 1024, 50257, 1024
PART = 256
"""Outputs that a sampler makes durable at a time."""
MOST_TIME, MOST_MEMORY = 15.0, 1.5
MANY = 10_000
"""Outputs from which on memory is bounded: fewer may fit into it whole."""
FLOOR = 64.0
"""Megabytes below which memory is noise of the allocator."""
WORDS = [f"{a}{b}{c} " for a in "bdfgklmnprst" for b in "aeiou" for c in "bdfgklmnprst"]


def cell_of(number: int = 0) -> CellSpec:
    """A cell of a model that nobody needs."""
    shape: dict[str, int | float | bool] = {
        "vocab_size": VOCABULARY + 1,
        "mask_id": VOCABULARY,
        "length": LENGTH,
    }
    checkpoint = CheckpointSpec(family="mdlm", sha256="0" * 64, shape=shape)
    sampler = SamplerSpec(steps=STEPS, temperature=1 - number / 1000)
    return CellSpec(
        generator=GeneratorSpec(checkpoint=checkpoint, sampler=sampler, length=LENGTH), seed=0
    )


def outputs(first: int, count: int, seed: int = 0) -> list[Output]:
    """Tokens by Zipf's law, rounds that reveal them, words of about four letters."""
    rng = np.random.default_rng([seed, first])
    ids = np.minimum(rng.zipf(1.3, (count, LENGTH)) - 1, VOCABULARY - 1)
    changed = rng.integers(1, STEPS + 1, (count, LENGTH), dtype=np.int32)
    texts = ["".join(WORDS[i % len(WORDS)] for i in row) for row in ids.tolist()]
    return [
        Output(first + k, ids[k], STEPS, 0.1, 0, changed=changed[k], text=texts[k])
        for k in range(count)
    ]


def made(run: Path, cells: int) -> list[Cell]:
    specs = [cell_of(i) for i in range(cells)]
    return [Run.prepare(run, {"n": 0}, specs).cell(spec.id) for spec in specs]


EVALUATOR = EvaluatorSpec(name="counts", sha256="0" * 64, tokenizer="0" * 64, context=LENGTH)
FREE = MetricSpec(name="perplexity", evaluator=EVALUATOR, span="first-document", settings={})


def free_scores(cell: Cell) -> None:
    """A perplexity from an evaluator that costs nothing."""
    from strop.measure.score import score_outputs

    def measure(some):
        size = np.array([len(text) for text in some.texts])
        names = ("tokens", "bytes", "kept_bytes", "source_bytes")
        return {"nll": 3.0 * LENGTH + size % 97, **{n: np.maximum(size, 1) for n in names}}

    score_outputs(cell, FREE, measure, batch=8)


def score(cell: Cell) -> None:
    from strop.measure.score import score_records

    score_records(cell)
    free_scores(cell)


def read(cell: Cell) -> None:
    assert sum(len(some) for some in cell.rows()) == len(cell.indices())


def measure(cell: Cell) -> None:
    from strop.measure.frame import read_cell

    read_cell(cell)


def page(cell: Cell) -> None:
    from strop.page import gather, render, write

    write(render(gather([cell.path.parents[1]])), cell.path.parents[2] / "page.html")


STREAMED: dict[str, Callable[[Cell], object]] = {
    "merge": Cell.merge,
    "look up": Cell.indices,
    "read": read,
    "score": score,
    "measure": measure,
    "report": page,
}
WHOLE: dict[str, Callable[[Cell], object]] = {"pool": Cell.pool}


def peak() -> float:
    """Megabytes, the most so far."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def step(name: str, run: Path, count: int) -> dict[str, float]:
    """One step in this process."""
    import pyarrow.parquet  # noqa: F401  # its own memory is not the step's

    import strop.measure.frame  # noqa: F401

    cell = made(run, 1)[0]
    if name == "write":
        before, cpu = peak(), 0.0
        for first in range(0, count, PART):
            some = outputs(first, min(PART, count - first))
            began = time.process_time()
            cell.add(some)
            cpu += time.process_time() - began
        return {"seconds": cpu, "megabytes": peak() - before}
    work = {**STREAMED, **WHOLE}[name]
    before, began = peak(), time.process_time()
    work(cell)
    return {"seconds": time.process_time() - began, "megabytes": peak() - before}


def child(*words: object) -> dict[str, float]:
    command = [sys.executable, __file__, "--step", *map(str, words)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(answer.stdout.splitlines()[-1])


def store(sizes: list[int], most_whole: int) -> bool:
    """The table of the store; whether the promises hold."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for count in sizes:
        with TemporaryDirectory() as place:
            run = Path(place) / "run"
            for name in ("write", *STREAMED, *WHOLE):
                if name in WHOLE and count > most_whole:
                    continue
                found.setdefault(name, {})[count] = child(name, run, count)
                print(f"# {name} {count}: {found[name][count]}", file=sys.stderr)
    print("| step | " + " | ".join(f"{n:,}: CPU s, MB" for n in sizes) + " | growth |")
    print("|---" * (len(sizes) + 2) + "|")
    good = True
    for name, rows in found.items():
        cells = [
            f"{rows[n]['seconds']:.2f}, {rows[n]['megabytes']:,.0f}" if n in rows else "-"
            for n in sizes
        ]
        pairs = [(rows[a], rows[b]) for a, b in itertools.pairwise(sizes) if b in rows]
        slower = max((b["seconds"] / max(a["seconds"], 0.05) for a, b in pairs), default=1.0)
        memory = [max(rows[n]["megabytes"], FLOOR) for n in sizes if n in rows and n >= MANY]
        larger = max((b / a for a, b in itertools.pairwise(memory)), default=1.0)
        print(f"| {name} | {' | '.join(cells)} | time {slower:.1f}x, memory {larger:.1f}x |")
        bounded = name in WHOLE or larger <= MOST_MEMORY
        good &= slower <= MOST_TIME and bounded
    return good


def report(cells: int, count: int) -> None:
    """A page of many cells: its size, and how long a browser takes until it can be read."""
    from strop.measure.score import score_records
    from strop.page import gather, render, write

    with TemporaryDirectory() as place:
        run, file = Path(place) / "run", Path(place) / "page.html"
        for number, cell in enumerate(made(run, cells)):
            cell.add(outputs(0, count, seed=number))
            cell.merge()
            score_records(cell)
            free_scores(cell)
        began = time.process_time()
        write(render(gather([run])), file)
        seconds = time.process_time() - began
        told = {"cells": cells, "outputs": count, "megabytes": round(file.stat().st_size / 1e6, 2)}
        print(json.dumps({**told, "cpu_seconds": round(seconds, 1), **browsed(file)}))


def browsed(file: Path) -> dict[str, float]:
    """Milliseconds until the page is loaded; nothing where there is no browser."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        return {}
    import shutil

    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        except Error:
            return {}
        page = browser.new_page()
        began = time.perf_counter()
        page.goto(file.as_uri(), wait_until="load")
        loaded = time.perf_counter() - began
        browser.close()
    return {"load_ms": round(1000 * loaded)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--most-whole", type=int, default=100_000, help="of what needs all ids")
    parser.add_argument("--quick", action="store_true", help="1,000 and 10,000 only")
    parser.add_argument("--only", choices=["store", "groupeval", "report"])
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        name, run, count = options.step
        print(json.dumps(step(name, Path(run), int(count))))
        return
    sizes = [int(word) for word in ("1000,10000" if options.quick else options.sizes).split(",")]
    good = True
    if options.only in (None, "store"):
        good = store(sizes, options.most_whole)
    if options.only in (None, "groupeval"):
        from groupeval import grow

        grow(sizes, 1_000 if options.quick else 10_000)
    if options.only in (None, "report"):
        report(100, 128)
    if not good:
        raise SystemExit("time or memory grows faster than promised")


if __name__ == "__main__":
    main()
