"""The m-path bound: an estimate of the output error's temperature curve from data contexts.

    U_m(lambda) = -E_X E_{S_1..S_m ~ nu} log (1/m) sum_j Q_lambda^{S_j}(X)

U_1 is J_N, minimal at the posterior-optimal temperature; as m grows U_m falls to the output
cross-entropy H(X) + KL(P || pi_lambda). Contexts are data, so the logits along the m paths are
computed once and serve every lambda. The first part works on any denoiser's logits; the second
evaluates the bound exactly on a small problem.

`run_mpath_study` measures how good the bound is: bias, variance and direction, with exact
denoisers, on random targets (sharpening is right) and on mutually exclusive ones (smoothing is
right), so that a test that always said "sharpen" would be caught.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import comb
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from strop.errors import UserError
from strop.theory.sampler import LawProblem, PathLaw, gather
from strop.theory.target import CONCENTRATIONS, Array, Target, expect, log_of, log_sum, temper_slope
from strop.theory.temperature import best_temperature, direction, kl_at, output_errors

LAMS = np.sort(np.append(np.geomspace(0.4, 6.0, 40), 1.0))
SEQUENCES, REPEATS = 256, 20
"""Of the finite samples."""


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


def mpath_problems(seed: int) -> tuple[list[LawProblem], list[LawProblem]]:
    """Random targets, and one-hot targets for which g > 0."""
    rng = np.random.default_rng(seed)
    random = [
        LawProblem.bayes(
            Target.dirichlet((values,) * length, CONCENTRATIONS[k % 3], rng), [0.0, 0.5, 1.0]
        )
        for length, values in ((2, 3), (3, 2), (4, 2))
        for k in range(6)
    ]
    exclusive = [
        LawProblem.bayes(Target.one_hot(length, smoothing=1e-3), [0.0, first, 1.0])
        for length in (3, 4)
        for first in (0.2, 0.3)
    ]
    return random, [problem for problem in exclusive if direction(problem).g > 0]


def run_mpath_study(seed: int = 0) -> list[PathCount]:
    """Measure the bound for every m."""
    random, exclusive = mpath_problems(seed)
    rng = np.random.default_rng([seed, 1])
    return [_measure(m, random, exclusive, rng) for m in (1, 2, 4, 8)]


def _measure(
    m: int, random: list[LawProblem], exclusive: list[LawProblem], rng: np.random.Generator
) -> PathCount:
    from scipy.stats import spearmanr

    problems = random + exclusive
    best = [best_temperature(problem) for problem in problems]
    stars = np.array([b.lambda_star for b in best])
    exact = np.array([_exact_minimiser(problem, m) for problem in problems])
    rows = zip(problems, exact, best, strict=True)
    captured = np.array([_captured(p, [lam], b.KL_at_star)[0] for p, lam, b in rows])
    finite, spread, sharpen, smooth = [], [], [], []
    for problem, b in zip(problems, best, strict=True):
        curves = [sample_curve(problem, LAMS, m, SEQUENCES, rng) for _ in range(REPEATS)]
        lams = np.array([curve.best for curve in curves])
        finite.append(np.median(_captured(problem, lams, b.KL_at_star)))
        spread.append(lams.std(ddof=1))
        sign = np.sign(direction(problem).g)
        right = np.mean([np.sign(curve.slope_at_1()[0]) == sign for curve in curves])
        (sharpen if sign < 0 else smooth).append(right)
    random_part = slice(0, len(random))
    # J_N has its minimum at 1 for every target: there is nothing to rank.
    ranks: Any = spearmanr(exact[random_part], stars[random_part])[0] if m > 1 else 0.0
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
    optimum: Any = minimize_scalar(
        lambda lam: exact_bound(problem, [lam], m)[0],
        bounds=(LAMS[k - 1], LAMS[k + 1]),
        method="bounded",
        options={"xatol": 1e-5},
    )
    return float(optimum.x)


def _captured(problem: LawProblem, lams: Array | list[float], least: float) -> Array:
    """(KL(1) - KL(lambda)) / (KL(1) - KL(lambda*))."""
    at_1 = kl_at(problem, 1.0)
    return (at_1 - output_errors(problem, np.asarray(lams, dtype=float))) / (at_1 - least)


MAX_MULTISETS = 200_000


# ------------------------------------------------------------------ any denoiser: from its logits


def token_scores(logits: ArrayLike, tokens: ArrayLike, lams: ArrayLike) -> tuple[Array, Array]:
    """log q_lambda(token) and its slope in lambda, for every lambda.

    `logits` is `(..., V)` and `tokens` `(...)`; the results are `(lams, ...)`. Summed over the
    tokens of a sequence, at the contexts of a path, they are log Q_lambda^S(x).
    """
    r = np.asarray(logits, dtype=float)
    chosen = np.take_along_axis(r, np.asarray(tokens)[..., None], axis=-1)[..., 0]
    scores, slopes = [], []
    for lam in np.atleast_1d(np.asarray(lams, dtype=float)):
        log_q = lam * r - log_sum(lam * r, axis=-1, keepdims=True)
        scores.append(np.take_along_axis(log_q, np.asarray(tokens)[..., None], axis=-1)[..., 0])
        slopes.append(chosen - (np.exp(log_q) * r).sum(axis=-1))
    return np.stack(scores), np.stack(slopes)


class PathScores:
    """Adds up token scores as a sampler's rounds produce them, for `lams`, sequences and paths.

    A trained denoiser calls `add` once per round with the logits at the positions that the round
    reveals: nothing larger than one round's logits is ever held.
    """

    def __init__(self, lams: ArrayLike, sequences: int, paths: int) -> None:
        self.lams = np.atleast_1d(np.asarray(lams, dtype=float))
        self.log_q = np.zeros((self.lams.size, sequences, paths))
        self.slope = np.zeros_like(self.log_q)

    def add(self, sequence: int, path: int, logits: ArrayLike, tokens: ArrayLike) -> None:
        """Logits `(positions, V)` and the data tokens there, all revealed in one round."""
        scores, slopes = token_scores(logits, tokens, self.lams)
        self.log_q[:, sequence, path] += scores.sum(axis=-1)
        self.slope[:, sequence, path] += slopes.sum(axis=-1)

    def curve(self) -> BoundCurve:
        """The bound with its standard error at every lambda."""
        return bound_from_scores(self.lams, self.log_q, self.slope)


@dataclass(frozen=True, eq=False)
class BoundCurve:
    """U_m on a grid of inverse temperatures, from data."""

    lams: Array
    value: Array
    """The bound, in nats per sequence."""
    stderr: Array
    """Its standard error over sequences."""
    slope: Array
    """d U_m / d lambda, exact for the given sequences and paths."""
    slope_stderr: Array

    @property
    def best(self) -> float:
        """The inverse temperature with the least bound: the root of the slope next to it."""
        k = int(self.value.argmin())
        for low, high in ((k - 1, k), (k, k + 1)):
            if low >= 0 and high < self.lams.size and self.slope[low] < 0 <= self.slope[high]:
                part = self.slope[low] / (self.slope[low] - self.slope[high])
                return float(self.lams[low] + part * (self.lams[high] - self.lams[low]))
        return float(self.lams[k])

    def slope_at_1(self) -> tuple[float, float]:
        """The direction test: slope at lambda = 1 and its standard error."""
        (at,) = np.nonzero(self.lams == 1.0)
        if at.size == 0:
            raise UserError("The direction test needs lambda = 1 among the inverse temperatures.")
        return float(self.slope[at[0]]), float(self.slope_stderr[at[0]])


def bound_from_scores(lams: Array, log_q: Array, slope: Array) -> BoundCurve:
    """From log Q_lambda^{S_j}(x) of shape `(lams, sequences, m)` and its slopes."""
    sequences, m = log_q.shape[1:]
    per_x = -(log_sum(log_q, axis=-1) - np.log(m))
    weights = np.exp(log_q - log_sum(log_q, axis=-1, keepdims=True))
    slope_x = -(weights * slope).sum(axis=-1)
    scale = 1 / np.sqrt(sequences)
    spread = {"axis": -1, "ddof": 1 if sequences > 1 else 0}
    return BoundCurve(
        np.asarray(lams, dtype=float),
        per_x.mean(axis=-1),
        per_x.std(**spread) * scale,
        slope_x.mean(axis=-1),
        slope_x.std(**spread) * scale,
    )


def draw_paths(
    masses: ArrayLike, length: int, count: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Reveal rounds of `count` independent paths, for any length: shape `(count, length)`."""
    delta = np.asarray(masses, dtype=float)
    return rng.choice(delta.size, size=(count, length), p=delta / delta.sum())


# ------------------------------------------------------------------ a small problem, exactly


def exact_bound(problem: LawProblem, lams: ArrayLike, m: int) -> Array:
    """U_m at every lambda with no sampling, for any m.

    log z = integral of (exp(-t) - exp(-t z)) / t, and the m paths are independent, so
    E log mean_j w_j = integral of (exp(-t) - phi(t/m)^m) dt/t with phi(u) = E_nu exp(-u w).
    Here w = Q^S(x) / pi(x) has mean 1. In y = log t the integrand is analytic and dies off on
    both sides, where the trapezoidal rule converges geometrically.
    """
    law, target = problem.paths(), problem.target
    out = []
    for lam in np.atleast_1d(np.asarray(lams, dtype=float)):
        log_q = gather(problem.denoiser.tempered(lam), law.rounds, law.contexts)
        log_pi = log_sum(np.log(law.weights)[:, None] + log_q, axis=0)
        live = target.p > 0
        excess = np.full(target.size, -np.inf)
        if np.isfinite(log_q[:, live]).all():
            excess[live] = _log_mean(np.exp(log_q - log_pi)[:, live], law.weights, m)
        out.append(-float(expect(target.p, log_pi + excess)))
    return np.array(out)


def exact_bound_by_multisets(problem: LawProblem, lams: ArrayLike, m: int) -> Array:
    """The same sum written out over all multisets of m paths: for small cases, as a check."""
    law, target = problem.paths(), problem.target
    counts, log_chance = _multisets(law, m)
    out = []
    for lam in np.atleast_1d(np.asarray(lams, dtype=float)):
        log_q = gather(problem.denoiser.tempered(lam), law.rounds, law.contexts)
        top = log_q.max(axis=0)
        top = np.where(np.isneginf(top), 0.0, top)
        mean = log_of(counts @ np.exp(log_q - top) / m) + top
        out.append(-float(expect(target.p, np.exp(log_chance) @ mean)))
    return np.array(out)


def _log_mean(w: Array, weights: Array, m: int) -> Array:
    """E log((w_1 + ... + w_m) / m) for independent paths, for every output (column of w)."""
    step, low = 0.2, -22.0
    high = float(np.log(m / w.min())) + 4.0
    t = np.exp(np.arange(low, high, step))
    phi = np.einsum("s,tsx->tx", weights, np.exp(-(t / m)[:, None, None] * w))
    return step * (np.exp(-t)[:, None] - phi**m).sum(axis=0)


def problem_scores(
    problem: LawProblem, lams: ArrayLike, outputs: NDArray[np.int64], rounds: NDArray[np.int64]
) -> tuple[Array, Array]:
    """Scores of data `outputs` (n,) on paths `rounds` (n, m, L), as `PathScores` would hold."""
    n, m, length = rounds.shape
    flat, q = PathLaw(rounds.reshape(-1, length), np.ones(n * m), problem.N), problem.denoiser
    tables = q.tempered(np.atleast_1d(np.asarray(lams, dtype=float))[:, None])
    slopes = temper_slope(q.log_q, q.shape, tables)
    contexts, at, out = flat.contexts, np.repeat(outputs, m), []
    for table in (tables, slopes):
        total = np.zeros((len(table), n * m))
        for i in range(length):
            r = flat.rounds[:, i] if q.rounds > 1 else np.zeros(n * m, dtype=np.int64)
            total += table[:, r, i, contexts[:, i], at]
        out.append(total.reshape(-1, n, m))
    return out[0], out[1]


def sample_curve(
    problem: LawProblem, lams: ArrayLike, m: int, sequences: int, rng: np.random.Generator
) -> BoundCurve:
    """The estimate a practitioner would get: held-out data, m fresh paths per sequence."""
    x = rng.choice(problem.target.size, size=sequences, p=problem.target.p)
    rounds = draw_paths(problem.masses, problem.target.L, sequences * m, rng)
    shaped = rounds.reshape(sequences, m, problem.target.L)
    log_q, slope = problem_scores(problem, lams, x, shaped)
    return bound_from_scores(np.atleast_1d(np.asarray(lams, dtype=float)), log_q, slope)


def _multisets(law: PathLaw, m: int) -> tuple[Array, Array]:
    """All multisets of m paths as count vectors, and the log of their multinomial chance."""
    from scipy.special import gammaln

    total = comb(law.weights.size + m - 1, m)
    if total > MAX_MULTISETS:
        raise UserError(
            "There are too many sets of paths for the exact bound.",
            got=f"{total:,} multisets of {m} out of {law.weights.size} paths",
            expected=f"at most {MAX_MULTISETS:,}",
            fix="use sample_curve, which draws them",
        )
    chosen = np.array(list(combinations_with_replacement(range(law.weights.size), m)))
    counts = np.zeros((total, law.weights.size))
    np.add.at(counts, (np.arange(total)[:, None], chosen), 1.0)
    log_chance = gammaln(m + 1) - gammaln(counts + 1).sum(axis=1) + counts @ np.log(law.weights)
    return counts, log_chance
