"""How often `strop compare` is right where the answer is known: Markov chains.

The target is a chain whose symbols are as unequal as words, so that temperature moves the entropy
of single outputs. Generators unmask it by its exact posteriors (`strop.theory.unmask`); the chain
itself is the evaluator. Every repetition takes disjoint outputs out of one bank per generator, and
the temperatures are those of the verb. Besides the planted cases: a gap just beyond the margin, a
pool against itself at three budgets and in three looks, a pool that repeats sixteen outputs.

    python benchmarks/verdicts.py [--repetitions 200] [-n 256] [--case NAME] [--json]
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from strop.comparing import DIFFERENT, KINDS, Level, Sample, Side, compare, copies
from strop.measure.entropy import entropy
from strop.theory.chain import Chain
from strop.theory.unmask import unmask
from strop.verbs.collapse import best_pair
from strop.verbs.points import TEMPERATURES

VALUES, LENGTH = 48, 128
REPLICATES = 2000
SHARP = 0.85
NEAR = 0.026
"""Of the undertrained checkpoint that is worse by a little more than the margin."""
EQUIVALENT = ("the same", "only sharper", "only smoother")


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
        if (pool, tau) not in self.made:
            self.made[pool, tau] = self.cut(pool * self.n, self.n, tau)
        return self.made[pool, tau]

    def cut(self, first: int, count: int, tau: float) -> Sample:
        """Some outputs at one temperature."""
        mine = slice(first, first + count)
        nats, sharpness = (one[mine] for one in self.scores[tau])
        tokens = np.full(count, float(LENGTH))
        alike = {"copies": copies(self.ids[tau][mine]).astype(np.int8)}
        return Sample(nats, tokens, sharpness, alike)

    def side(self, pool: int, published: float = 1.0) -> Side:
        """One pool at every temperature."""
        taken = {tau: self.sample(pool, tau) for tau in TEMPERATURES}
        return Side(list(taken.values()), published=taken[published])

    def some(self, first: int, count: int, published: float = 1.0) -> Side:
        """Some outputs at every temperature."""
        taken = {tau: self.cut(first, count, tau) for tau in TEMPERATURES}
        return Side(list(taken.values()), published=taken[published])


def repeated(side: Side, choose: Callable[[Sample], NDArray[np.int64]]) -> Side:
    """A generator that knows a few outputs of every pool and repeats them."""

    def again(sample: Sample) -> Sample:
        index = np.resize(choose(sample), sample.n)
        alike = (index[:, None] == index[None, :]).astype(float)
        return Sample(
            sample.nll[index], sample.tokens[index], sample.entropy[index], {"copies": alike}
        )

    made = {id(one): again(one) for one in side.frontier}
    published = side.published
    assert published is not None
    return Side(list(made.values()), published=made[id(published)])


def two(sample: Sample) -> NDArray[np.int64]:
    """The control of `strop study collapse`."""
    return np.array(best_pair(sample.nll, sample.tokens.astype(np.int64), sample.entropy))


def sixteen(sample: Sample) -> NDArray[np.int64]:
    """The first ones, whatever they are."""
    return np.arange(min(16, sample.n))


@dataclass(frozen=True)
class Case:
    """Sides whose verdict is known."""

    name: str
    verdict: Callable[[int], str]
    """Of one repetition."""
    right: tuple[str, ...]
    """The verdicts that are right."""
    repetitions: int

    def counted(self) -> Counter[str]:
        """How often each verdict was taken."""
        return Counter(self.verdict(pool) for pool in range(self.repetitions))


def kind(a: Side, b: Side, level: Level | None = None) -> str:
    """The verdict alone."""
    return compare(a, b, level=level, replicates=REPLICATES).verdict.kind


def claimed(kinds: list[str]) -> str:
    """The first difference that is claimed anywhere, else what is said last."""
    return next((one for one in kinds if one in DIFFERENT), kinds[-1])


def cases(repetitions: int, n: int, seed: int = 0) -> list[Case]:
    """All cases over banks that are drawn when they are first used."""
    target = language()

    def bank(model: Chain, rounds: int, pools: int, number: int) -> Bank:
        return Bank(target, model, rounds, pools, n, 100 * seed + number)

    exact = bank(target, LENGTH, 2 * repetitions, 1)
    worse = bank(undertrained(target), LENGTH, repetitions, 2)
    parallel = bank(target, LENGTH // 8, repetitions, 3)
    near = bank(undertrained(target, NEAR), LENGTH, repetitions, 4)
    other = repetitions  # the second half of the bank

    def itself(k: int, published: float = 1.0) -> tuple[Side, Side]:
        return exact.side(k, published), exact.side(other + k)

    def looks(k: int) -> str:
        a, b = itself(k)
        few = [n // 4, n // 2, n]
        return claimed([kind(cut(a, m), cut(b, m), Level(look)) for look, m in enumerate(few, 1)])

    def budgets(k: int) -> str:
        each = range(3 * k, 3 * k + 3)
        return claimed([kind(*itself(pool), Level(1, 3)) for pool in each])

    def asked(k: int) -> str:
        """The verdict on as many fresh outputs as one on few asks for, in four pools' room."""
        first, few = 4 * n * k, n // 4
        place = [first, first + few]
        a, b = exact.some(place[0], few, SHARP), exact.some(place[1], few)
        verdict = compare(a, b, replicates=REPLICATES).verdict
        if verdict.kind != "cannot tell":
            return "decided at once"
        most = 2 * n - few
        many = most if verdict.outputs is None else min(verdict.outputs, most)
        place = [first + 2 * few, first + 2 * few + many]
        # Asking for more is a second look, whose intervals are wider.
        return kind(exact.some(place[0], many, SHARP), exact.some(place[1], many), Level(2))

    same = ("the same", "cannot tell")
    unlike = tuple(one for one in KINDS if one not in EQUIVALENT)
    unbetter = tuple(one for one in KINDS if one != "better")
    every = {
        "itself": (lambda k: kind(*itself(k)), same),
        f"tau {SHARP}": (lambda k: kind(*itself(k, SHARP)), ("only sharper",)),
        "better checkpoint": (lambda k: kind(exact.side(k), worse.side(k)), ("better",)),
        "better sampler": (lambda k: kind(exact.side(k), parallel.side(k)), ("better",)),
        "two outputs": (
            lambda k: kind(repeated(exact.side(k), two), exact.side(other + k)),
            ("mixed",),
        ),
        "swapped: tau": (
            lambda k: kind(exact.side(other + k), exact.side(k, SHARP)),
            ("only smoother",),
        ),
        "swapped: checkpoint": (lambda k: kind(worse.side(k), exact.side(k)), ("worse",)),
        "swapped: sampler": (lambda k: kind(parallel.side(k), exact.side(k)), ("worse",)),
        "swapped: two outputs": (
            lambda k: kind(exact.side(other + k), repeated(exact.side(k), two)),
            ("mixed",),
        ),
        "sixteen outputs": (
            lambda k: kind(repeated(exact.side(k), sixteen), exact.side(other + k)),
            unbetter,
        ),
        "beyond the margin": (lambda k: kind(exact.side(k), near.side(k)), unlike),
        "itself, three looks": (looks, same),
    }
    found = [Case(name, how, right, repetitions) for name, (how, right) in every.items()]
    decided = ("only sharper", "decided at once")
    return [
        *found,
        Case("itself, three budgets", budgets, same, repetitions // 3),
        Case("as many as it asked for", asked, decided, repetitions // 2),
    ]


def cut(side: Side, n: int) -> Side:
    """The first outputs alone."""
    published = side.published
    assert published is not None
    return Side([one.first(n) for one in side.frontier], published=published.first(n))


def main() -> None:
    words = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    words.add_argument("--repetitions", type=int, default=200)
    words.add_argument("-n", type=int, default=256)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--case", action="append", help="Only cases whose name begins so.")
    words.add_argument("--json", action="store_true")
    asked = words.parse_args()
    rows = {}
    for case in cases(asked.repetitions, asked.n, asked.seed):
        if asked.case and not case.name.startswith(tuple(asked.case)):
            continue
        found = case.counted()
        right = sum(found[one] for one in case.right)
        rows[case.name] = {"right": right, "of": case.repetitions, "verdicts": dict(found)}
        if not asked.json:
            print(f"{case.name:22} {right:4} of {case.repetitions}  {dict(found)}", flush=True)
    if asked.json:
        print(json.dumps({"n": asked.n, "cases": rows}, indent=2))


if __name__ == "__main__":
    main()
