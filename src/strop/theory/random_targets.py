"""280 random targets: is sharpening the improving direction, where is lambda*, what is gained?

Seven settings (L, V, N), forty targets each, from symmetric Dirichlet laws whose concentration
cycles through .3, 1 and 3. The direction is the sign of the exact slope g: the error is so flat
near lambda = 1 that its argmin can fall on the wrong side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from strop.errors import unknown_name
from strop.theory.accounting import entropy_of
from strop.theory.sampler import LawProblem, log_output
from strop.theory.target import CONCENTRATIONS, Array, Target, closed
from strop.theory.temperature import best_temperature, direction, kl_at

SETTINGS = ((2, 2, 2), (2, 3, 2), (2, 2, 3), (3, 2, 2), (3, 2, 3), (2, 4, 2), (3, 3, 2))


def _weights(rounds: int, rng: np.random.Generator) -> Array:
    masses = rng.uniform(0.2, 1.0, rounds)
    return closed(np.cumsum(masses / masses.sum())[:-1])


GRID_LAWS: dict[str, Callable[[int, np.random.Generator], Array]] = {
    "sorted-uniform": lambda rounds, rng: closed(np.sort(rng.random(rounds - 1))),
    "inner-uniform": lambda rounds, rng: closed(np.sort(rng.uniform(0.1, 0.9, rounds - 1))),
    "dirichlet-2": lambda rounds, rng: closed(np.cumsum(rng.dirichlet(np.full(rounds, 2.0)))[:-1]),
    "weights": _weights,
    "equal": lambda rounds, _: np.linspace(0.0, 1.0, rounds + 1),
}
"""How the reveal grids are drawn; the paper leaves it open, sorted uniforms fit its numbers."""


@dataclass(frozen=True, eq=False)
class RandomTargets:
    """One row per target."""

    seed: int
    grid_law: str
    settings: list[tuple[int, int, int]]
    concentration: Array
    g: Array
    lambda_star: Array
    KL_at_1: Array
    KL_at_star: Array
    entropy_excess: Array
    """H(pi_1) - H(P)."""

    @property
    def reduction(self) -> Array:
        """The share of output error that the best temperature removes."""
        return 1 - self.KL_at_star / self.KL_at_1

    def summary(self) -> dict[str, Any]:
        """The numbers of the paper's appendix."""
        return {
            "seed": self.seed,
            "grid_law": self.grid_law,
            "targets": int(self.g.size),
            "sharpening_count": int((self.g < 0).sum()),
            "lambda_star_above_1": int((self.lambda_star > 1).sum()),
            "smallest_abs_g": float(np.abs(self.g).min()),
            "lambda_star": _quantiles(self.lambda_star),
            "kl_reduction": _quantiles(self.reduction),
            "entropy_inflation_count": int((self.entropy_excess > 0).sum()),
            "smallest_entropy_excess": float(self.entropy_excess.min()),
            # Targets for which smoothing is the improving direction.
            "exceptions": [
                {
                    "index": int(k),
                    "L_V_N": list(self.settings[k]),
                    "concentration": float(self.concentration[k]),
                    "g": float(self.g[k]),
                    "lambda_star": float(self.lambda_star[k]),
                }
                for k in np.nonzero(self.g >= 0)[0]
            ],
        }


def random_problems(
    seed: int = 0, grid_law: str = "sorted-uniform", per_setting: int = 40
) -> list[tuple[tuple[int, int, int], float, LawProblem]]:
    """The targets and grids of a study, with their settings."""
    if grid_law not in GRID_LAWS:
        raise unknown_name("grid law", grid_law, GRID_LAWS, where="`grid_law`")
    rng = np.random.default_rng(seed)
    out: list[tuple[tuple[int, int, int], float, LawProblem]] = []
    for length, values, rounds in SETTINGS:
        for k in range(per_setting):
            concentration = CONCENTRATIONS[k % len(CONCENTRATIONS)]
            target = Target.dirichlet((values,) * length, concentration, rng)
            grid = GRID_LAWS[grid_law](rounds, rng)
            out.append(((length, values, rounds), concentration, LawProblem.bayes(target, grid)))
    return out


def run_study(
    seed: int = 0, grid_law: str = "sorted-uniform", per_setting: int = 40
) -> RandomTargets:
    """Draw the targets and find the best temperature of each by enumeration."""
    rows = random_problems(seed, grid_law, per_setting)
    best = [best_temperature(problem) for _, _, problem in rows]
    excess = [
        entropy_of(np.exp(log_output(problem))) - problem.target.entropy for *_, problem in rows
    ]
    return RandomTargets(
        seed=seed,
        grid_law=grid_law,
        settings=[setting for setting, *_ in rows],
        concentration=np.array([concentration for _, concentration, _ in rows]),
        g=np.array([direction(problem).g for *_, problem in rows]),
        lambda_star=np.array([b.lambda_star for b in best]),
        KL_at_1=np.array([kl_at(problem, 1.0) for *_, problem in rows]),
        KL_at_star=np.array([b.KL_at_star for b in best]),
        entropy_excess=np.array(excess),
    )


def _quantiles(values: Array) -> dict[str, float]:
    p5, median, p95 = np.quantile(values, [0.05, 0.5, 0.95])
    return {"p5": float(p5), "median": float(median), "p95": float(p95)}
