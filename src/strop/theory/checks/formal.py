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

from strop.theory.checks.base import Assertion, Case, Check, holds

Poly = tuple[int, ...]
"""Integer coefficients of 1, a, a^2, ..."""


def chance(size: int, among: int) -> Poly:
    """a^size (1 - a)^(among - size) as an integer polynomial."""
    out = [0] * (among + 1)
    for j in range(among - size + 1):
        out[size + j] = (-1) ** j * comb(among - size, j)
    return tuple(out)


def profile_coefficients(length: int) -> dict[int, Poly]:
    """h(a) = sum_i E_A [f(A + i) - f(A)]: the polynomial in front of every f(A)."""
    out: dict[int, Poly] = dict.fromkeys(range(1 << length), (0,) * length)
    for i in range(length):
        for A in (m for m in range(1 << length) if not m >> i & 1):
            term = chance(A.bit_count(), length - 1)
            out[A | 1 << i] = _plus(out[A | 1 << i], term, 1)
            out[A] = _plus(out[A], term, -1)
    return out


def area_coefficients(length: int) -> dict[int, Fraction]:
    """The integral of h over [0, 1]: the fraction in front of every f(A)."""
    return {
        A: sum((Fraction(c, k + 1) for k, c in enumerate(poly)), Fraction(0))
        for A, poly in profile_coefficients(length).items()
    }


def dependence_coefficients(length: int) -> dict[int, Poly]:
    """D(a) = sum_{i != j} E_A [f(A+i) + f(A+j) - f(A+i+j) - f(A)], by ordered pairs."""
    width = max(length - 1, 1)
    out: dict[int, Poly] = dict.fromkeys(range(1 << length), (0,) * width)
    for i in range(length):
        for j in (k for k in range(length) if k != i):
            bi, bj = 1 << i, 1 << j
            for A in (m for m in range(1 << length) if not m & (bi | bj)):
                term = chance(A.bit_count(), length - 2)
                for mask, sign in ((A | bi, 1), (A | bj, 1), (A | bi | bj, -1), (A, -1)):
                    out[mask] = _plus(out[mask], term, sign)
    return out


def slope_of(poly: Poly) -> Poly:
    """The derivative."""
    return tuple(k * c for k, c in enumerate(poly))[1:] or (0,)


def _plus(poly: Poly, term: Poly, sign: int) -> Poly:
    return tuple(c + sign * t for c, t in zip(poly, term, strict=True))


def area(case: Case) -> Iterator[Assertion]:
    """The area of h is f(all) - f(none), coefficient by coefficient."""
    L = case["length"]
    found = area_coefficients(L)
    for size in range(L + 1):
        wanted = Fraction({L: 1, 0: -1}.get(size, 0))
        sets = [A for A in found if A.bit_count() == size]
        exact = all(found[A] == wanted for A in sets)
        yield holds(f"area: {len(sets)} sets of size {size}", exact)


def information(case: Case) -> Iterator[Assertion]:
    """-h' is the sum of conditional mutual informations, as integer polynomials."""
    L = case["length"]
    h, D = profile_coefficients(L), dependence_coefficients(L)
    for size in range(L + 1):
        sets = [A for A in h if A.bit_count() == size]
        exact = all(_same(tuple(-c for c in slope_of(h[A])), D[A]) for A in sets)
        yield holds(f"-h' = D: {len(sets)} sets of size {size}", exact)


def integer_values(case: Case) -> Iterator[Assertion]:
    """Both identities on a random integer set function, evaluated in fractions."""
    L, f = case["length"], case["f"]
    area_value = sum((c * f[A] for A, c in area_coefficients(L).items()), Fraction(0))
    yield holds("area = f(all) - f(none)", area_value == f[-1] - f[0])
    at = Fraction(*case["a"])
    slope = _evaluate({A: slope_of(p) for A, p in profile_coefficients(L).items()}, f, at)
    yield holds("-h'(a) = D(a)", -slope == _evaluate(dependence_coefficients(L), f, at))


def _evaluate(coefficients: dict[int, Poly], f: list[int], at: Fraction) -> Fraction:
    total = Fraction(0)
    for A, poly in coefficients.items():
        total += f[A] * sum((c * at**k for k, c in enumerate(poly)), Fraction(0))
    return total


def _same(left: Poly, right: Poly) -> bool:
    width = max(len(left), len(right))
    return (*left, *[0] * (width - len(left))) == (*right, *[0] * (width - len(right)))


def _lengths(_rng: np.random.Generator) -> Iterator[Case]:
    for length in range(1, 9):
        yield {"length": length}


def _pairs(_rng: np.random.Generator) -> Iterator[Case]:
    for length in range(2, 9):
        yield {"length": length}


def _functions(rng: np.random.Generator) -> Iterator[Case]:
    for length in range(2, 7):
        for _ in range(4):
            f = rng.integers(-1000, 1000, 1 << length).tolist()
            yield {"length": length, "f": f, "a": [int(rng.integers(0, 8)), 7]}


CHECKS = (
    Check("entropy-area", _lengths, area),
    Check("mutual-information", _pairs, information),
    Check("integer-set-functions", _functions, integer_values),
)
