"""Outputs of the parallel sampler on a Markov chain of any length, drawn by its exact posteriors.

Every output reveals its positions in a random order, an equal share of them in each round. Tokens
of one round are drawn independently given all earlier rounds: with as many rounds as positions
this is one token at a time, and at temperature one the chain itself. A hidden token depends on the
visible ones through its nearest visible neighbours alone (`strop.theory.chain`), and which those
are follows from the order before anything is drawn.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.theory.chain import Chain

ROWS = 2048
"""Outputs that are drawn side by side: few enough that their tables stay in the cache."""


def unmask(
    chain: Chain, count: int, *, rounds: int, temperature: float, seed: int
) -> NDArray[np.int64]:
    """`count` outputs [count, L]; the same seed draws by the same numbers at any temperature."""
    if not 1 <= rounds <= chain.length or temperature <= 0:
        raise UserError(
            "There are at most as many rounds as positions, and temperatures are positive.",
            got=f"{rounds} rounds, temperature {temperature}",
        )
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
