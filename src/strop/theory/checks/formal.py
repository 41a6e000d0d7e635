"""Exact arithmetic through L = 8: entropy area and conditional mutual information.

Integer and Fraction checks of the two identities behind Theorem 1, for formal set functions.

Nothing here is an entropy: f is a symbol per subset, and an identity holds if the coefficient of
every symbol agrees. Coefficients are integers or fractions, so "equal" means equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import comb

import numpy as np
from numpy.typing import NDArray

from strop.theory.checks.base import Assertion, Case, Check, holds
from strop.theory.target import contexts, subset_sizes

Polys = NDArray[np.int64]
"""By subset, the integer coefficients of 1, a, a^2, ..."""


def chance(size: int, among: int) -> list[int]:
    """a^size (1 - a)^(among - size) as an integer polynomial."""
    rest = among - size
    return [0] * size + [(-1) ** j * comb(rest, j) for j in range(rest + 1)]


def profile_coefficients(length: int) -> Polys:
    """h(a) = sum_i E_A [f(A + i) - f(A)]: the polynomial in front of every f(A)."""
    out = np.zeros((1 << length, length), np.int64)
    for i, A in contexts(length):
        term = chance(A.bit_count(), length - 1)
        out[A | 1 << i] += term
        out[A] -= term
    return out


def area_coefficients(length: int) -> list[Fraction]:
    """The integral of h over [0, 1]: the fraction in front of every f(A)."""
    return [
        sum((Fraction(int(c), k + 1) for k, c in enumerate(poly)), Fraction(0))
        for poly in profile_coefficients(length)
    ]


def dependence_coefficients(length: int) -> Polys:
    """D(a) = sum_{i != j} E_A [f(A+i) + f(A+j) - f(A+i+j) - f(A)], by ordered pairs."""
    out = np.zeros((1 << length, length - 1), np.int64)
    for i, A in contexts(length):
        for bj in (1 << j for j in range(length) if j != i and not A >> j & 1):
            term, bi = np.array(chance(A.bit_count(), length - 2)), 1 << i
            for mask, sign in ((A | bi, 1), (A | bj, 1), (A | bi | bj, -1), (A, -1)):
                out[mask] += sign * term
    return out


def slopes(polys: Polys) -> Polys:
    """The derivatives."""
    return polys[:, 1:] * np.arange(1, polys.shape[1])


def area(case: Case) -> Iterator[Assertion]:
    """The area of h is f(all) - f(none), coefficient by coefficient."""
    L = case["length"]
    found, sizes = area_coefficients(L), subset_sizes(L)
    for size in range(L + 1):
        wanted = {L: 1, 0: -1}.get(size, 0)
        sets = np.flatnonzero(sizes == size)
        exact = all(found[A] == wanted for A in sets)
        yield holds(f"area: {len(sets)} sets of size {size}", exact)


def information(case: Case) -> Iterator[Assertion]:
    """-h' is the sum of conditional mutual informations, as integer polynomials."""
    L = case["length"]
    same = (-slopes(profile_coefficients(L)) == dependence_coefficients(L)).all(axis=1)
    for size in range(L + 1):
        sets = subset_sizes(L) == size
        yield holds(f"-h' = D: {sets.sum()} sets of size {size}", bool(same[sets].all()))


def integer_values(case: Case) -> Iterator[Assertion]:
    """Both identities on a random integer set function, evaluated in fractions."""
    L, f = case["length"], case["f"]
    area_value = sum((c * v for c, v in zip(area_coefficients(L), f, strict=True)), Fraction(0))
    yield holds("area = f(all) - f(none)", area_value == f[-1] - f[0])
    at = Fraction(*case["a"])
    slope = _evaluate(slopes(profile_coefficients(L)), f, at)
    yield holds("-h'(a) = D(a)", -slope == _evaluate(dependence_coefficients(L), f, at))


def _evaluate(polys: Polys, f: list[int], at: Fraction) -> Fraction:
    return sum((int(c) * at**k for k, c in enumerate(np.array(f) @ polys)), Fraction(0))


def _functions(rng: np.random.Generator) -> Iterator[Case]:
    for length in range(2, 7):
        for _ in range(4):
            f = rng.integers(-1000, 1000, 1 << length).tolist()
            yield {"length": length, "f": f, "a": [int(rng.integers(0, 8)), 7]}


CHECKS = (
    Check("entropy-area", lambda _: [{"length": length} for length in range(1, 9)], area),
    Check("mutual-information", lambda _: [{"length": n} for n in range(2, 9)], information),
    Check("integer-set-functions", _functions, integer_values),
)
