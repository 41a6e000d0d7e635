"""What the best temperature, one per round, and the grid remove of the output error: exact optima.

`run_study` asks of 280 random targets whether sharpening is the improving direction, where lambda*
is, and what is gained. They have seven sizes (L, V, N), forty targets each, from symmetric
Dirichlet laws whose concentration cycles through .3, 1 and 3. The direction is the sign of the
exact slope g: the error is so flat near lambda = 1 that its argmin can fall on the wrong side.

`run_schedule_study` goes beyond one temperature and equal rounds, on such targets with equal grids
to start from: optima over lambda_1..lambda_N and the grid. The output error has an exact gradient:
the posterior over paths weighs the score of every prediction (for the temperatures) and the count
of every round (for the masses). These are properties of small targets with more free parameters
than one temperature, not of language.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.errors import unknown_name
from strop.theory.accounting import entropy_of, entropy_profile
from strop.theory.sampler import LawProblem, PathLaw, gather, log_output
from strop.theory.target import CONCENTRATIONS, Array, Target, closed, log_sum, temper, temper_slope
from strop.theory.temperature import best_temperature, direction, kl_at

SIZES = ((2, 2, 2), (2, 3, 2), (2, 2, 3), (3, 2, 2), (3, 2, 3), (2, 4, 2), (3, 3, 2))


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
    for length, values, rounds in SIZES:
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


SCHEDULE_SIZES = ((2, 2, 2), (2, 4, 2), (2, 3, 3), (3, 2, 2), (3, 3, 2), (3, 2, 3), (4, 2, 2))

ROWS = {
    "grid from h": "grid from h, λ = 1",
    "grid": "best grid, λ = 1",
    "single": "one λ",
    "grid+single": "grid and one λ",
    "after-first": "one λ after round 1",
    "non-empty": "one λ given context",
    "per-round": "λ per round",
    "grid+per-round": "grid, λ per round",
}


@dataclass(frozen=True, eq=False)
class ScheduleStudy:
    """Shares of KL(P || pi_1) removed: one entry per target, in the order of `settings`."""

    settings: list[tuple[int, int, int]]
    shares: dict[str, Array]
    first_lambda: Array
    """The best inverse temperature of the first round."""
    last_lambda: Array
    """The best inverse temperature of the last round."""

    def medians(self) -> list[dict[str, Any]]:
        """One row per setting, as in a table."""
        out: list[dict[str, Any]] = []
        for setting in dict.fromkeys(self.settings):
            of_setting = np.array([s == setting for s in self.settings])
            row: dict[str, Any] = {"L_V_N": list(setting)}
            row |= {plan: float(np.median(self.shares[plan][of_setting])) for plan in self.shares}
            row["first_lambda"] = float(np.median(self.first_lambda[of_setting]))
            row["last_lambda"] = float(np.median(self.last_lambda[of_setting]))
            out.append(row)
        return out


def run_schedule_study(seed: int = 0) -> ScheduleStudy:
    """Optimise every plan on every target, nine of each setting."""
    rng = np.random.default_rng([seed, 7])
    settings: list[tuple[int, int, int]] = []
    rows: list[dict[str, float]] = []
    lams: list[Array] = []
    for setting in SCHEDULE_SIZES:
        length, values, rounds = setting
        for k in range(9):
            target = Target.dirichlet((values,) * length, CONCENTRATIONS[k % 3], rng)
            problem = LawProblem.bayes(target, np.linspace(0, 1, rounds + 1))
            settings.append(setting)
            rows.append(removed_shares(problem))
            lams.append(optimise(problem, "per-round").lam)
    return ScheduleStudy(
        settings=settings,
        shares={plan: np.array([row[plan] for row in rows]) for plan in (*PLANS, "grid from h")},
        first_lambda=np.array([lam[0] for lam in lams]),
        last_lambda=np.array([lam[-1] for lam in lams]),
    )


LOG_LIMITS = (float(np.log(0.05)), float(np.log(50.0)))

PLANS = ("single", "after-first", "non-empty", "per-round", "grid", "grid+single", "grid+per-round")
"""What may vary: one lambda; one lambda from round 2 on; one lambda wherever something is
visible; one per round; the grid alone; the grid together with lambda."""


@dataclass(frozen=True, eq=False)
class Optimum:
    """An optimum: the inverse temperature of every round and the grid."""

    error: float
    """KL(P || pi)."""
    lam: Array
    """Inverse temperatures of the groups that were free, in the order of the rounds."""
    grid: Array


def groups_of(plan: str, rounds: int, subsets: int) -> NDArray[np.int64]:
    """Which free temperature a (round, visible set) uses; -1 stays at lambda = 1."""
    group = np.full((rounds, subsets), -1)
    kind = plan.removeprefix("grid+")
    if kind == "single":
        group[:] = 0
    elif kind == "after-first":
        group[1:] = 0
    elif kind == "non-empty":
        group[:, 1:] = 0
    elif kind == "per-round":
        group[:] = np.arange(rounds)[:, None]
    return group


def optimise(problem: LawProblem, plan: str) -> Optimum:
    """The least output error over what `plan` leaves free (L-BFGS from three starts).

    They are lambda = 1 on the given grid, a rising schedule, and a random one.
    """
    from scipy.optimize import minimize
    from scipy.special import softmax

    group = groups_of(plan, problem.N, problem.target.subsets)
    free, moves_grid = int(group.max()) + 1, plan.startswith("grid")
    law = problem.paths()
    cells = free + (problem.N if moves_grid else 0)

    def objective(theta: Array) -> tuple[float, Array]:
        masses = softmax(theta[free:]) if moves_grid else problem.masses
        return error_and_gradient(problem, law, group, theta[:free], masses, moves_grid)

    limits = [LOG_LIMITS] * free + [(-6.0, 6.0)] * (cells - free)
    first = np.zeros(cells)
    first[free:] = np.log(problem.masses) if moves_grid else 0.0
    rising = first.copy()
    rising[:free] = np.linspace(-1.0, 1.0, free) if free > 1 else 0.5
    noise = np.random.default_rng(0).normal(0.0, 0.8, first.size)
    how: dict[str, Any] = {"jac": True, "method": "L-BFGS-B", "bounds": limits}
    how["options"] = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 500}
    optima = [minimize(objective, start, **how) for start in (first, rising, first + noise)]
    best = min(optima, key=lambda optimum: optimum.fun)
    masses = softmax(best.x[free:]) if moves_grid else problem.masses
    return Optimum(float(best.fun), np.exp(best.x[:free]), closed(np.cumsum(masses)[:-1]))


def price_optimal_grid(target: Target, rounds: int) -> Array:
    """The grid with the least B_N, which needs nothing but the profile h.

    A dynamic program on a mesh finds the basin, a bounded descent with the exact gradient of
    sum_k (a_k - a_{k-1}) h(a_{k-1}) finishes.
    """
    from scipy.optimize import minimize

    if rounds == 1:
        return closed([])
    h = entropy_profile(target)
    start = price_on_mesh(h, rounds)
    slope = h.polynomial.deriv()

    def price(inner: Array) -> tuple[float, Array]:
        a = closed(inner)
        values = h(a)
        grad = values[:-2] - values[1:-1] + (a[2:] - a[1:-1]) * slope(a[1:-1])
        return float(np.diff(a) @ values[:-1]), grad

    optimum = minimize(
        price,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(1e-6, 1 - 1e-6)] * (rounds - 1),
        options={"ftol": 1e-16, "gtol": 1e-12},
    )
    inner = np.sort(optimum.x) if optimum.fun <= price(start)[0] else start
    return closed(inner)


def removed_shares(problem: LawProblem) -> dict[str, float]:
    """The share of KL(P || pi_1) that each plan removes, plus the B_N-optimal grid at lambda 1."""
    at_1 = kl_at(problem, 1.0)
    moved = LawProblem.bayes(problem.target, price_optimal_grid(problem.target, problem.N))
    errors = {"single": best_temperature(problem).KL_at_star, "grid from h": kl_at(moved, 1.0)}
    for plan in PLANS[1:]:
        errors[plan] = optimise(problem, plan).error
    return {plan: 1 - error / at_1 for plan, error in errors.items()}


def error_and_gradient(
    problem: LawProblem,
    law: PathLaw,
    group: NDArray[np.int64],
    log_lam: Array,
    masses: Array,
    with_masses: bool,
) -> tuple[float, Array]:
    """KL(P || pi) and its gradient in (log lambda of the groups, logits of the masses)."""
    target, q = problem.target, problem.denoiser
    lam = np.append(np.exp(log_lam), 1.0)[group]
    tables = temper(q.log_q, q.shape, lam[:, None, :, None])
    scores = temper_slope(q.log_q, q.shape, tables)
    contexts, rounds = law.contexts, law.rounds
    log_nu = np.log(masses)[rounds].sum(axis=1)
    log_joint = log_nu[:, None] + gather(tables, rounds, contexts)
    log_pi = log_sum(log_joint, axis=0)
    live = target.p > 0
    error = float((target.p[live] * (np.log(target.p[live]) - log_pi[live])).sum())
    weight = np.where(live, target.p, 0.0) * np.exp(log_joint - np.where(live, log_pi, 0.0))
    gradient = np.zeros(log_lam.size + 1)
    for i in range(target.L):
        pull = (weight * scores[rounds[:, i], i, contexts[:, i]]).sum(axis=1)
        np.add.at(gradient, group[rounds[:, i], contexts[:, i]], -pull)
    parts = [gradient[:-1] * np.exp(log_lam)]
    if with_masses:
        used = (rounds[:, :, None] == np.arange(masses.size)).sum(axis=1)
        counts = weight.sum(axis=1) @ used
        parts.append(masses * counts.sum() - counts)
    return error, np.concatenate(parts)


def price_on_mesh(h: Callable[[Array], Array], rounds: int, mesh: int = 256) -> Array:
    """The best inner points among j / mesh: cost[j] is the least sum that reaches point j."""
    points = np.linspace(0.0, 1.0, mesh + 1)
    step = (points[None, :] - points[:, None]) * h(points)[:, None]
    step = np.where(points[None, :] > points[:, None], step, np.inf)
    cost, back = step[0], []
    for _ in range(rounds - 1):
        total = cost[:, None] + step
        back.append(total.argmin(axis=0))
        cost = total.min(axis=0)
    at, inner = mesh, []
    for choice in reversed(back):
        at = int(choice[at])
        inner.append(points[at])
    return np.array(inner[::-1])


def grid_of_profile(losses: Sequence[float], rounds: int) -> tuple[tuple[float, ...], float, float]:
    """The reveal masses with the least summed loss, that sum, and the sum of equal masses.

    `losses` are nats per hidden token at even shares of the text that is seen. A round pays for a
    position what the model loses on it before the round: a left Riemann sum of the profile.
    """
    shares = np.arange(len(losses)) / len(losses)

    def loss_at(seen: Array) -> Array:
        return np.interp(seen, shares, losses)

    def price(masses: Array) -> float:
        return float(masses @ loss_at(np.cumsum(masses) - masses))

    inner = price_on_mesh(loss_at, rounds, mesh=max(8 * len(losses), 2 * rounds))
    masses = np.diff([0.0, *inner, 1.0])
    return tuple(masses.tolist()), price(masses), price(np.full(rounds, 1 / rounds))
