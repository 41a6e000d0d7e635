"""Denoisers on a finite space: the tables log q^i(x_i | x_A), exact or arbitrary, and tempering.

All conditionals of a denoiser are one array of shape `(R, L, 2**L, size)`: rounds (R = 1 when
every round uses the same denoiser), the predicted coordinate i, the visible set A and the output
x, from which the entry reads x_i and x_A. Entries whose set A contains i are never used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from strop.theory.target import Array, Target, check_size, log_of


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
        cls,
        shape: tuple[int, ...],
        rng: np.random.Generator,
        rounds: int = 1,
        concentration: float = 1.0,
    ) -> Conditionals:
        """Independent Dirichlet predictions for every context: no target has these posteriors."""
        length = len(shape)
        tables: list[dict[tuple[int, int], Array]] = []
        for _ in range(rounds):
            one_round: dict[tuple[int, int], Array] = {}
            for i in range(length):
                for mask in (m for m in range(1 << length) if not m >> i & 1):
                    used = [v if (mask | 1 << i) >> k & 1 else 1 for k, v in enumerate(shape)]
                    gamma = rng.standard_gamma(concentration, size=used) + 1e-3
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
        return temper(self.log_q, self.shape, np.atleast_1d(np.asarray(lam)))


def temper(log_q: Array, shape: tuple[int, ...], lam: NDArray) -> NDArray:
    """q_lambda proportional to q**lambda for every prediction at once; lam may be complex.

    `lam` has shape `(..., R)`; see `per_context` for temperatures that depend on the visible set.
    """
    scale = lam[..., None, None, None]
    return _normalised(_times(scale, log_q), shape)


def per_context(log_q: Array, shape: tuple[int, ...], lam: NDArray) -> NDArray:
    """Tempering with one inverse temperature per round and visible set: lam is `(R, 2**L)`."""
    return _normalised(_times(lam[:, None, :, None], log_q), shape)


def temper_slope(log_q: Array, shape: tuple[int, ...], log_tempered: NDArray) -> NDArray:
    """d/d lambda of log q_lambda(x_i | x_A) = r(x_i) - E_{q_lambda} r, with r = log q.

    Where q vanishes so does its tempered version; the slope there is set to zero.
    """
    r = np.where(np.isneginf(log_q), 0.0, log_q)
    out = np.empty(np.broadcast_shapes(log_tempered.shape, log_q.shape), log_tempered.dtype)
    for i in range(len(shape)):
        cells = _cells(np.broadcast_to(r[..., i, :, :], out[..., i, :, :].shape), shape)
        weights = _cells(np.exp(log_tempered[..., i, :, :]), shape)
        axis = i - len(shape)
        centred = cells - (weights * cells).sum(axis=axis, keepdims=True)
        out[..., i, :, :] = centred.reshape(out[..., i, :, :].shape)
    return np.where(np.isneginf(log_q), 0.0, out)


def log_sum(values: NDArray, axis: int, keepdims: bool = False) -> NDArray:
    """log sum exp along an axis; all -inf gives -inf, complex input is allowed."""
    top = np.real(values).max(axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        out = np.log(np.exp(values - top).sum(axis=axis, keepdims=True)) + top
    return out if keepdims else np.squeeze(out, axis=axis)


def _times(scale: NDArray, log_q: Array) -> NDArray:
    zero = np.isneginf(log_q)
    if not zero.any():
        return scale * log_q
    product = scale * np.where(zero, 0.0, log_q)
    return np.where(zero, -np.inf, product)


def _normalised(scaled: NDArray, shape: tuple[int, ...]) -> NDArray:
    for i in range(len(shape)):
        part = scaled[..., i, :, :]
        cells = _cells(part, shape)
        total = log_sum(cells, axis=i - len(shape), keepdims=True)
        scaled[..., i, :, :] = (cells - total).reshape(part.shape)
    return scaled


def _cells(flat: NDArray, shape: tuple[int, ...]) -> NDArray:
    return flat.reshape(*flat.shape[:-1], *shape)
