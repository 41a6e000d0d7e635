"""Two named counterexamples to what the small random targets suggest, and the pair of the paper.

- `entropy-deflation`: at L = 3 an exact model sampled in parallel can be too certain. Splitting
  a symbol that loses mass into many equally likely ones turns the loss of mass into a loss of
  entropy.
- `smoothing`: when coordinates exclude each other (one-hot targets), lambda* lies below 1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from strop.errors import unknown_name
from strop.theory.sampler import LawProblem
from strop.theory.target import Target


def deflation_target(
    values: int = 50_256, agree: float = 0.97, zero: float = 0.05, eps: float = 1e-3
) -> Target:
    """Two bits agree with probability `agree`; X_3 is 0 if they disagree (up to `eps`).

    If they agree, X_3 is 0 with probability `zero` and otherwise uniform on `values` symbols.
    """
    common = np.full(values + 1, (1 - zero) / values)
    common[0] = zero
    apart = np.full(values + 1, eps / values)
    apart[0] = 1 - eps
    same = np.array([[agree / 2, 0.0], [0.0, agree / 2]])
    other = np.array([[0.0, (1 - agree) / 2], [(1 - agree) / 2, 0.0]])
    return Target(np.multiply.outer(same, common) + np.multiply.outer(other, apart))


def _pair() -> LawProblem:
    return LawProblem.bayes(Target.pair(0.7), [0.0, 0.5, 1.0])


def _deflation() -> LawProblem:
    return LawProblem.bayes(deflation_target(), [0.0, 0.63, 1.0])


def _smoothing() -> LawProblem:
    return LawProblem.bayes(Target.one_hot(3, smoothing=1e-3), [0.0, 0.2, 1.0])


def _smoothing_6() -> LawProblem:
    return LawProblem.bayes(Target.one_hot(6, smoothing=1e-3), [0.0, 0.2, 1.0])


def _smoothing_equal() -> LawProblem:
    return LawProblem.bayes(Target.one_hot(6, smoothing=1e-3), [0.0, 0.5, 1.0])


EXAMPLES: dict[str, Callable[[], LawProblem]] = {
    "pair": _pair,
    "entropy-deflation": _deflation,
    "smoothing": _smoothing,
    "smoothing-6": _smoothing_6,
    "smoothing-6-equal": _smoothing_equal,
}


def example(name: str) -> LawProblem:
    """A named problem."""
    if name not in EXAMPLES:
        raise unknown_name("example", name, EXAMPLES)
    return EXAMPLES[name]()
