"""Exact arithmetic through L = 8: entropy area and conditional mutual information."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from strop.theory import formal
from strop.theory.checks.base import Assertion, Case, Check, holds


def area(case: Case) -> Iterator[Assertion]:
    """The area of h is f(all) - f(none), coefficient by coefficient."""
    L = case["length"]
    found = formal.area_coefficients(L)
    for size in range(L + 1):
        wanted = Fraction({L: 1, 0: -1}.get(size, 0))
        sets = [A for A in found if A.bit_count() == size]
        exact = all(found[A] == wanted for A in sets)
        yield holds(f"area: {len(sets)} sets of size {size}", exact)


def information(case: Case) -> Iterator[Assertion]:
    """-h' is the sum of conditional mutual informations, as integer polynomials."""
    L = case["length"]
    h, D = formal.profile_coefficients(L), formal.dependence_coefficients(L)
    for size in range(L + 1):
        sets = [A for A in h if A.bit_count() == size]
        exact = all(_same(tuple(-c for c in formal.slope_of(h[A])), D[A]) for A in sets)
        yield holds(f"-h' = D: {len(sets)} sets of size {size}", exact)


def integer_values(case: Case) -> Iterator[Assertion]:
    """Both identities on a random integer set function, evaluated in fractions."""
    L, f = case["length"], case["f"]
    area_value = sum((c * f[A] for A, c in formal.area_coefficients(L).items()), Fraction(0))
    yield holds("area = f(all) - f(none)", area_value == f[-1] - f[0])
    at = Fraction(*case["a"])
    slope = _evaluate(
        {A: formal.slope_of(p) for A, p in formal.profile_coefficients(L).items()}, f, at
    )
    yield holds("-h'(a) = D(a)", -slope == _evaluate(formal.dependence_coefficients(L), f, at))


def _evaluate(coefficients: dict[int, formal.Poly], f: list[int], at: Fraction) -> Fraction:
    total = Fraction(0)
    for A, poly in coefficients.items():
        total += f[A] * sum((c * at**k for k, c in enumerate(poly)), Fraction(0))
    return total


def _same(left: formal.Poly, right: formal.Poly) -> bool:
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
