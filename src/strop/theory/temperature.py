"""Temperature: exact derivatives of the posterior loss and of the output error, and lambda*.

With r = log q and q_lambda proportional to q^lambda, d log q_lambda(x) / d lambda = r(x) - E r.
Hence J_N' = E sum_i (E r - r(X_i)), J_N'' = E sum_i Var r, and the output error has slope
-E_P E_{Q(S|X)} sum_i (r(X_i) - E r).

The slope g at lambda = 1 is made of averages over paths of weight, surprisal and entropy. For a
path S and output x: w = Q^S(x) / pi(x), sigma = -log Q^S(x), and eta the entropies of the
predictions along the path. `path_moments` and `subset_moments` return, for every output, the five
averages over nu of (w, w sigma, w eta, sigma, eta); the first lists paths, the other never does.

Proposition 1 (per-sample metrics reward collapse) is a linear program: minimise E_Q f subject to
E_Q g >= h over all laws Q on n outputs. The achievable pairs are the convex hull of the points
(f(x), g(x)), so a solution with at most two outputs always exists.

Proposition 2 (exact repair) for two uniform bits, and the V-ary witness, are in closed form. The
two coordinates share a round with probability c = sum_k delta_k^2 and are then independent;
otherwise the second follows the tempered conditional, which agrees with probability u =
sigmoid(lambda logit s). The output is P_t with t = c/2 + (1-c) u.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from strop.errors import UserError
from strop.theory.accounting import kl, kls, losses_at_grid, token_losses
from strop.theory.sampler import (
    CHUNK,
    LawProblem,
    context_weights,
    gather,
    log_output,
    nested_pairs,
    path_chunks,
    reachable,
    transitions,
)
from strop.theory.target import (
    Array,
    Conditionals,
    expect,
    finite,
    log_sum,
    predicted_mean,
    temper_slope,
)


@dataclass(frozen=True, eq=False)
class Collapse:
    """An optimal generator: its value and its law over outputs."""

    value: float
    """E_Q f at the optimum."""
    law: Array
    """Q."""

    @property
    def support(self) -> int:
        """The number of outputs in use."""
        return int((self.law > 1e-12).sum())


def solve_lp(f: ArrayLike, g: ArrayLike, threshold: float) -> Collapse:
    """The linear program by the dual simplex, which ends in a vertex."""
    from scipy.optimize import linprog

    cost, score = _scores(f, g, threshold)
    solution = linprog(
        cost,
        A_ub=-score[None, :],
        b_ub=[-threshold],
        A_eq=np.ones((1, cost.size)),
        b_eq=[1.0],
        bounds=(0, None),
        method="highs-ds",
    )
    if solution.status != 0:
        raise UserError("The linear program has no solution.", got=solution.message)
    return Collapse(float(solution.fun), np.asarray(solution.x, dtype=float))


def two_outputs(f: ArrayLike, g: ArrayLike, threshold: float) -> Collapse:
    """The best law on one or two outputs, by comparing all pairs.

    On a pair (i, j) with g_i >= h > g_j the constraint binds, with weight (h - g_j)/(g_i - g_j)
    on i; an output that meets the constraint on its own is the pair (i, i).
    """
    cost, score = _scores(f, g, threshold)
    above, below = score[:, None] >= threshold, score[None, :] < threshold
    gap = np.where(above & below, score[:, None] - score[None, :], 1.0)
    weight = np.where(below, (threshold - score[None, :]) / gap, 1.0)
    mixed = weight * cost[:, None] + (1 - weight) * cost[None, :]
    values = np.where(above & below, mixed, np.inf)
    np.fill_diagonal(values, np.where(score >= threshold, cost, np.inf))
    i, j = np.unravel_index(values.argmin(), values.shape)
    law = np.zeros(cost.size)
    share = 1.0 if i == j else float(weight[i, j])
    law[i] += share
    law[j] += 1 - share
    return Collapse(float(values[i, j]), law)


def _scores(f: ArrayLike, g: ArrayLike, threshold: float) -> tuple[Array, Array]:
    cost, score = np.asarray(f, dtype=float), np.asarray(g, dtype=float)
    if cost.ndim != 1 or cost.shape != score.shape or cost.size == 0:
        raise UserError(
            "Both scores need one number per output.", got=f"{cost.shape}, {score.shape}"
        )
    if score.max() < threshold:
        raise UserError(
            "No generator meets the constraint.",
            got=f"largest g = {score.max()}",
            expected=f"at least {threshold}",
        )
    return cost, score


LAMBDA_RANGE = (0.05, 50.0)

# The error is flat at its minimum: two values closer than this are the same.
FLAT = 1e-14

# Arrays over (path, output) of this size are listed; beyond it the recursion is cheaper.
LISTED = 2**20


@dataclass(frozen=True)
class Best:
    """The inverse temperature with the least output error on [.05, 50]."""

    lambda_star: float
    KL_at_star: float
    at_limit: bool
    """True at an end of the range: the error still falls there, the optimum may be infinite."""


@dataclass(frozen=True)
class Direction:
    """The slope g of the output error at lambda = 1, and its parts.

    g = sharpening_term - cov_w_eta + loss_slope, where the last is J_N'(1): zero for Bayes.
    """

    g: float
    """E_{P x nu}[w (sigma - eta)]."""
    covariance: float
    """Cov_{P x nu}(w, sigma - eta), equal to g for the Bayes denoiser."""
    sharpening_term: float
    """E_P Cov_nu(w, sigma | X), never positive."""
    cov_w_eta: float
    """Cov_{P x nu}(w, eta)."""
    loss_slope: float
    """J_N'(1) = E[sigma - eta]."""


def loss_slopes(problem: LawProblem) -> tuple[float, float]:
    """J_N' and J_N'' at the problem's inverse temperature (a common change of all rounds)."""
    target, q, tables = problem.target, problem.denoiser, problem.tables()
    slope = temper_slope(q.log_q, q.shape, tables)
    variance = predicted_mean(slope**2, q.shape, tables)
    first, second = -expect(target.p, slope), expect(target.p, variance)
    return _riemann(first, problem), _riemann(second, problem)


def output_errors(problem: LawProblem, lams: Array) -> Array:
    """KL(P || pi_lambda) for every common inverse temperature in `lams`, in blocks of memory."""
    target = problem.target
    cells = max(
        problem.denoiser.log_q.size, min(problem.N**target.L, problem.N * 3**target.L) * target.size
    )
    step = max(1, 2 * CHUNK // cells)
    out = [
        kls(target.p, log_output(problem, problem.denoiser.tempered(part[:, None])))
        for part in np.split(lams, range(step, lams.size, step))
    ]
    return np.concatenate(out)


def output_slope(problem: LawProblem, lam: float) -> float:
    """d KL(P || pi_lambda) / d lambda, exactly: the posterior mean of the paths' scores."""
    q = problem.denoiser
    tables = q.tempered(lam)
    scores = temper_slope(q.log_q, q.shape, tables)
    by = slope_by_paths if problem.entries <= LISTED else slope_by_subsets
    return -float(expect(problem.target.p, by(problem, tables, scores)))


def slope_by_paths(problem: LawProblem, tables: Array, scores: Array) -> Array:
    """d log pi / d lambda of every output, from the posterior over all its paths."""
    law = problem.paths()
    contexts = law.contexts
    log_joint = np.log(law.weights)[:, None] + gather(tables, law.rounds, contexts)
    posterior = np.exp(log_joint - finite(log_sum(log_joint, axis=0)))
    return (posterior * gather(scores, law.rounds, contexts)).sum(axis=0)


def slope_by_subsets(problem: LawProblem, tables: Array, scores: Array) -> Array:
    """The same without listing paths."""
    pi, slope = carried(problem, tables, (scores,))
    return slope / np.where(pi > 0, pi, 1.0)


def direction(problem: LawProblem) -> Direction:
    """All forms of g at lambda = 1: expectation, covariance, and the two-term split."""
    losses = token_losses(problem.target, problem.denoiser.tempered(1.0))
    if not np.isfinite(_riemann(losses, problem)):
        raise UserError(
            "The slope's terms are infinite: the denoiser rules out what P allows.",
            where="denoiser",
            expected="positive probability for every token that P allows in its context",
        )
    sums = path_moments(problem) if problem.enumerable else subset_moments(problem)
    p = problem.target.p
    w, w_sigma, w_eta, sigma, eta = sums
    g = float(expect(p, w_sigma - w_eta))
    loss_slope = float(expect(p, sigma - eta))
    mean_w = float(expect(p, w))
    return Direction(
        g=g,
        covariance=g - mean_w * loss_slope,
        sharpening_term=float(expect(p, w_sigma - w * sigma)),
        cov_w_eta=float(expect(p, w_eta)) - mean_w * float(expect(p, eta)),
        loss_slope=loss_slope,
    )


def _entropies(q: Conditionals, tables: NDArray) -> NDArray:
    """H(q^i(. | x_A)) in the layout of the tables."""
    return predicted_mean(-finite(tables), q.shape, tables)


def path_moments(problem: LawProblem) -> Array:
    """The five averages by listing all paths, in blocks."""
    q = problem.denoiser
    tables = q.tempered(1.0)
    log_pi = finite(log_output(problem, tables))
    sums = np.zeros((5, problem.target.size))
    for nu, log_q, eta in path_chunks(problem, tables, _entropies(q, tables)):
        w, sigma = np.exp(log_q - log_pi), -finite(log_q)
        sums += np.stack([nu @ part for part in (w, w * sigma, w * eta, sigma, eta)])
    return sums


def subset_moments(problem: LawProblem) -> Array:
    """The same averages by the recursion over visible sets, for any number of rounds.

    Besides the weight W(A) of every visible set it carries W sigma and W eta; the unweighted
    averages are linear in the tables and need only the law of the contexts.
    """
    q = problem.denoiser
    tables = q.tempered(1.0)
    surprisals, entropies = -finite(tables), _entropies(q, tables)
    pi, pi_sigma, pi_eta = carried(problem, tables, (surprisals, entropies))
    safe = np.where(pi > 0, pi, 1.0)
    plain = [_plain_average(problem, table) for table in (surprisals, entropies)]
    return np.stack([pi / safe, pi_sigma / safe, pi_eta / safe, *plain])


def carried(problem: LawProblem, tables: NDArray, extras: tuple[NDArray, ...]) -> Array:
    """pi(x), and sum_S nu(S) Q^S(x) f(x, S) for every f that adds up table entries along S."""
    small, large = nested_pairs(problem.target.L)
    step = max(1, CHUNK // small.size)
    parts = []
    for start in range(0, problem.target.size, step):
        at = slice(start, start + step)
        chunk_extras = tuple(extra[..., at] for extra in extras)
        parts.append(_carry(tables[..., at], chunk_extras, problem.masses, small, large))
    return np.concatenate(parts, axis=-1)


def _carry(
    tables: NDArray, extras: tuple[NDArray, ...], masses: Array, small: NDArray, large: NDArray
) -> Array:
    """The recursion over visible sets with W and W f for every f as its state."""
    subsets = tables.shape[-2]
    state = np.zeros((1 + len(extras), subsets, tables.shape[-1]))
    state[0, 0] = 1.0
    for k, mass in enumerate(masses):
        keep = reachable(small, large, k, masses.size, subsets)
        low, high, r = small[keep], large[keep], k if len(tables) > 1 else 0
        chance = np.exp(transitions(tables[r], low, high, float(np.log(mass))))
        moved = state[:, low]
        for n, extra in enumerate(extras):
            moved[n + 1] += moved[0] * transitions(extra[r], low, high, 0.0)
        ends, starts = np.unique(high, return_index=True)
        state = np.zeros_like(state)
        state[:, ends] = np.add.reduceat(moved * chance, starts, axis=1)
    return state[:, -1]


def _plain_average(problem: LawProblem, table: NDArray) -> Array:
    """E_nu of a sum over coordinates of table entries (round K_i, i, A_i)."""
    length = problem.target.L
    chance = context_weights(problem.grid[:-1], length) * problem.masses[:, None]
    masks = np.arange(1 << length)
    total = np.zeros(problem.target.size)
    for i in range(length):
        A = masks[masks >> i & 1 == 0]
        weights = chance[:, A] if len(table) > 1 else chance[:, A].sum(axis=0, keepdims=True)
        total += np.einsum("ka,kax->x", weights, table[:, i, A])
    return total


def best_temperature(problem: LawProblem) -> Best:
    """lambda* on a logarithmic grid, refined by bounded search and the root of the exact slope.

    If the error does not depend on lambda at all, 1 is as good as any; if it has not stopped
    falling at an end of the range, that end is the answer and `at_limit` says so.
    """
    # A large target takes a coarser scan: every point costs a whole enumeration.
    points = 121 if problem.entries <= 2**22 else 41
    lams = np.sort(np.append(np.geomspace(*LAMBDA_RANGE, points), 1.0))
    errors = output_errors(problem, lams)
    least = float(errors.min())
    tolerance = FLAT * (1 + abs(least))
    if errors[lams == 1.0][0] <= least + tolerance and errors.max() <= least + tolerance:
        return Best(1.0, least, at_limit=False)
    for end in (-1, 0):
        if errors[end] <= least + tolerance:
            return Best(float(lams[end]), float(errors[end]), at_limit=True)
    k = int(errors.argmin())
    lam = _refined(problem, float(lams[k - 1]), float(lams[k + 1]))
    error = float(output_errors(problem, np.array([lam]))[0])
    return Best(lam, error, at_limit=False)


def _refined(problem: LawProblem, low: float, high: float) -> float:
    from scipy.optimize import brentq, minimize_scalar

    if output_slope(problem, low) < 0 < output_slope(problem, high):
        root: Any = brentq(lambda lam: output_slope(problem, lam), low, high, xtol=1e-13)
        return float(root)
    optimum: Any = minimize_scalar(
        lambda log_lam: output_errors(problem, np.exp([log_lam]))[0],
        bounds=(np.log(low), np.log(high)),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return float(np.exp(optimum.x))


def _riemann(values: Array, problem: LawProblem) -> float:
    """sum_k delta_k of the profile with these entries per (round, coordinate, set)."""
    return float(problem.masses @ losses_at_grid(values, problem))


def kl_at(problem: LawProblem, lam: float) -> float:
    """KL(P || pi_lambda) at one common inverse temperature."""
    return kl(problem.target.p, log_output(problem, problem.denoiser.tempered(lam)))


# c = 2(1 - s) is a boundary that decimals such as .7 and .6 hit only up to rounding.
BOUNDARY = 1e-12


@dataclass(frozen=True)
class PairResult:
    """The pair family at one (s, c, lambda)."""

    s: float
    c: float
    lam: float
    u: float
    """Agreement of the sequential branch."""
    t: float
    """Agreement of the output."""
    KL_out: float
    """KL(Bern(s) || Bern(t))."""
    C_N: float
    """(1 - c) KL(Bern(s) || Bern(u))."""
    B_N: float
    """c (log 2 - entropy of s)."""
    R_N: float
    """B_N + C_N - KL_out."""
    finite_repair: bool
    """c < 2(1 - s): some finite lambda makes the output exact."""
    limit_error: float
    """The output error as lambda grows without bound."""
    small_c_slope: float
    """d lambda* / d c at c = 0."""
    u_star: float | None
    """Agreement that repairs the output; None without a finite repair."""
    lambda_star: float | None
    """logit(u*) / logit(s); None without a finite repair."""

    def as_dict(self) -> dict[str, Any]:
        """All values by name; the two optima only where they exist."""
        optional = ("u_star", "lambda_star")
        return {k: v for k, v in asdict(self).items() if not (k in optional and v is None)}


def pair(s: float, c: float, lam: float = 1.0) -> PairResult:
    """Evaluate Proposition 2."""
    from scipy.special import log_expit, logit

    _check(s, c, lam)
    x = lam * float(logit(s))
    u, miss = float(np.exp(log_expit(x))), float(np.exp(log_expit(-x)))
    t, t_miss = c / 2 + (1 - c) * u, c / 2 + (1 - c) * miss
    finite = c < 2 * (1 - s) - BOUNDARY
    u_star = (s - c / 2) / (1 - c) if finite else None
    loss = _kl(s, 1 - s, float(log_expit(x)), float(log_expit(-x)))
    error = _kl(s, 1 - s, float(np.log(t)), float(np.log(t_miss)))
    entropy = float(-s * np.log(s) - (1 - s) * np.log1p(-s))
    B, C = c * (np.log(2) - entropy), (1 - c) * loss
    return PairResult(
        s=s,
        c=c,
        lam=lam,
        u=u,
        t=t,
        KL_out=error,
        C_N=C,
        B_N=float(B),
        R_N=float(B + C - error),
        finite_repair=finite,
        limit_error=bernoulli_kl(s, 1 - c / 2),
        small_c_slope=(s - 0.5) / (s * (1 - s) * float(logit(s))),
        u_star=u_star,
        lambda_star=None if u_star is None else float(logit(u_star) / logit(s)),
    )


def witness_slope(s: float, values: int, c: float) -> float:
    """g of the V-ary witness in closed form, negative whenever s > 1/V."""
    t = c / values + (1 - c) * s
    log_ratio = np.log(s * (values - 1) / (1 - s))
    gap = c * (1 / values - s)
    return float(gap / (t * (1 - t)) * (1 - c) * s * (1 - s) * log_ratio)


def witness_error(s: float, values: int, c: float, lam: float) -> float:
    """KL(P || pi_lambda) of the V-ary witness: two Bernoulli laws of agreement."""
    odds = lam * np.log(s / (1 - s)) + (lam - 1) * np.log(values - 1)
    u = 1 / (1 + np.exp(-odds))
    return bernoulli_kl(s, c / values + (1 - c) * float(u))


def bernoulli_kl(p: float, q: float) -> float:
    """KL(Bern(p) || Bern(q))."""
    return _kl(p, 1 - p, float(np.log(q)), float(np.log1p(-q)))


def _kl(p: float, other_p: float, log_q: float, other_log_q: float) -> float:
    return float(p * (np.log(p) - log_q) + other_p * (np.log(other_p) - other_log_q))


def _check(s: float, c: float, lam: float) -> None:
    if not 0.5 < s < 1:
        raise UserError(
            "The agreement s is out of range.", where="`s`", got=s, expected="1/2 < s < 1"
        )
    if not 0 < c < 1:
        raise UserError(
            "The sharing probability c is out of range.",
            where="`c`",
            got=c,
            expected="0 < c < 1 (c = sum of delta squared; N equal rounds give 1/N)",
        )
    if not (np.isfinite(lam) and lam > 0):
        raise UserError(
            "An inverse temperature must be a positive number.",
            where="`lam`",
            got=lam,
            expected="lam > 0",
        )
