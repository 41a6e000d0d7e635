"""How good is the m-path bound? Bias, variance and direction, with exact denoisers.

Random targets (sharpening is right) and mutually exclusive ones (smoothing is right), so that a
test that always said "sharpen" would be caught.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from strop.theory.mpath import exact_bound, sample_curve
from strop.theory.sampler import LawProblem
from strop.theory.target import Array, Target
from strop.theory.temperature import best_temperature, direction, kl_at, output_errors

LAMS = np.sort(np.append(np.geomspace(0.4, 6.0, 40), 1.0))


@dataclass(frozen=True)
class PathCount:
    """What m paths per sequence achieve."""

    m: int
    spearman: float
    """Rank correlation of the exact minimiser of U_m with lambda*, over the random targets."""
    captured: float
    """Median share of the attainable reduction of output error at the exact minimiser."""
    towards_1: float
    """Share of all targets whose exact minimiser lies between 1 and lambda*: the bias."""
    harmful: int
    """Targets on which the exact minimiser is worse than lambda = 1."""
    finite_captured: float
    """Median over targets and repeats, from a finite sample."""
    finite_sd: float
    """Median standard deviation of the estimated minimiser over repeats."""
    right_sharpen: float
    """Share of finite samples with the right sign of the slope, where sharpening is right."""
    right_smooth: float
    """The same where smoothing is right."""

    def as_dict(self) -> dict[str, Any]:
        """All values by name."""
        return asdict(self)


def mpath_problems(seed: int = 0, count: int = 6) -> tuple[list[LawProblem], list[LawProblem]]:
    """Random targets, and one-hot targets for which g > 0."""
    rng = np.random.default_rng(seed)
    random = [
        LawProblem.bayes(
            Target.dirichlet((values,) * length, (0.3, 1.0, 3.0)[k % 3], rng),
            np.linspace(0, 1, 3),
        )
        for length, values in ((2, 3), (3, 2), (4, 2))
        for k in range(count)
    ]
    exclusive = [
        LawProblem.bayes(Target.one_hot(length, smoothing=1e-3), [0.0, first, 1.0])
        for length in (3, 4)
        for first in (0.2, 0.3)
    ]
    return random, [problem for problem in exclusive if direction(problem).g > 0]


def run_mpath_study(
    seed: int = 0,
    ms: tuple[int, ...] = (1, 2, 4, 8),
    sequences: int = 256,
    repeats: int = 20,
    count: int = 6,
) -> list[PathCount]:
    """Measure the bound for every m."""
    random, exclusive = mpath_problems(seed, count)
    rng = np.random.default_rng([seed, 1])
    return [_measure(m, random, exclusive, sequences, repeats, rng) for m in ms]


def _measure(
    m: int,
    random: list[LawProblem],
    exclusive: list[LawProblem],
    sequences: int,
    repeats: int,
    rng: np.random.Generator,
) -> PathCount:
    from scipy.stats import spearmanr

    problems = random + exclusive
    best = [best_temperature(problem) for problem in problems]
    stars = np.array([b.lambda_star for b in best])
    exact = np.array([_exact_minimiser(problem, m) for problem in problems])
    captured = np.array(
        [
            _captured(p, [lam], b.KL_at_star)[0]
            for p, lam, b in zip(problems, exact, best, strict=True)
        ]
    )
    finite, spread, sharpen, smooth = [], [], [], []
    for problem, b in zip(problems, best, strict=True):
        curves = [sample_curve(problem, LAMS, m, sequences, rng) for _ in range(repeats)]
        lams = np.array([curve.best for curve in curves])
        finite.append(np.median(_captured(problem, lams, b.KL_at_star)))
        spread.append(lams.std(ddof=1))
        sign = np.sign(direction(problem).g)
        right = np.mean([np.sign(curve.slope_at_1()[0]) == sign for curve in curves])
        (sharpen if sign < 0 else smooth).append(right)
    known = slice(0, len(random))
    # J_N has its minimum at 1 for every target: there is nothing to rank.
    ranks: Any = spearmanr(exact[known], stars[known])[0] if m > 1 else 0.0
    between = (exact - 1) * (stars - exact) >= -1e-5  # the search is that exact
    return PathCount(
        m=m,
        spearman=float(ranks),
        captured=float(np.median(captured)),
        towards_1=float(between.mean()),
        harmful=int((captured < -1e-4).sum()),
        finite_captured=float(np.median(finite)),
        finite_sd=float(np.median(spread)),
        right_sharpen=float(np.mean(sharpen)),
        right_smooth=float(np.mean(smooth)),
    )


def _exact_minimiser(problem: LawProblem, m: int) -> float:
    """argmin of the exact U_m: the scan's best point, refined by a bounded search."""
    from scipy.optimize import minimize_scalar

    values = exact_bound(problem, LAMS, m)
    k = int(np.clip(values.argmin(), 1, LAMS.size - 2))
    found: Any = minimize_scalar(
        lambda lam: exact_bound(problem, [lam], m)[0],
        bounds=(LAMS[k - 1], LAMS[k + 1]),
        method="bounded",
        options={"xatol": 1e-5},
    )
    return float(found.x)


def _captured(problem: LawProblem, lams: Array | list[float], least: float) -> Array:
    """(KL(1) - KL(lambda)) / (KL(1) - KL(lambda*))."""
    at_1 = kl_at(problem, 1.0)
    return (at_1 - output_errors(problem, np.asarray(lams, dtype=float))) / (at_1 - least)
