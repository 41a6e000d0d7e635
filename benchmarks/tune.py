"""Outputs that a search needs, against a grid and against random search, replayed from a bank.

    python benchmarks/tune.py BANK [--seeds 20] [-n 512] [--most 64 --budget 512]

BANK is a run directory of `strop audit --grid --steps 16 -n 512 --no-fresh`: seven temperatures in
two precisions on `embedded:tales`. It is drawn if it is not there, and continued if it is not
complete; that takes the longest. Nothing is drawn after that: a seed is a permutation of the bank's
outputs, the same for every setting, so that outputs stay paired. Proposals are restricted to the
bank's settings, because there are no outputs of any other.

The reference is all outputs of every setting. A choice is right if its reference entropy reaches
the guard, and its reference perplexity is at most 3% above that of the best setting of which a
cell of the grid, 128 outputs, could tell that it is above the guard: by its reference entropy less
the half-width that 128 outputs would have. Settings nearer to the guard may be better still, and
all 512 outputs may be sure of them; how often each search ends within 3% of the best of those is
told beside it. Every search is charged for all outputs that it looks at:

- the grid looks at 128 outputs of each of 14 settings and takes the best that is above the guard;
- random search looks at 128 outputs of settings in random order, until the best of them is right;
- the race is what `strop tune` does with a small space: it enumerates the settings;
- Optuna's waves are what it does with a larger one, here over the same settings.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy loads

import numpy as np
from numpy.typing import NDArray

from strop.measure.across import pooled
from strop.measure.guard import guard_of
from strop.spec import OperatingPoint, SamplerSpec
from strop.stats.resample import jackknife, mean
from strop.store import Run
from strop.tuning.race import Drawn, Limit, Race, Rules, search
from strop.tuning.space import Space
from strop.verbs import run as run_study

STEPS, EACH, NEAR = 16, 128, 0.03
SPACE = ("temperature=0.8:1.1:0.05", "precision=float64,float32")


@dataclass(frozen=True)
class Bank:
    """Per setting: nats, tokens and entropy of every output."""

    settings: dict[SamplerSpec, tuple[NDArray, NDArray, NDArray]]
    threshold: float

    @classmethod
    def read(cls, path: Path, n: int) -> Bank:
        run = Run.open(path)
        found = {}
        for cell in run.cells():
            tables = {one.metric.name: one.columns for one in cell.scores().values()}
            nats, entropy = tables["perplexity"], tables["entropy"]["entropy"]
            found[cell.spec.generator.sampler] = (nats["nll"][:n], nats["tokens"][:n], entropy[:n])
        threshold = guard_of(run.cells()[0].spec.generator, run).threshold
        if threshold is None:
            sys.exit("The bank has no entropy guard.")
        return cls(found, threshold)

    @property
    def outputs(self) -> int:
        return min(len(one[0]) for one in self.settings.values())

    def drawn(self, spec: SamplerSpec, rows: NDArray | slice) -> Drawn:
        nll, tokens, entropy = (one[rows] for one in self.settings[spec])
        return Drawn(pooled({"nll": nll, "tokens": tokens}), (mean(entropy),))

    def measure(self, order: NDArray) -> Callable[..., list[Drawn]]:
        return lambda wanted: [self.drawn(spec, order[:n]) for spec, n in wanted]

    def reference(self) -> dict[SamplerSpec, tuple[float, float, float]]:
        """Perplexity and entropy on all outputs, and the half-width of the entropy's interval."""
        found = {}
        for spec in self.settings:
            one = self.drawn(spec, slice(None))
            entropy = jackknife(one.limits[0], 0.95)
            found[spec] = (one.objective.value, entropy.value, entropy.half)
        return found


def near_best(bank: Bank, outputs: int) -> list[SamplerSpec]:
    """The settings near the best of those that so many outputs could tell to be above the guard."""
    facts, wider = bank.reference(), (bank.outputs / outputs) ** 0.5
    best = min(p for p, h, half in facts.values() if h - wider * half >= bank.threshold)
    return [s for s, (p, h, _) in facts.items() if p <= (1 + NEAR) * best and h >= bank.threshold]


def best_of(bank: Bank, specs: Sequence[SamplerSpec], order: NDArray) -> SamplerSpec | None:
    """What a grid of 128 outputs each chooses."""
    passing = {}
    for spec in specs:
        one = bank.drawn(spec, order[:EACH])
        if jackknife(one.limits[0], 0.95).ends[0] >= bank.threshold:
            passing[spec] = one.objective.value
    return min(passing, key=passing.__getitem__) if passing else None


def needed(race: Race[SamplerSpec], good: list[SamplerSpec]) -> int | None:
    """The outputs after which a right setting led and kept the lead; None if none does."""
    since = None
    for spent, leader in race.path:
        since = (spent if since is None else since) if leader in good else None
    return since


def one_seed(
    bank: Bank,
    good: list[SamplerSpec],
    top: list[SamplerSpec],
    rules: Rules,
    budget: int,
    seed: int,
) -> dict[str, Any]:
    """By search: outputs, whether it is right, whether it is the very best, outputs needed."""
    rng = np.random.default_rng([seed, 19])
    order = rng.permutation(bank.outputs)
    specs = list(bank.settings)
    chosen = best_of(bank, specs, order)
    found: dict[str, Any] = {"grid": [EACH * len(specs), chosen in good, chosen in top, None]}
    mixed = [specs[i] for i in rng.permutation(len(specs))]
    tries = (k for k in range(1, len(mixed) + 1) if best_of(bank, mixed[:k], order) in good)
    first = next(tries, None)
    chosen = best_of(bank, mixed[:first], order)
    found["random"] = [EACH * (first or len(specs)), first is not None, chosen in top, None]
    space = Space.of(SPACE, "ancestral", {"steps": STEPS})
    for name, most in (("race", 32), ("optuna", 0)):
        with tempfile.TemporaryDirectory() as folder:
            race = search(
                space,
                bank.measure(order),
                rules,
                budget=budget,
                folder=Path(folder),
                seed=seed,
                enumerated=most,
            )
        leader = race.leader
        chosen = None if leader is None else leader.candidate
        found[name] = [race.spent, chosen in good, chosen in top, needed(race, good)]
    return found


def table(rows: Sequence[dict[str, Any]], grid: int) -> None:
    print("| search | outputs, median | worst | of the grid's | right | the very best | needed |")
    print("|---|---|---|---|---|---|---|")
    for name in rows[0]:
        spent, hits, tops, when = zip(*(row[name] for row in rows), strict=True)
        known = [one for one in when if one is not None]
        told = f"{np.median(known):.0f}" if known else ""
        print(
            f"| {name} | {np.median(spent):.0f} | {max(spent)} | {np.median(spent) / grid:.0%} | "
            f"{sum(hits)} of {len(rows)} | {sum(tops)} of {len(rows)} | {told} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bank", type=Path)
    parser.add_argument("-n", type=int, default=512, help="outputs of every setting")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--tolerance", type=float, default=Rules.tolerance)
    parser.add_argument("--first", type=int, default=Rules.first)
    parser.add_argument("--most", type=int, default=Rules.most, help="as `strop tune -n`")
    parser.add_argument("--budget", type=int, default=512, help="as `strop tune --budget`")
    parser.add_argument("--no-draw", action="store_true", help="use what is in the bank")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.no_draw:
        run_study("audit", out=options.bank, grid=True, steps=(STEPS,), n=(options.n,), fresh=False)
    bank = Bank.read(options.bank, options.n)
    facts = bank.reference()
    good, top = near_best(bank, EACH), near_best(bank, bank.outputs)
    print(f"{bank.outputs} outputs of {len(facts)} settings; guard {bank.threshold:.3f}\n")
    for spec, (ppl, entropy, half) in sorted(facts.items(), key=lambda one: one[1][0]):
        below = "" if entropy - half >= bank.threshold else "not for sure above the guard"
        mark = "right, the very best" if spec in top else "right" if spec in good else below
        print(f"{OperatingPoint.of(spec)!s:18} {ppl:7.2f} [{entropy:.3f} ± {half:.3f}] {mark}")
    limits = (Limit("entropy", ">=", bank.threshold),)
    rules = replace(
        Rules(limits=limits, log=True),
        tolerance=options.tolerance,
        first=options.first,
        most=options.most,
    )
    rows = [one_seed(bank, good, top, rules, options.budget, seed) for seed in range(options.seeds)]
    print()
    table(rows, EACH * len(facts))
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
