"""How far a parallel sampler's law is from the language's: bounds by paths, exact denoiser.

In every round of a grid of M equal ones a sampler draws the tokens that it reveals independently,
from predictive laws at temperature tau. Given a path S (the round of every position) its law of
texts is a product Q^S, and its output law pi is the mean of Q^S over paths. So for exact texts X

    KL(P || pi) <= E log P(X) - E log (1/m) sum over m paths of Q^S(X)

whatever m is (Jensen), and the bound falls to the distance as m grows. With m = 1 it is J_M - H.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.language.law import Ids, Language, normal
from strop.rng import derive_seed
from strop.stats.interval import Interval

PATHS = (1, 16, 64)
ENTRIES = 4_000_000
"""Of predictive laws that are held at a time."""


@dataclass(frozen=True)
class PathBound:
    """At most so far, in nats per text."""

    steps: int
    temperature: float
    paths: int
    bound: Interval


def path_bounds(
    language: Language,
    steps: int,
    *,
    temperature: float = 1.0,
    paths: Sequence[int] = PATHS,
    texts: int = 96,
    seed: int = 0,
) -> list[PathBound]:
    """Upper bounds of KL(P || pi) by m paths, for every m, all from the same texts and paths."""
    if steps < 1 or temperature <= 0 or texts < 2 or min(paths, default=0) < 1:
        raise UserError(
            "A bound needs steps, a temperature above 0, two texts and at least one path.",
            got=f"{steps} steps, temperature {temperature:g}, {texts} texts, {list(paths)} paths",
        )
    ids = language.draw(texts, derive_seed(seed, "path-bound"))
    true, most = language.log_p(ids), max(paths)
    rng = np.random.default_rng(derive_seed(seed, "paths", steps))
    # The law of the grid: every position is revealed in any of the rounds alike.
    rounds = rng.integers(steps, size=(texts, most, language.length))
    logs = np.zeros((texts, most))
    for one in range(most):
        logs[:, one] = _along(language, ids, rounds[:, one], 1 / temperature)
    return [
        PathBound(steps, temperature, m, normal(true - _mean_of(logs, m))) for m in sorted(paths)
    ]


def _along(language: Language, ids: Ids, rounds: NDArray[np.int64], power: float) -> NDArray:
    """log Q^S of every text along its path [texts]."""
    found = np.zeros(len(ids))
    chunk = max(1, ENTRIES // (language.length * language.mask_id))
    for first in range(0, len(ids), chunk):
        here = slice(first, first + chunk)
        for number in np.unique(rounds[here]):
            hidden = np.where(rounds[here] >= number, language.mask_id, ids[here])
            text, position = np.nonzero(rounds[here] == number)
            laws = power * np.log(language.predictive(hidden)[text, position])
            high = laws.max(axis=1)
            whole = high + np.log(np.exp(laws - high[:, None]).sum(axis=1))
            token = ids[here][text, position]
            scores = laws[np.arange(len(laws)), token] - whole
            found[here] += np.bincount(text, scores, minlength=len(hidden))
    return found


def _mean_of(logs: NDArray, m: int) -> NDArray:
    """log of the mean of Q over m paths, the mean of it over as many sets of m as there are."""
    sets = logs[:, : logs.shape[1] // m * m].reshape(len(logs), -1, m)
    high = sets.max(axis=2, keepdims=True)
    return (high[..., 0] + np.log(np.exp(sets - high).mean(axis=2))).mean(axis=1)
