"""How often `strop compare` is right where the answer is known: Markov chains.

The target is a chain whose symbols are as unequal as words, so that temperature moves the entropy
of single outputs. Generators unmask it by its exact posteriors (`strop.theory.unmask`); the chain
itself is the evaluator. Every repetition takes disjoint outputs out of one bank per generator, and
the temperatures are those of the verb.

    python benchmarks/verdicts.py [--repetitions 200] [-n 256] [--json]
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from strop.comparing import Comparison, Sample, Side, compare, copies
from strop.metrics.entropy import entropy
from strop.studies.collapse import best_pair
from strop.studies.measure import TEMPERATURES
from strop.theory.chain import Chain
from strop.theory.unmask import unmask

VALUES, LENGTH = 48, 128
REPLICATES = 2000
SHARP = 0.85


def language() -> Chain:
    """Symbols by Zipf's law, every row another multiple of it."""
    rng = np.random.default_rng(19)
    rows = np.exp(1.5 * rng.standard_normal((VALUES, VALUES))) / np.arange(1, VALUES + 1)
    rows /= rows.sum(axis=1, keepdims=True)
    return Chain(0.99 * rows + 0.01 / VALUES, LENGTH)


def undertrained(chain: Chain, share: float = 0.1) -> Chain:
    """A checkpoint that forgets the token before, now and then."""
    return Chain((1 - share) * chain.kernel + share * chain.start[None], LENGTH)


@dataclass(frozen=True, eq=False)
class Bank:
    """Outputs of one generator at every temperature, cut into pools of n."""

    target: Chain
    model: Chain
    rounds: int
    pools: int
    n: int
    seed: int
    made: dict[tuple[int, float], Sample] = field(default_factory=dict)

    @cached_property
    def ids(self) -> dict[float, NDArray[np.int8]]:
        """By temperature."""
        return {
            tau: unmask(
                self.model,
                self.pools * self.n,
                rounds=self.rounds,
                temperature=tau,
                seed=100 * self.seed + place,
            ).astype(np.int8)
            for place, tau in enumerate(TEMPERATURES)
        }

    @cached_property
    def scores(self) -> dict[float, tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Nats under the target, and entropy."""
        found = {}
        for tau, ids in self.ids.items():
            blocks = np.array_split(ids.astype(np.int64), max(1, len(ids) // 8192))
            nats = np.concatenate([-self.target.log_likelihood(one) for one in blocks])
            found[tau] = (nats, np.concatenate([entropy(one) for one in blocks]))
        return found

    def sample(self, pool: int, tau: float) -> Sample:
        """One pool at one temperature."""
        if (pool, tau) in self.made:
            return self.made[pool, tau]
        mine = slice(pool * self.n, (pool + 1) * self.n)
        nats, sharpness = (one[mine] for one in self.scores[tau])
        tokens = np.full(self.n, float(LENGTH))
        alike = {"copies": copies(self.ids[tau][mine]).astype(np.int8)}
        return self.made.setdefault((pool, tau), Sample(nats, tokens, sharpness, alike))

    def side(self, pool: int, published: float = 1.0) -> Side:
        """One pool at every temperature."""
        taken = {tau: self.sample(pool, tau) for tau in TEMPERATURES}
        return Side(list(taken.values()), published=taken[published])


def collapsed(side: Side) -> Side:
    """The control of `strop study collapse` at every temperature: two outputs, repeated."""

    def twice(sample: Sample) -> Sample:
        pair = list(best_pair(sample.nll, sample.tokens.astype(np.int64), sample.entropy))
        index = np.resize(pair, sample.n)
        alike = (index[:, None] == index[None, :]).astype(float)
        return Sample(
            sample.nll[index], sample.tokens[index], sample.entropy[index], {"copies": alike}
        )

    controls = {id(one): twice(one) for one in side.frontier}
    published = side.published
    assert published is not None
    return Side(list(controls.values()), published=controls[id(published)])


@dataclass(frozen=True)
class Case:
    """Two sides whose verdict is known."""

    name: str
    sides: Callable[[int], tuple[Side, Side]]
    right: tuple[str, ...]
    """The verdicts that are right; for a side against itself those that claim no difference."""

    def comparisons(self, repetitions: int) -> Iterator[Comparison]:
        """One per repetition."""
        for pool in range(repetitions):
            yield compare(*self.sides(pool), replicates=REPLICATES)


def cases(repetitions: int, n: int, seed: int = 0) -> list[Case]:
    """All cases over banks that are drawn when they are first used."""
    target = language()

    def bank(model: Chain, rounds: int, pools: int, number: int) -> Bank:
        return Bank(target, model, rounds, pools, n, 100 * seed + number)

    exact = bank(target, LENGTH, 2 * repetitions, 1)
    worse = bank(undertrained(target), LENGTH, repetitions, 2)
    parallel = bank(target, LENGTH // 8, repetitions, 3)
    other = repetitions  # the second half of the bank
    undecided = ("the same", "cannot tell")
    return [
        Case("itself", lambda k: (exact.side(k), exact.side(other + k)), undecided),
        Case(
            f"tau {SHARP}",
            lambda k: (exact.side(k, SHARP), exact.side(other + k)),
            ("only sharper",),
        ),
        Case("better checkpoint", lambda k: (exact.side(k), worse.side(k)), ("better",)),
        Case("better sampler", lambda k: (exact.side(k), parallel.side(k)), ("better",)),
        Case("collapsed", lambda k: (collapsed(exact.side(k)), exact.side(other + k)), ("mixed",)),
        Case(
            "swapped: tau",
            lambda k: (exact.side(other + k), exact.side(k, SHARP)),
            ("only smoother",),
        ),
        Case("swapped: checkpoint", lambda k: (worse.side(k), exact.side(k)), ("worse",)),
        Case("swapped: sampler", lambda k: (parallel.side(k), exact.side(k)), ("worse",)),
    ]


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--repetitions", type=int, default=200)
    words.add_argument("-n", type=int, default=256)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--json", action="store_true")
    asked = words.parse_args()
    rows = {}
    for case in cases(asked.repetitions, asked.n, asked.seed):
        found = Counter(one.verdict.kind for one in case.comparisons(asked.repetitions))
        right = sum(found[kind] for kind in case.right)
        rows[case.name] = {"right": right, "of": asked.repetitions, "verdicts": dict(found)}
        if not asked.json:
            print(f"{case.name:22} {right:4} of {asked.repetitions}  {dict(found)}", flush=True)
    if asked.json:
        print(json.dumps({"n": asked.n, "cases": rows}, indent=2))


if __name__ == "__main__":
    main()
