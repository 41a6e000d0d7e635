"""Denoisers on a finite space: the tables log q^i(x_i | x_A), exact or arbitrary, and tempering.

All conditionals of a denoiser are one array of shape `(R, L, 2**L, size)`: rounds (R = 1 when
every round uses the same denoiser), the predicted coordinate i, the visible set A and the output
x, from which the entry reads x_i and x_A. Entries whose set A contains i are never used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from strop.theory.target import Array, Target, check_size, finite, log_of


@dataclass(frozen=True, eq=False)
class Conditionals:
    """A predictor q^i(. | x_A) for every masked coordinate and visible set, perhaps per round."""

    shape: tuple[int, ...]
    """The alphabet sizes."""
    log_q: Array
    """Shape `(R, L, 2**L, size)`."""

    @property
    def rounds(self) -> int:
        """1 if all rounds share their tables, otherwise the number of rounds."""
        return self.log_q.shape[0]

    @classmethod
    def bayes(cls, target: Target) -> Conditionals:
        """The exact conditionals P(X_i | X_A), uniform where P(X_A = x_A) = 0."""
        joint = log_of(target.marginals)
        tables = np.zeros((1, target.L, target.subsets, target.size))
        masks = np.arange(target.subsets)
        for i in range(target.L):
            context = masks[(masks >> i) & 1 == 0]
            with np.errstate(invalid="ignore"):
                conditional = joint[context | (1 << i)] - joint[context]
            null = np.isneginf(joint[context])
            tables[0, i, context] = np.where(null, -np.log(target.shape[i]), conditional)
        return cls(target.shape, tables)

    @classmethod
    def from_tables(
        cls, shape: tuple[int, ...], tables: list[dict[tuple[int, int], Array]]
    ) -> Conditionals:
        """From one dictionary (i, mask of A) -> table with L axes per round; absent ones uniform.

        A table has length one on the axes outside A and i, so broadcasting expands it.
        """
        length, size = len(shape), int(np.prod(shape))
        check_size(shape, len(tables))
        log_q = np.empty((len(tables), length, 1 << length, size))
        for i, values in enumerate(shape):
            log_q[:, i] = -np.log(values)
        for r, one_round in enumerate(tables):
            for (i, mask), table in one_round.items():
                log_q[r, i, mask] = np.broadcast_to(log_of(table), shape).reshape(-1)
        return cls(shape, log_q)

    @classmethod
    def random(
        cls, shape: tuple[int, ...], rng: np.random.Generator, rounds: int = 1
    ) -> Conditionals:
        """Independent Dirichlet predictions for every context: no target has these posteriors."""
        length = len(shape)
        tables: list[dict[tuple[int, int], Array]] = []
        for _ in range(rounds):
            one_round: dict[tuple[int, int], Array] = {}
            for i in range(length):
                for mask in (m for m in range(1 << length) if not m >> i & 1):
                    used = [v if (mask | 1 << i) >> k & 1 else 1 for k, v in enumerate(shape)]
                    gamma = rng.standard_gamma(1.0, size=used) + 1e-3
                    one_round[i, mask] = gamma / gamma.sum(axis=i, keepdims=True)
            tables.append(one_round)
        return cls.from_tables(shape, tables)

    def table(self, i: int, mask: int, round_: int = 0) -> Array:
        """q^i(. | x_A) as a table with L axes, length one on the unused ones."""
        full = np.exp(self.log_q[round_, i, mask]).reshape(self.shape)
        used = mask | 1 << i
        index = tuple(slice(None) if used >> k & 1 else slice(0, 1) for k in range(len(self.shape)))
        return full[index]

    def tempered(self, lam: ArrayLike) -> NDArray:
        """log q_lambda; the last axis of `lam` runs over rounds (length 1: the same in all).

        The result has shape `(..., R, L, 2**L, size)`, with the leading axes of `lam`.
        """
        return temper(self.log_q, self.shape, np.atleast_1d(lam)[..., None, None, None])


def temper(log_q: Array, shape: tuple[int, ...], lam: NDArray) -> NDArray:
    """q_lambda proportional to q**lambda for every prediction at once; lam may be complex.

    `lam` broadcasts against the tables: it may depend on the round and on the visible set.
    """
    zero = np.isneginf(log_q)
    scaled = lam * finite(log_q) if zero.any() else lam * log_q
    scaled = np.where(zero, -np.inf, scaled) if zero.any() else scaled
    for i in range(len(shape)):
        part = scaled[..., i, :, :]
        cells = _cells(part, shape)
        total = log_sum(cells, axis=i - len(shape), keepdims=True)
        scaled[..., i, :, :] = (cells - total).reshape(part.shape)
    return scaled


def predicted_mean(values: NDArray, shape: tuple[int, ...], log_tempered: NDArray) -> NDArray:
    """E_{q_lambda} of values(x_i) in every context, in the layout of the tables."""
    out = np.empty(np.broadcast_shapes(log_tempered.shape, values.shape), log_tempered.dtype)
    for i in range(len(shape)):
        part = out[..., i, :, :]
        weighted = np.exp(log_tempered[..., i, :, :]) * values[..., i, :, :]
        mean = _cells(weighted, shape).sum(axis=i - len(shape), keepdims=True)
        part[:] = np.broadcast_to(mean, (*part.shape[:-1], *shape)).reshape(part.shape)
    return out


def temper_slope(log_q: Array, shape: tuple[int, ...], log_tempered: NDArray) -> NDArray:
    """d/d lambda of log q_lambda(x_i | x_A) = r(x_i) - E_{q_lambda} r, with r = log q.

    Where q vanishes so does its tempered version; the slope there is set to zero.
    """
    r = finite(log_q)
    return np.where(np.isneginf(log_q), 0.0, r - predicted_mean(r, shape, log_tempered))


def log_sum(values: NDArray, axis: int, keepdims: bool = False) -> NDArray:
    """log sum exp along an axis; all -inf gives -inf, complex input is allowed."""
    top = np.real(values).max(axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        out = np.log(np.exp(values - top).sum(axis=axis, keepdims=True)) + top
    return out if keepdims else np.squeeze(out, axis=axis)


def _cells(flat: NDArray, shape: tuple[int, ...]) -> NDArray:
    return flat.reshape(*flat.shape[:-1], *shape)
