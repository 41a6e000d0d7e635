"""Profiles over the visible probability a: polynomials of degree at most L - 1 (or L - 2).

h(a) = sum_i E_A H(X_i | X_A) and c_lambda(a) = sum_i E_{A,X}[-log q_lambda^i(X_i | X_A)], where A
retains each other coordinate with probability a. Such a profile is sum_j v_j a^j (1-a)^(m-j),
where v_j adds up all sets of size j; `RateProfile` holds the v_j. The dependence profile D = -h'
is a sum of conditional mutual informations over sets that leave out two coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike, NDArray

from strop.theory.target import Array, Target, expect, subset_sizes


@dataclass(frozen=True, eq=False)
class RateProfile:
    """The function a -> sum_j values[j] a^j (1-a)^(m-j), with m = len(values) - 1."""

    values: Array

    def __call__(self, levels: ArrayLike) -> Array:
        """The profile at each level."""
        a = np.asarray(levels, dtype=float)[..., None]
        j = np.arange(self.values.size)
        terms = a**j * (1 - a) ** (self.values.size - 1 - j)
        # A value may be infinite (a denoiser that rules out the data) where its weight is zero.
        with np.errstate(invalid="ignore"):
            return np.where(terms > 0, terms * self.values, 0.0).sum(axis=-1)

    @cached_property
    def area(self) -> float:
        """The integral over [0, 1], by the beta integral of each term."""
        from scipy.special import beta

        j = np.arange(self.values.size)
        return float((self.values * beta(j + 1, self.values.size - j)).sum())

    @cached_property
    def polynomial(self) -> Polynomial:
        """The same function in powers of a."""
        m = self.values.size - 1
        total = Polynomial([0.0])
        for j, value in enumerate(self.values):
            total += value * Polynomial([0.0, 1.0]) ** j * Polynomial([1.0, -1.0]) ** (m - j)
        return total


def entropy_profile(target: Target) -> RateProfile:
    """h, from the entropies of all subsets."""
    return RateProfile(_by_size(_increments(target.entropies, target.L), target.L, target.L - 1))


def token_losses(target: Target, tables: NDArray) -> Array:
    """E_P[-log q^i(X_i | X_A)] for every round, coordinate and visible set."""
    return -expect(target.p, tables)


def loss_profile(losses: Array, length: int) -> RateProfile:
    """c_lambda of one round, from its token losses of shape `(L, 2**L)`."""
    return RateProfile(_by_size(losses, length, length - 1))


def dependence_profile(target: Target) -> RateProfile:
    """D(a) = sum over ordered pairs i != j of E_A I(X_i; X_j | X_A), straight from subsets.

    For L = 1 there are no pairs and D = 0.
    """
    if target.L < 2:
        return RateProfile(np.zeros(1))
    masks, sizes = np.arange(target.subsets), subset_sizes(target.L)
    H, out = target.entropies, np.zeros(target.L - 1)
    for i in range(target.L):
        for j in (k for k in range(target.L) if k != i):
            both = 1 << i | 1 << j
            A = masks[masks & both == 0]
            information = H[A | 1 << i] + H[A | 1 << j] - H[A | both] - H[A]
            out += np.bincount(sizes[A], information, minlength=target.L - 1)
    return RateProfile(out)


def total_correlations(target: Target) -> tuple[float, float]:
    """TC(X) and DTC(X)."""
    H, full = target.entropies, target.subsets - 1
    single = H[1 << np.arange(target.L)]
    last = H[full] - H[full ^ (1 << np.arange(target.L))]
    return float(single.sum() - H[full]), float(H[full] - last.sum())


def dependence_sum(target: Target) -> float:
    """sum_i I(X_i; X_{-i}) = TC + DTC."""
    H, full = target.entropies, target.subsets - 1
    bits = 1 << np.arange(target.L)
    return float((H[bits] + H[full ^ bits] - H[full]).sum())


def _increments(entropies: Array, length: int) -> Array:
    """H(X_i | X_A) for every i and A; zero where A contains i."""
    masks = np.arange(1 << length)
    with_i = masks[None, :] | (1 << np.arange(length))[:, None]
    return entropies[with_i] - entropies[masks][None, :]


def _by_size(values: Array, length: int, largest: int) -> Array:
    """Add up the entries (i, A) with i outside A by the size of A."""
    masks = np.arange(1 << length)
    free = (masks[None, :] >> np.arange(length)[:, None]) & 1 == 0
    sizes = np.broadcast_to(subset_sizes(length), free.shape)
    return np.bincount(sizes[free], values[free], minlength=largest + 1).astype(float)
