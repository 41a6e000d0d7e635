"""A target law P on a finite product space, denoisers on it, and the laws the theory is tried on.

Outputs are enumerated once, in C order: an array over outputs has length `size`, and reshaped
to `shape` it has one axis per coordinate. A subset A of the coordinates is a bit mask, so an
array over subsets has length 2**L and A contains coordinate i when bit i is set.

All conditionals log q^i(x_i | x_A) of a denoiser, exact or arbitrary, are one array of shape
`(R, L, 2**L, size)`: rounds (R = 1 when every round uses the same denoiser), the predicted
coordinate i, the visible set A and the output x, from which the entry reads x_i and x_A. Entries
whose set A contains i are never used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from strop.errors import UserError

Array = NDArray[np.float64]

# Conditional tables have L * 2**L * size cells; 2**25 of them are a quarter of a gigabyte.
MAX_CELLS = 2**25

SUM_TOLERANCE = 1e-6

CONCENTRATIONS = (0.3, 1.0, 3.0)
"""Of the Dirichlet laws that random targets are drawn from, in turn."""


@dataclass(frozen=True, eq=False)
class Target:
    """A law P with one axis per coordinate; axes may differ in length and entries may be zero."""

    P: Array
    """The probabilities, shape `(V_1, ..., V_L)`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "P", _checked(self.P))

    @property
    def L(self) -> int:  # noqa: N802
        """The number of coordinates."""
        return self.P.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        """The alphabet sizes V_1, ..., V_L."""
        return self.P.shape

    @property
    def size(self) -> int:
        """The number of outputs."""
        return self.P.size

    @property
    def subsets(self) -> int:
        """The number of subsets of the coordinates."""
        return 1 << self.L

    @cached_property
    def p(self) -> Array:
        """P over the enumerated outputs."""
        return self.P.reshape(-1)

    @cached_property
    def marginals(self) -> Array:
        """P(X_A = x_A) for every subset A (rows) and output x (columns).

        One coordinate at a time is summed out of half of all subsets at once.
        """
        table = np.empty((self.subsets, *self.shape))
        table[-1] = self.P
        have = np.array([self.subsets - 1])
        for i in range(self.L):
            without = have & ~(1 << i)
            table[without] = table[have].sum(axis=i + 1, keepdims=True)
            have = np.concatenate([have, without])
        return table.reshape(self.subsets, self.size)

    @cached_property
    def entropies(self) -> Array:
        """H(X_A) for every subset A, in nats."""
        return -expect(self.p, log_of(self.marginals))

    @property
    def entropy(self) -> float:
        """H(X)."""
        return float(self.entropies[-1])

    # ------------------------------------------------------------------ the laws of the paper

    @classmethod
    def dirichlet(
        cls, shape: Sequence[int], concentration: float, rng: np.random.Generator
    ) -> Target:
        """A draw from the symmetric Dirichlet law on all laws of this shape."""
        gamma = rng.standard_gamma(concentration, size=tuple(shape))
        # Tiny concentrations can underflow every weight but the largest; full support is meant.
        gamma = np.maximum(gamma, np.finfo(float).tiny)
        return cls(gamma / gamma.sum())

    @classmethod
    def pair(cls, s: float) -> Target:
        """P_s: two uniform bits that agree with probability s."""
        return cls.witness(s, values=2)

    @classmethod
    def witness(cls, s: float, values: int, length: int = 2) -> Target:
        """The V-ary witness: X_2 repeats X_1 with probability s, all further ones are noise."""
        if values < 2 or length < 2 or not 0 <= s <= 1:
            raise UserError(
                "The witness needs two coordinates, two values and a probability.",
                got=f"s={s}, values={values}, length={length}",
            )
        pair = np.full((values, values), (1 - s) / (values - 1) / values)
        np.fill_diagonal(pair, s / values)
        noise = np.full((values,) * (length - 2), float(values) ** (2 - length))
        return cls(np.multiply.outer(pair, noise) if length > 2 else pair)

    @classmethod
    def one_hot(cls, length: int, smoothing: float = 0.0) -> Target:
        """Exactly one of `length` bits is set, mixed with `smoothing` of the uniform law."""
        index = np.arange(1 << length)
        hot = (members(index) == 1) / length
        law = (1 - smoothing) * hot + smoothing / index.size
        return cls(law.reshape((2,) * length))

    @classmethod
    def markov(cls, transition: ArrayLike, length: int) -> Target:
        """A Markov chain of this length, started in its stationary law."""
        kernel = np.asarray(transition, dtype=float)
        law = stationary(kernel)
        for _ in range(length - 1):
            law = law[..., :, None] * kernel
        return cls(law)


def stationary(kernel: Array) -> Array:
    """The stationary law of an irreducible transition matrix, by least squares."""
    values = kernel.shape[0]
    system = np.vstack([kernel.T - np.eye(values), np.ones(values)])
    rhs = np.append(np.zeros(values), 1.0)
    law = np.linalg.lstsq(system, rhs, rcond=None)[0]
    law = np.clip(law, 0.0, None)
    return law / law.sum()


def closed(inner: ArrayLike) -> Array:
    """A grid from its inner points."""
    return np.concatenate([[0.0], inner, [1.0]])


def members(masks: ArrayLike) -> NDArray[np.int64]:
    """|A| for bit masks of subsets (numpy 1 has no `bitwise_count`)."""
    left = np.array(masks, dtype=np.int64)
    count = np.zeros_like(left)
    while left.any():
        count += left & 1
        left >>= 1
    return count


def elements(mask: int) -> list[int]:
    """The coordinates in a subset."""
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


def contexts(length: int) -> Iterator[tuple[int, int]]:
    """Every coordinate i with every subset of the others."""
    return ((i, m) for i in range(length) for m in range(1 << length) if not m >> i & 1)


def subset_sizes(length: int) -> NDArray[np.int64]:
    """|A| for every subset A of `length` coordinates."""
    return members(np.arange(1 << length))


def log_of(values: ArrayLike) -> Array:
    """The logarithm with log 0 = -inf and no warning: zeros are ordinary here."""
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(values, dtype=float))


def expect(weights: Array, values: Array) -> Array:
    """Sum of weights * values over the last axis with 0 * inf = 0, the convention 0 log 0 = 0."""
    live = weights > 0
    if live.all() and np.isfinite(values).all():
        return values @ weights
    with np.errstate(invalid="ignore"):
        return np.where(live, values * weights, 0.0).sum(axis=-1)


def shortened(text: str) -> str:
    """A text cut to the length that a message has room for."""
    return text if len(text) <= 80 else text[:77] + "..."


def finite(values: NDArray) -> NDArray:
    """With 0 for -inf: what is impossible carries no weight, and its products stay defined."""
    return np.where(np.isneginf(values), 0.0, values)


def _checked(law: ArrayLike) -> Array:
    """A law as a float array, or the message that says why it is none."""
    array = np.array(law, dtype=float)
    if array.ndim == 0 or array.size == 0:
        raise UserError(
            "P is not a law: it has no outputs.",
            got=f"an array of shape {array.shape}",
            expected="a nested array with one axis per coordinate",
        )
    check_size(array.shape)
    if not np.isfinite(array).all():
        raise UserError("P is not a law: it has entries that are not finite numbers.")
    if (array < 0).any():
        raise UserError(
            "P is not a law: it has a negative entry.",
            got=f"{array.min():.6g} at {_where(array.argmin(), array.shape)}",
            expected="entries of at least 0",
        )
    total = float(array.sum())
    if abs(total - 1) > SUM_TOLERANCE:
        raise UserError(
            "P is not a law: it does not sum to 1.", got=f"the sum {total:.12g}", expected="1"
        )
    return array / total


def check_size(shape: Sequence[int], rounds: int = 1) -> None:
    """Refuse what does not fit into memory, and say what does."""
    length, size = len(shape), math.prod(int(values) for values in shape)
    cells = rounds * length * 2**length * size
    if cells <= MAX_CELLS:
        return
    fits = max((n for n in range(1, 25) if n * 2**n * 2**n <= MAX_CELLS), default=1)
    raise UserError(
        "This target is too large to enumerate.",
        got=f"{length} coordinates and {size:,} outputs: {cells:,} table cells"
        + (f" in {rounds} rounds" if rounds > 1 else ""),
        expected=f"at most {MAX_CELLS:,} cells (rounds x L x 2^L x outputs); "
        f"binary targets fit up to L = {fits}, V = 4 up to L = 6",
        fix="use fewer coordinates or smaller alphabets",
    )


def _where(flat: np.intp, shape: tuple[int, ...]) -> str:
    return "P" + "".join(f"[{int(k)}]" for k in np.unravel_index(flat, shape))


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
