"""Theorem 1 on a stationary Markov chain of any length, without enumerating anything.

A hidden token of a chain depends on the visible ones only through its nearest visible
neighbours. So h(a) and c_lambda(a) are sums over the two distances to them, each geometric with
parameter a and cut off at the ends of the sequence. Powers of the transition matrix give the
conditional law; beyond the mixing time a neighbour is as good as none.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from strop.errors import UserError
from strop.theory.target import Array, log_sum, stationary

MIXED = 1e-13
"""Rows of a power of the matrix that agree to this no longer remember where they started."""


class Chain:
    """A stationary chain X_1..X_L with a positive transition matrix."""

    def __init__(self, kernel: ArrayLike, length: int) -> None:
        self.kernel, self.length = _checked(kernel), length
        self.start = stationary(self.kernel)

    @property
    def values(self) -> int:
        """The number of symbols."""
        return self.kernel.shape[0]

    @cached_property
    def powers(self) -> Array:
        """K^1, K^2, ..., up to the mixing time: shape `(D, V, V)`."""
        out = [self.kernel]
        while len(out) < self.length - 1 and np.ptp(out[-1], axis=0).max() > MIXED:
            out.append(out[-1] @ self.kernel)
        return np.stack(out)

    @property
    def entropy_rate(self) -> float:
        """H(X_2 | X_1)."""
        return float(-self.start @ (self.kernel * np.log(self.kernel)).sum(axis=1))

    @property
    def entropy(self) -> float:
        """H(X_1..X_L)."""
        first = float(-self.start @ np.log(self.start))
        return first + (self.length - 1) * self.entropy_rate

    @property
    def pairs(self) -> Array:
        """The law of two neighbours."""
        return self.start[:, None] * self.kernel

    def token_losses(self, lam: float = 1.0) -> Array:
        """E[-log q_lambda(X_i | nearest neighbours)] for every pair of distances.

        Shape `(D + 1, D + 1)`: entry (d, e) has the left neighbour d + 1 steps away and the right
        one e + 1; the last row and column stand for no neighbour.
        """
        alone = np.broadcast_to(self.start, (1, *self.kernel.shape))
        left = np.concatenate([self.powers, alone])  # a -> v
        right = np.concatenate([self.powers, np.ones_like(alone)])  # v -> b
        right_law = np.concatenate([self.powers, np.full_like(alone, 1 / self.values)])
        out = np.empty((len(left), len(right)))
        for d, first in enumerate(left):
            # joint[e, a, v, b] without its part P(b): laws of (a, v), then of b given v
            weight = self.start[:, None] * first
            log_q = lam * (np.log(first)[None, :, :, None] + np.log(right)[:, None, :, :])
            log_q -= log_sum(log_q, axis=2, keepdims=True)
            joint = weight[None, :, :, None] * right_law[:, None, :, :]  # no neighbour: a dummy
            out[d] = -(joint * log_q).sum(axis=(1, 2, 3))
        return out

    def neighbour_weights(self, level: float) -> Array:
        """sum over positions of Pr(left distance) Pr(right distance) at visible probability a."""
        depth = len(self.powers)
        reach = np.arange(self.length)[:, None]  # tokens on that side of position i
        d = np.arange(1, depth + 1)[None, :]
        near = np.where(d <= reach, level * (1 - level) ** (d - 1), 0.0)
        # Further than the mixing time, or nobody visible at all.
        far = (1 - level) ** np.minimum(reach, depth)
        left = np.concatenate([near, far], axis=1)
        return left.T @ left[::-1]

    def profiles(self, levels: ArrayLike, lams: ArrayLike) -> Array:
        """c_lambda(a): shape `(lams, levels)`; at lambda = 1 it is h(a)."""
        losses = np.stack([self.token_losses(float(lam)) for lam in np.atleast_1d(lams)])
        flat = losses.reshape(len(losses), -1)
        columns = [self.neighbour_weights(float(a)).reshape(-1) for a in np.atleast_1d(levels)]
        return np.stack([flat @ column for column in columns], axis=1)

    def account(self, masses: ArrayLike, lams: ArrayLike) -> tuple[float, Array]:
        """B_N, and C_N at every lambda, for any reveal masses."""
        delta = np.asarray(masses, dtype=float)
        levels = np.concatenate([[0.0], np.cumsum(delta)[:-1]])
        lams = np.append(1.0, np.atleast_1d(np.asarray(lams, dtype=float)))
        sums = self.profiles(levels, lams) @ delta
        return float(sums[0]) - self.entropy, sums[1:] - sums[0]

    def log_likelihood(self, ids: ArrayLike) -> Array:
        """log P(x) of every row."""
        x = np.asarray(ids)
        steps = np.log(self.kernel)[x[:, :-1], x[:, 1:]]
        return np.log(self.start)[x[:, 0]] + steps.sum(axis=1)

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Exact samples, one token after the other."""
        cumulative = self.kernel.cumsum(axis=1)
        out = np.empty((count, self.length), dtype=np.int64)
        out[:, 0] = rng.choice(self.values, size=count, p=self.start)
        for i in range(1, self.length):
            level = rng.random(count)[:, None]
            below = (cumulative[out[:, i - 1]] <= level).sum(axis=1)
            out[:, i] = np.minimum(below, self.values - 1)
        return out


def random_chain(values: int, length: int, rng: np.random.Generator) -> Chain:
    """Rows from a symmetric Dirichlet law, with one percent of the uniform one mixed in."""
    rows = rng.dirichlet(np.full(values, 0.3), size=values)
    return Chain(0.99 * rows + 0.01 / values, length)


def _checked(kernel: ArrayLike) -> Array:
    matrix = np.asarray(kernel, dtype=float)
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] > 0
    if not square or not np.isfinite(matrix).all() or (matrix <= 0).any():
        raise UserError(
            "A chain needs a square transition matrix with positive entries.",
            got=f"an array of shape {matrix.shape}",
        )
    if np.abs(matrix.sum(axis=1) - 1).max() > 1e-8:
        raise UserError("The rows of the transition matrix do not sum to one.")
    return matrix / matrix.sum(axis=1, keepdims=True)
