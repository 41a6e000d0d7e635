"""The checks of `strop theory verify`: one module per group of statements, each with its `CHECKS`.

A check has a name, a source of cases, and a judgment of one case. A case is a JSON document, so a
failing one can be written to a file and checked again. Where the case is a problem (P, grid, lam,
denoiser), `strop theory account` reads the same file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from strop.theory.document import problem_document
from strop.theory.sampler import LawProblem
from strop.theory.target import CONCENTRATIONS, Array, Conditionals, Target, closed

TOLERANCE = 4e-11

Case = dict[str, Any]


@dataclass(frozen=True)
class Assertion:
    """One statement about one case: it holds when the residual is at most the tolerance."""

    statement: str
    residual: float

    @property
    def ok(self) -> bool:
        """Whether it holds; a NaN does not."""
        return self.residual <= TOLERANCE


@dataclass(frozen=True)
class Check:
    """A statement of the paper with the cases it is tried on."""

    name: str
    cases: Callable[[np.random.Generator], Iterable[Case]]
    judge: Callable[[Case], Iterator[Assertion]]


def equal(statement: str, left: float | Array, right: float | Array) -> Assertion:
    """Both sides agree; for arrays the largest difference counts."""
    gap = np.abs(np.asarray(left) - np.asarray(right))
    return Assertion(statement, float(gap.max()))


def at_most(statement: str, left: float | Array, right: float | Array) -> Assertion:
    """left <= right; the residual is the excess."""
    excess = np.asarray(left, dtype=float) - np.asarray(right, dtype=float)
    worst = float(excess.max())
    return Assertion(statement, worst if np.isnan(worst) else max(0.0, worst))


def holds(statement: str, truth: bool) -> Assertion:
    """A statement that is true or false."""
    return Assertion(statement, 0.0 if truth else 1.0)


def random_grid(rounds: int, rng: np.random.Generator) -> Array:
    """Sorted uniform points, kept apart enough for every mass to matter."""
    masses = rng.dirichlet(np.ones(rounds)) * 0.9 + 0.1 / rounds
    return closed(np.cumsum(masses)[:-1])


def bayes_case(target: Target, grid: ArrayLike, lam: float = 1.0, **more: Any) -> Case:
    """A problem with the exact denoiser, and what else its check wants to know."""
    return {**problem_document(LawProblem.bayes(target, grid, lam)), **more}


def random_target(k: int, shapes: Sequence[tuple[int, ...]], rng: np.random.Generator) -> Target:
    """The k-th of a series: shapes and concentrations take turns."""
    return Target.dirichlet(shapes[k % len(shapes)], CONCENTRATIONS[k % 3], rng)


SHAPES = ((2, 2), (3, 2), (2, 2, 2), (4, 4), (2, 3, 2), (3, 3, 3), (2, 2, 2, 2), (1, 3, 2), (3,))


def problem_cases(
    count: int, *, bayes_only: bool = False, zeros: bool = True
) -> Callable[[np.random.Generator], Iterator[Case]]:
    """Random problems over all shapes, denoisers, temperatures and special targets."""

    def cases(rng: np.random.Generator) -> Iterator[Case]:
        for k in range(count):
            shape = SHAPES[k % len(SHAPES)]
            target = _target(shape, k, rng, zeros)
            rounds = 1 + k % 4 if len(shape) < 4 else 1 + k % 3
            grid = random_grid(rounds, rng)
            q = Conditionals.bayes(target)
            if not bayes_only and k % 3 == 1:
                q = Conditionals.random(shape, rng)
            elif not bayes_only and k % 3 == 2:
                q = Conditionals.random(shape, rng, rounds)
            lam = rng.uniform(0.3, 3.0, rounds if k % 2 else 1)
            yield problem_document(LawProblem(target, grid, q, lam))

    return cases


def _target(shape: tuple[int, ...], k: int, rng: np.random.Generator, zeros: bool) -> Target:
    """Dirichlet laws, and now and then one with zeros, a product law or a point mass."""
    law = Target.dirichlet(shape, CONCENTRATIONS[k % 3], rng).P
    if zeros and k % 5 == 1:
        law = np.where(rng.random(shape) < 0.4, 0.0, law)
        law.flat[0] += 0.1
    elif zeros and k % 11 == 3:
        law = np.zeros(shape)
        law.flat[int(rng.integers(law.size))] = 1.0
    elif zeros and k % 7 == 2:
        law = reduce(np.multiply.outer, [rng.dirichlet(np.ones(values)) for values in shape])
    return Target(law / law.sum())
