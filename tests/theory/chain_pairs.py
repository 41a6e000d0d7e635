"""Does the best temperature for adjacent pairs tell the best one for whole outputs?

At length 1,024 only the first can be measured. On short chains both are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from strop.theory.accounting import Chain, kl
from strop.theory.sampler import LawProblem, log_output
from strop.theory.target import Array, Target
from strop.theory.temperature import best_temperature


@dataclass(frozen=True)
class Calibration:
    """The two best inverse temperatures of one chain and grid."""

    whole: float
    """Of KL(P || pi)."""
    pairs: float
    """Of the KL of pooled adjacent pairs."""


def calibrate(chain: Chain, rounds: int) -> Calibration:
    """Both optima for equal rounds, by enumeration."""
    from scipy.optimize import minimize_scalar

    target = Target.markov(chain.kernel, chain.length)
    problem = LawProblem.bayes(target, np.linspace(0, 1, rounds + 1))
    law = chain.pairs.reshape(-1)

    def error(log_lam: float) -> float:
        tables = problem.denoiser.tempered(float(np.exp(log_lam)))
        pi = np.exp(log_output(problem, tables)).reshape(target.shape)
        return kl(law, np.log(pooled_pairs(pi).reshape(-1)))

    found: Any = minimize_scalar(
        error, bounds=(np.log(0.5), np.log(20.0)), method="bounded", options={"xatol": 1e-8}
    )
    return Calibration(best_temperature(problem).lambda_star, float(np.exp(found.x)))


def pooled_pairs(pi: Array) -> Array:
    """The average over positions of the law of two neighbours."""
    length = pi.ndim
    laws = [
        pi.sum(axis=tuple(k for k in range(length) if k not in (i, i + 1)))
        for i in range(length - 1)
    ]
    return np.mean(laws, axis=0)
