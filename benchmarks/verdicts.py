"""How often `strop compare` is right where the answer is known: Markov chains.

The target is a chain whose symbols are as unequal as words, so that temperature moves the entropy
of single outputs. Generators unmask it by its exact posteriors (`unmask`); the chain
itself is the evaluator. Every repetition takes other outputs, and the temperatures are those of
the verb unless a case says otherwise. The cases: generators whose order is known, and generators
made to mislead, such as mixtures, repeated texts, shorter texts, frontiers that cross.

    python benchmarks/verdicts.py [--repetitions 200] [-n 32 -n 256] [--chain 0] [--case NAME]
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from strop.comparing.compare import compare
from strop.comparing.diversity import Scored, common_length
from strop.comparing.frontier import Level
from strop.comparing.side import Sample, Side
from strop.comparing.verdict import DIFFERENT, KINDS
from strop.theory.accounting import Chain
from strop.verbs.collapse import best_pair
from strop.verbs.points import TEMPERATURES

VALUES, LENGTH = 48, 128
REPLICATES = 2000
SHARP = 0.85
SCALED = 0.8
"""By which a copy of a generator divides its logits: only sharper."""
NEAR = 0.026
"""Of the undertrained checkpoint that is worse by a little more than the margin."""
MIDDLE = 0.05
"""Of the one between the exact and the undertrained checkpoint."""
EQUIVALENT = ("the same", "only sharper", "only smoother")
LANGUAGES = ((19, 1.5, 1.0), (20, 1.0, 1.0), (21, 1.5, 0.7))
"""By number: seed, how unlike the rows are, and the exponent of Zipf's law."""
SWEEPS = {
    "2": (0.4, 1.4),
    "3": (0.4, 0.9, 1.4),
    "4 wide": (0.4, 0.7, 1.0, 1.4),
    "4": (0.8, 0.9, 1.0, 1.1),
    "7": TEMPERATURES,
}

ROWS = 2048
"""Outputs that are drawn side by side: few enough that their tables stay in the cache."""


def unmask(
    chain: Chain, count: int, *, rounds: int, temperature: float, seed: int
) -> NDArray[np.int64]:
    """`count` outputs [count, L] of the parallel sampler, drawn by the chain's exact posteriors.

    Every output reveals its positions in a random order, an equal share of them in each round.
    Tokens of one round are drawn independently given all earlier rounds. A hidden token depends on
    the visible ones through its nearest visible neighbours alone, and which those are follows from
    the order before anything is drawn. The same seed draws by the same numbers at any temperature.
    """
    assert 1 <= rounds <= chain.length
    assert temperature > 0
    left, right = _tables(chain, 1 / temperature)
    parts = []
    for number, first in enumerate(range(0, count, ROWS)):
        rng = np.random.default_rng([seed, number])
        order = rng.random((ROWS, chain.length)).argsort(axis=1)
        level = rng.random((ROWS, chain.length))
        few = min(ROWS, count - first)
        parts.append(_block(chain, order[:few], level[:few], rounds, left, right))
    return np.concatenate(parts) if parts else np.zeros((0, chain.length), np.int64)


def _tables(chain: Chain, lam: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Tempered factors of the posterior by distance and token; row 0 is no neighbour in reach."""
    values = chain.values
    left = np.concatenate([chain.start[None], chain.powers.reshape(-1, values)])
    right = chain.powers.transpose(0, 2, 1).reshape(-1, values)
    return left**lam, np.concatenate([np.ones((1, values)), right]) ** lam


def _block(
    chain: Chain,
    order: NDArray[np.int64],
    level: NDArray[np.float64],
    rounds: int,
    left: NDArray[np.float64],
    right: NDArray[np.float64],
) -> NDArray[np.int64]:
    count, length = order.shape
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(length)[None], axis=1)
    depth = len(chain.powers)
    due = rank * rounds // length
    before = _distance(due, depth)
    behind = _distance(due[:, ::-1], depth)[:, ::-1]
    ids = np.zeros((count, length), np.int64)
    edges = np.searchsorted(np.arange(length) * rounds // length, np.arange(rounds + 1))
    for first, last in pairwise(edges):
        where = order[:, first:last]
        row = np.arange(count)[:, None]
        factor = left[_row(ids, where, before[row, where], -1, chain.values)]
        factor *= right[_row(ids, where, behind[row, where], 1, chain.values)]
        total = factor.cumsum(axis=2)
        below = total <= (level[row, where] * total[:, :, -1])[:, :, None]
        ids[row, where] = np.minimum(below.sum(axis=2), chain.values - 1)
    return ids


def _distance(due: NDArray[np.int64], depth: int) -> NDArray[np.int64]:
    """How far to the left the nearest token of an earlier round is; 0 where none is in reach."""
    found = np.zeros(due.shape, np.int64)
    short = np.ascontiguousarray(due, np.int16)
    for far in range(min(depth, due.shape[1] - 1), 0, -1):  # the nearest is written last
        np.copyto(found[:, far:], far, where=short[:, :-far] < short[:, far:])
    return found


def _row(
    ids: NDArray[np.int64], where: NDArray, distance: NDArray, side: int, values: int
) -> NDArray[np.int64]:
    """The table's row that belongs to a neighbour at a distance on one side."""
    token = ids[np.arange(len(ids))[:, None], where + side * distance]
    return np.where(distance > 0, 1 + (distance - 1) * values + token, 0)


def language(number: int = 0) -> Chain:
    """Symbols by Zipf's law, every row another multiple of it."""
    seed, unlike, zipf = LANGUAGES[number]
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((VALUES, VALUES))
    rows = np.exp(unlike * noise) / np.arange(1, VALUES + 1) ** zipf
    rows /= rows.sum(axis=1, keepdims=True)
    return Chain(0.99 * rows + 0.01 / VALUES, LENGTH)


def undertrained(chain: Chain, share: float = 0.1) -> Chain:
    """A checkpoint that forgets the token before, now and then."""
    return Chain((1 - share) * chain.kernel + share * chain.start[None], LENGTH)


@dataclass(frozen=True, eq=False)
class Bank:
    """Outputs of one generator, drawn by temperature when they are first used."""

    target: Chain
    model: Chain
    rounds: int
    outputs: int
    seed: int
    drawn: dict[float, NDArray[np.int8]] = field(default_factory=dict)

    @cached_property
    def _nats(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return -np.log(self.target.start), -np.log(self.target.kernel)

    def scored(self, first: int, count: int, tau: float) -> Scored:
        """Some outputs at one temperature."""
        tau = round(tau, 6)
        if tau not in self.drawn:
            seed = 10**7 * self.seed + round(1e4 * tau)
            made = unmask(self.model, self.outputs, rounds=self.rounds, temperature=tau, seed=seed)
            self.drawn[tau] = made.astype(np.int8)
        ids = self.drawn[tau][first : first + count].astype(np.int64)
        assert len(ids) == count
        start, kernel = self._nats
        nats = np.concatenate([start[ids[:, :1]], kernel[ids[:, :-1], ids[:, 1:]]], axis=1)
        return Scored(ids, nats)


Generator = Callable[[float], Scored]
"""The outputs of one pool by temperature."""


@dataclass(frozen=True)
class Way:
    """One side of a comparison."""

    outputs: Generator
    published: float = 1.0
    sweep: Sequence[float] = TEMPERATURES


def kind(a: Way, b: Way, level: Level | None = None, again: str = "") -> str:
    """The verdict alone, on the tokens that both sides have; `again`: A repeats some outputs."""
    ways = (a, b)
    pools = [{tau: one.outputs(tau) for tau in {*one.sweep, one.published}} for one in ways]
    tokens = common_length([pool for some in pools for pool in some.values()])
    sides = []
    for way, some in zip(ways, pools, strict=True):
        made = {tau: pool.first(tokens) for tau, pool in some.items()}
        if again and way is a:
            made = {tau: repeated(sample, again) for tau, sample in made.items()}
        sides.append(Side([made[tau] for tau in way.sweep], published=made[way.published]))
    return compare(*sides, level=level, replicates=REPLICATES).verdict.kind


def repeated(sample: Sample, which: str) -> Sample:
    """A generator that knows a few outputs of every pool and repeats them."""
    if which == "two":  # the control of `strop study collapse`
        chosen = best_pair(sample.nll, sample.tokens.astype(np.int64), sample.entropy)
    else:
        chosen = range(sample.n // 4 if which == "quarter" else min(16, sample.n))
    index = np.resize(np.array(chosen), sample.n)
    alike = (index[:, None] == index[None, :]).astype(float)
    return Sample(sample.nll[index], sample.tokens[index], sample.entropy[index], {"copies": alike})


def mixed(*parts: Scored) -> Scored:
    """Pools side by side."""
    return Scored(*(np.concatenate([getattr(one, name) for one in parts]) for name in PARTS))


PARTS = ("ids", "nats")


def cut(pool: Scored, lengths: NDArray[np.int64] | int) -> Scored:
    """Outputs that end early."""
    inside = np.arange(pool.ids.shape[1]) < np.broadcast_to(lengths, pool.n)[:, None]
    return Scored(np.where(inside, pool.ids, -1), np.where(inside, pool.nats, 0.0))


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


def claimed(kinds: list[str]) -> str:
    """The first difference that is claimed anywhere, else what is said last."""
    return next((one for one in kinds if one in DIFFERENT), kinds[-1])


@dataclass(frozen=True, eq=False)
class Ground:
    """The generators of one chain, and pools of them."""

    n: int
    """Outputs of a pool that are used."""
    repetitions: int
    seed: int
    chain: int = 0
    most: int = 0
    """Outputs of a pool that are drawn, where several n share them."""
    banks: dict[str, Bank] = field(default_factory=dict)

    @property
    def drawn(self) -> int:
        """Per pool."""
        return max(self.n, self.most)

    @cached_property
    def target(self) -> Chain:
        """The chain."""
        return language(self.chain)

    def bank(self, name: str) -> Bank:
        """By name."""
        if name not in self.banks:
            self.banks[name] = self._bank(name)
        return self.banks[name]

    def _bank(self, name: str) -> Bank:
        models = {"worse": 0.1, "near": NEAR, "middle": MIDDLE}
        model = undertrained(self.target, models[name]) if name in models else self.target
        rounds = LENGTH // 8 if name == "parallel" else LENGTH
        number = ("exact", "other", "worse", "near", "middle", "parallel").index(name)
        outputs = self.drawn * self.repetitions
        return Bank(
            self.target, model, rounds, outputs, 1000 * self.chain + 10 * self.seed + number
        )

    def pool(self, name: str, k: int, scale: float = 1.0, n: int | None = None) -> Generator:
        """The outputs of one repetition."""
        count = self.n if n is None else n
        return lambda tau: self.bank(name).scored(k * self.drawn, count, scale * tau)

    def noisy(self, k: int) -> Generator:
        """15% of the outputs are noise."""

        def made(tau: float) -> Scored:
            pool = self.pool("exact", k)(tau)
            bad = round(0.15 * self.n)
            rng = np.random.default_rng([self.seed, k, round(1e4 * tau)])
            ids = pool.ids.copy()
            ids[:bad] = rng.integers(0, VALUES, (bad, LENGTH))
            start, kernel = self.bank("exact")._nats
            nats = np.concatenate([start[ids[:, :1]], kernel[ids[:, :-1], ids[:, 1:]]], axis=1)
            return Scored(ids, nats)

        return made

    def halves(self, k: int) -> Generator:
        """Half of the outputs at 0.6 times the temperature, half at 1.5 times."""
        half = self.n // 2
        return lambda tau: mixed(*(self.pool("exact", k, scale, half)(tau) for scale in (0.6, 1.5)))

    def by_temperature(self, k: int, good: Callable[[float], bool]) -> Generator:
        """The exact checkpoint at some temperatures, the undertrained one at others."""
        return lambda tau: self.pool("exact" if good(tau) else "worse", k)(tau)

    def shorter(self, k: int, fewest: int, most: int) -> Generator:
        """The exact generator, but its outputs end early."""

        def made(tau: float) -> Scored:
            rng = np.random.default_rng([self.seed, k, round(1e4 * tau)])
            return cut(self.pool("exact", k)(tau), rng.integers(fewest, most + 1, self.n))

        return made


Rule = tuple[Callable[[int], str], tuple[str, ...]]
SAME = ("the same",)


def known(ground: Ground) -> dict[str, Rule]:
    """Generators whose order is known."""
    pool = ground.pool

    def itself(k: int, published: float = 1.0) -> tuple[Way, Way]:
        return Way(pool("exact", k), published), Way(pool("other", k))

    def looks(k: int) -> str:
        few = [ground.n // 4, ground.n // 2, ground.n]
        return claimed(
            [
                kind(Way(pool("exact", k, n=m)), Way(pool("other", k, n=m)), Level(look))
                for look, m in enumerate(few, 1)
            ]
        )

    def against(name: str, k: int) -> tuple[Way, Way]:
        return Way(pool("exact", k)), Way(pool(name, k))

    def swapped(sides: tuple[Way, Way]) -> str:
        return kind(sides[1], sides[0])

    unlike = tuple(one for one in KINDS if one not in (*EQUIVALENT, "cannot tell"))
    return {
        "itself": (lambda k: kind(*itself(k)), SAME),
        f"tau {SHARP}": (lambda k: kind(*itself(k, SHARP)), ("only sharper",)),
        "better checkpoint": (lambda k: kind(*against("worse", k)), ("better",)),
        "better sampler": (lambda k: kind(*against("parallel", k)), ("better",)),
        "two outputs": (lambda k: kind(*itself(k), again="two"), ("mixed",)),
        "swapped: tau": (lambda k: swapped(itself(k, SHARP)), ("only smoother",)),
        "swapped: checkpoint": (lambda k: swapped(against("worse", k)), ("worse",)),
        "swapped: sampler": (lambda k: swapped(against("parallel", k)), ("worse",)),
        "sixteen outputs": (lambda k: kind(*itself(k), again="sixteen"), ("worse", "mixed")),
        "beyond the margin": (lambda k: kind(*against("near", k)), unlike),
        "itself, three looks": (looks, SAME),
    }


def misleading(ground: Ground) -> dict[str, Rule]:
    """Generators made to mislead."""
    pool = ground.pool

    def other(k: int) -> Way:
        return Way(pool("other", k))

    def crossing(k: int, good: Callable[[float], bool]) -> str:
        return kind(Way(ground.by_temperature(k, good)), Way(pool("middle", k)))

    def scaled(k: int, sweep: Sequence[float]) -> str:
        a, b = Way(pool("exact", k, SCALED), sweep=sweep), replace(other(k), sweep=sweep)
        return kind(a, b)

    def late_noise(k: int) -> str:
        # What follows the first document is not scored, whatever it is.
        return kind(Way(lambda tau: cut(pool("exact", k, SCALED)(tau), LENGTH // 2)), other(k))

    def shorter(k: int, fewest: int, most: int) -> str:
        return kind(Way(ground.shorter(k, fewest, most)), other(k))

    made: dict[str, Rule] = {
        "mixture": (lambda k: kind(Way(ground.halves(k)), other(k)), ("worse", "mixed")),
        "noise": (lambda k: kind(Way(ground.noisy(k)), other(k)), ("worse",)),
        "crossing once": (lambda k: crossing(k, lambda tau: tau < 0.95), ("mixed",)),
        "crossing twice": (lambda k: crossing(k, lambda tau: 0.88 < tau < 1.02), ("mixed",)),
        "duplicates": (
            lambda k: kind(Way(pool("exact", k)), Way(pool("worse", k)), again="quarter"),
            ("mixed",),
        ),
        "shorter by 9%": (lambda k: shorter(k, 116, 116), SAME),
        "longer by 9%": (
            lambda k: kind(other(k), Way(ground.shorter(k, 116, 116))),
            SAME,
        ),
        "lengths 64 to 128": (lambda k: shorter(k, 64, 128), SAME),
        "noise after the end": (late_noise, ("only sharper",)),
    }
    for name, sweep in SWEEPS.items():
        made[f"rescaled, {name} temperatures"] = (
            lambda k, sweep=sweep: scaled(k, sweep),
            ("only sharper",),
        )
    return made


def cases(
    repetitions: int, n: int, seed: int = 0, chain: int = 0, shared: Ground | None = None
) -> list[Case]:
    """All cases over banks that are drawn when they are first used, or that a ground has."""
    ground = Ground(n, repetitions, seed, chain) if shared is None else replace(shared, n=n)
    every = {**known(ground), **misleading(ground)}
    return [Case(name, how, right, repetitions) for name, (how, right) in every.items()]


def main() -> None:
    words = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    words.add_argument("--repetitions", type=int, default=200)
    words.add_argument("-n", type=int, action="append", help="By default 256; may be repeated.")
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--chain", type=int, default=0, choices=range(len(LANGUAGES)))
    words.add_argument("--case", action="append", help="Only cases whose name begins so.")
    words.add_argument("--json", action="store_true")
    asked = words.parse_args()
    sizes = asked.n or [256]
    ground = Ground(max(sizes), asked.repetitions, asked.seed, asked.chain, max(sizes))
    every = [cases(asked.repetitions, n, shared=ground) for n in sizes]
    rows = []
    for some in zip(*every, strict=True):  # one case after the other, at every size
        if asked.case and not some[0].name.startswith(tuple(asked.case)):
            continue
        for n, case in zip(sizes, some, strict=True):
            found = case.counted()
            right, open_ = sum(found[one] for one in case.right), found["cannot tell"]
            wrong = case.repetitions - right - open_
            rows.append(
                {"chain": asked.chain, "n": n, "case": case.name, "right": right}
                | {"cannot tell": open_, "wrong": wrong, "verdicts": dict(found)}
            )
            if not asked.json:
                print(*(f"{key} {value}" for key, value in rows[-1].items()), sep=", ", flush=True)
    if asked.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
