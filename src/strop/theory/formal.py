"""Integer and Fraction checks of the two identities behind Theorem 1, for formal set functions.

Nothing here is an entropy: f is a symbol per subset, and an identity holds if the coefficient of
every symbol agrees. Coefficients are integers or fractions, so "equal" means equal.
"""

from __future__ import annotations

from fractions import Fraction
from math import comb

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
