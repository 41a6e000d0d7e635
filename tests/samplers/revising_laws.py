"""ReMDM's output law by enumeration, written from the formulas and without the samplers' code.

A state is a context and, for `conf`, the probability with which each visible token was drawn.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from strop import TabularDenoiser
from strop.samplers.machinery.lattice import exact_law

Schedule = Callable[[float, float], tuple[float, float, float]]
"""(t, s) -> weight of revealing, weight of staying masked, probability of being taken back."""


def sigma_schedule(sigma: Callable[[float, float], float]) -> Schedule:
    """sigma as a function of the visible shares before and after."""

    def weights(t: float, s: float) -> tuple[float, float, float]:
        a, b = 1 - t, 1 - s
        x = sigma(a, b)
        return (b - (1 - x) * a) / (1 - a), max(0.0, (1 - b - x * a) / (1 - a)), x

    return weights


def largest(a: float, b: float) -> float:
    return 1.0 if a == 0 else min(1.0, (1 - b) / a)


def cap(eta: float) -> Schedule:
    return sigma_schedule(lambda a, b: min(eta, largest(a, b)))


def rescale(eta: float) -> Schedule:
    return sigma_schedule(lambda a, b: eta * largest(a, b))


def loop(eta: float, t_on: float, t_off: float, alpha_on: float) -> Schedule:
    def weights(t: float, s: float) -> tuple[float, float, float]:
        if t > t_on:
            rate = alpha_on / (1 - t_on)
            return (t - s) * rate, max(0.0, 1 - (1 - s) * rate), 0.0
        if t <= t_off:
            return t - s, s, 0.0
        odds = alpha_on / (1 - alpha_on)
        return eta * odds, 1 - eta * odds, eta

    return weights


def within(law: np.ndarray, temperature: float, top_p: float) -> np.ndarray:
    """Temperature, then the nucleus whose mass stays within top_p, the best token always kept."""
    law = law ** (1 / temperature)
    law = law / law.sum()
    kept, mass = np.zeros_like(law), 0.0
    for rank, v in enumerate(np.argsort(-law, kind="stable")):
        mass += law[v]
        if rank and mass > top_p + 1e-9:
            break
        kept[v] = law[v]
    return kept / kept.sum()


class Arbitrary(TabularDenoiser):
    """Predictions that belong to no joint law: any law of the clean token in any context.

    With Bayes conditionals whatever is revised looks alike; here every difference shows.
    """

    def __init__(self, vocab: int, length: int, seed: int, concentration: float = 0.4) -> None:
        super().__init__(np.full((vocab,) * length, vocab**-length))
        contexts = (vocab + 1,) * length
        random = np.random.default_rng(seed)
        laws = random.dirichlet(np.full(vocab, concentration), size=(*contexts, length))
        self.predictions: NDArray[np.float64] = 0.97 * laws + 0.03 / vocab
        table = np.log(self.predictions).reshape(-1, length, vocab)
        blank = np.zeros((*table.shape[:2], 1))
        self._table = torch.from_numpy(np.concatenate([table, blank], axis=-1))


def revising_law(
    predictions: np.ndarray,
    times: list[tuple[float, float]],
    schedule: Schedule,
    *,
    confidence: bool = False,
    bits: int | None = None,
    temperature: float = 1.0,
    top_p: float = 1.0,
    finish: str = "greedy",
    masked_first: bool = False,
    alike: bool = False,
    given: tuple[int | None, ...] = (),
    let_go: bool = False,
) -> np.ndarray:
    """The law over (V + 1)^L (index V: masked) after the updates and the finish.

    `bits` draws on a float32 lattice. `masked_first` is a wrong sampler, for control: it predicts
    from what is left after the update has taken tokens back. `alike` is another one: it shares
    what is taken back evenly instead of by confidence. Tokens that are `given` stay, unless the
    sampler is wrong and would `let_go` of them.
    """
    vocab, length = predictions.shape[-1], predictions.shape[-2]
    held = set() if let_go else {i for i, token in enumerate(given) if token is not None}
    first = tuple(vocab if token is None else token for token in given) or (vocab,) * length
    blank = (first, (0.0,) * length)
    states: dict[Any, float] = {blank: 1.0}

    @functools.cache
    def race(*weights: float) -> np.ndarray:
        if bits is None:
            return np.array(weights) / sum(weights)
        return exact_law(np.array(weights, np.float32), bits)

    @functools.cache
    def clean(context: Any, i: int) -> np.ndarray:
        return within(predictions[*context, i], temperature, top_p)

    def taken(context: Any, sure: Any, back: float) -> list[float]:
        seen = [i for i in range(length) if context[i] != vocab and i not in held]
        if not confidence:
            return [back] * length
        share = [
            np.exp(-sure[i]) if i in seen and not alike else float(i in seen) for i in range(length)
        ]
        return [back * one / max(sum(share), 1e-300) for one in share]

    def outcomes(context: Any, sure: Any, i: int, reveal: Any, chance: float) -> list[Any]:
        """(value, confidence, probability) at one position."""
        if i in held:
            return [(context[i], 0.0, 1.0)]
        if context[i] != vocab:
            keep, lose = race(1 - chance, chance)
            return [(context[i], sure[i], keep), (vocab, 0.0, lose)]
        law = clean(context, i)
        *tokens, stay = race(*(law * reveal[0]), reveal[1])
        found = [(v, law[v] if confidence else 0.0, p) for v, p in enumerate(tokens)]
        return [*found, (vocab, 0.0, stay)]

    def spread(state: Any, weight: float, options: list[Any], after: dict[Any, float]) -> None:
        for combination in itertools.product(*options):
            chance = weight * math.prod(float(p) for _, _, p in combination)
            if chance > 0:
                reached = tuple(v for v, _, _ in combination), tuple(c for _, c, _ in combination)
                after[reached] = after.get(reached, 0.0) + chance

    for t, s in times:
        *reveal, back = schedule(t, s)
        if confidence:
            reveal = [t - s, s]
        after: dict[Any, float] = {}
        for (context, sure), weight in states.items():
            chances = taken(context, sure, back)
            if not masked_first:
                options = [outcomes(context, sure, i, reveal, chances[i]) for i in range(length)]
                spread((context, sure), weight, options, after)
                continue
            left: dict[Any, float] = {}
            halves = [
                [(context[i], sure[i], 1.0)]
                if context[i] == vocab
                else [(context[i], sure[i], 1 - chances[i]), (vocab, -1.0, chances[i])]
                for i in range(length)
            ]
            spread((context, sure), weight, halves, left)
            for (seen, marks), part in left.items():
                options = [
                    [(vocab, 0.0, 1.0)]  # taken back just now: not offered again in this update
                    if marks[i] == -1.0
                    else outcomes(seen, marks, i, reveal, 0.0)
                    for i in range(length)
                ]
                spread((seen, marks), part, options, after)
        states = after
    law = np.zeros((vocab + 1,) * length)
    for (context, _), weight in states.items():
        filled = tuple(
            int(clean(context, i).argmax()) if x == vocab and finish == "greedy" else x
            for i, x in enumerate(context)
        )
        law[filled] += weight
    return law
