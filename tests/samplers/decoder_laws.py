"""Output laws of blockwise decoders by enumeration, written without the decoders' code.

A rule says, for a context and the conditional laws at its masks, in which ways one round can go:
pairs of a probability and of {position: token}. `enumerated` follows all of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
from laws import Context, conditional, sharpen

Laws = dict[int, np.ndarray]
"""Position -> law of its token in the network's own words."""
Moves = Iterator[tuple[float, dict[int, int]]]
Rule = Callable[[Laws, int], Moves]
"""(laws at the open masks, round in the block) -> what can happen, with probabilities."""


def enumerated(target: np.ndarray, start: Context, rule: Rule, block: int = 0) -> np.ndarray:
    """The law of what stands at the end, over V^L, from a canvas with given tokens."""
    vocab, length = target.shape[0], target.ndim
    masks = [i for i, x in enumerate(start) if x == vocab]
    size = block or length
    blocks = [masks[i : i + size] for i in range(0, len(masks), size)]
    state: dict[Context, float] = {start: 1.0}
    for inside in blocks:
        round_ = 0
        while any(c[i] == vocab for c in state for i in inside):
            after: dict[Context, float] = {}
            for context, weight in state.items():
                open_ = [i for i in inside if context[i] == vocab]
                laws = {i: conditional(target, context, i) for i in open_}
                for chance, put in rule(laws, round_) if open_ else [(1.0, {})]:
                    reached = list(context)
                    for i, v in put.items():
                        reached[i] = v
                    key = tuple(reached)
                    after[key] = after.get(key, 0.0) + weight * chance
            state, round_ = after, round_ + 1
    law = np.zeros((vocab + 1,) * length)
    for context, weight in state.items():
        law[context] += weight
    return law


def drawn(laws: Laws, where: tuple[int, ...], temperature: float) -> Moves:
    """Independent draws at some positions."""
    tempered = [sharpen(laws[i], temperature, 1.0) for i in where]
    for tokens in itertools.product(*(range(len(law)) for law in tempered)):
        chance = math.prod(float(law[v]) for law, v in zip(tempered, tokens, strict=True))
        if chance > 0:
            yield chance, dict(zip(where, tokens, strict=True))


def best(values: dict[int, float], count: int) -> tuple[int, ...]:
    """The highest, the leftmost on ties."""
    return tuple(sorted(sorted(values, key=lambda i: (-values[i], i))[:count]))


def quotas(masks: int, steps: int) -> list[int]:
    return [masks // steps + (i < masks % steps) for i in range(steps)]


def by_order(
    value: Callable[[np.ndarray, int], float], count: Callable[[int, int], int], temperature: float
) -> Rule:
    """Positions chosen by a number that is known before any token is drawn."""

    def rule(laws: Laws, round_: int) -> Moves:
        values = {i: value(law, i) for i, law in laws.items()}
        yield from drawn(laws, best(values, count(round_, len(laws))), temperature)

    return rule


def at_random(count: Callable[[int, int], int], temperature: float) -> Rule:
    """Any set of positions, all equally likely."""

    def rule(laws: Laws, round_: int) -> Moves:
        sets = list(itertools.combinations(laws, count(round_, len(laws))))
        for chosen in sets:
            for chance, put in drawn(laws, chosen, temperature):
                yield chance / len(sets), put

    return rule


def by_draw(
    choose: Callable[[dict[int, float], int], tuple[int, ...]], temperature: float, tempered: bool
) -> Rule:
    """Tokens drawn everywhere first; then positions chosen by the drawn tokens' probabilities."""

    def rule(laws: Laws, round_: int) -> Moves:
        score = {i: sharpen(law, temperature if tempered else 1.0, 1.0) for i, law in laws.items()}
        for chance, put in drawn(laws, tuple(laws), temperature):
            chosen = choose({i: float(score[i][v]) for i, v in put.items()}, round_)
            yield chance, {i: put[i] for i in chosen}

    return rule


def by_coins(hazards: list[float], temperature: float) -> Rule:
    """Each position by itself."""

    def rule(laws: Laws, round_: int) -> Moves:
        p = hazards[round_]
        for size in range(len(laws) + 1):
            for chosen in itertools.combinations(laws, size):
                weight = p**size * (1 - p) ** (len(laws) - size)
                for chance, put in drawn(laws, chosen, temperature):
                    if weight > 0:
                        yield weight * chance, put

    return rule


def by_weights(
    value: Callable[[np.ndarray, int], float], count: Callable[[int, int], int], spread: float
) -> Rule:
    """Positions drawn one after another by softmax(value / spread), without replacement."""

    def rule(laws: Laws, round_: int) -> Moves:
        weight = {i: np.exp(value(law, i) / spread) for i, law in laws.items()}
        for chosen in itertools.permutations(laws, count(round_, len(laws))):
            chance, left = 1.0, sum(weight.values())
            for i in chosen:
                chance, left = chance * weight[i] / left, left - weight[i]
            for p, put in drawn(laws, tuple(sorted(chosen)), 1.0):
                yield chance * p, put

    return rule


def top(law: np.ndarray, i: int) -> float:
    return float(law.max())


def margin(law: np.ndarray, i: int) -> float:
    ordered = np.sort(law)
    return float(ordered[-1] - ordered[-2])


def entropy(law: np.ndarray, i: int) -> float:
    return float((law * np.log(law + 1e-10)).sum())


def left(law: np.ndarray, i: int) -> float:
    return -float(i)
