"""Theorem 1, "training integrates, sampling sums", evaluated on one problem.

J_N = sum_k delta_k c_lambda(a_{k-1}) is a left Riemann sum of the loss profile, and

    KL(P x nu || Q_lambda) = J_N - H(X)       = B_N + C_N
    KL(P || pi_lambda)     = B_N + C_N - R_N

with B_N the expected conditional total correlation inside rounds, C_N the posterior error and
R_N = E_P KL(nu || Q_lambda(S | X)) the credit for mixing paths.

`account_paths` evaluates it for any law over reveal paths, not only those of a grid. The identities
need just one thing: that the path is independent of the data. With fixed orders
or correlated rounds there is no visible probability a and no profile, so every term is an
expectation over paths:

    J = E sum_i -log q^i(X_i | X_{A_i(S)})
    B = E sum_i H(X_i | X_{A_i(S)}) - H(X)
    C = J - H(X) - B

Then come the bounds that follow from the profiles (integral form, remainder, Lipschitz, kernels):
each is a function that returns its two sides, so that a caller can show or compare them.

Profiles are functions of the visible probability a, polynomials of degree at most L - 1 (or L - 2):
h(a) = sum_i E_A H(X_i | X_A) and c_lambda(a) = sum_i E_{A,X}[-log q_lambda^i(X_i | X_A)], where A
retains each other coordinate with probability a. Such a profile is sum_j v_j a^j (1-a)^(m-j),
where v_j adds up all sets of size j; `RateProfile` holds the v_j. The dependence profile D = -h'
is a sum of conditional mutual informations over sets that leave out two coordinates.

`Chain` evaluates Theorem 1 on a stationary Markov chain of any length, without enumerating
anything. A hidden token of a chain depends on the visible ones only through its nearest visible
neighbours. So h(a) and c_lambda(a) are sums over the two distances to them, each geometric with
parameter a and cut off at the ends of the sequence. Powers of the transition matrix give the
conditional law; beyond the mixing time a neighbour is as good as none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike, NDArray

from strop.errors import UserError
from strop.theory.sampler import LawProblem, PathLaw, hazards, log_output, path_chunks, path_log_law
from strop.theory.target import Array, Target, expect, log_of, log_sum, stationary, subset_sizes


@dataclass(frozen=True, eq=False)
class RateProfile:
    """The function a -> sum_j values[j] a^j (1-a)^(m-j), with m = len(values) - 1."""

    values: Array

    def __call__(self, levels: ArrayLike) -> Array:
        """The profile at each level."""
        a = np.asarray(levels, dtype=float)[..., None]
        j = np.arange(self.values.size)
        terms = a**j * (1 - a) ** (self.values.size - 1 - j)
        # A value may be infinite (a denoiser that rules out the data) where its weight is zero.
        with np.errstate(invalid="ignore"):
            return np.where(terms > 0, terms * self.values, 0.0).sum(axis=-1)

    @cached_property
    def area(self) -> float:
        """The integral over [0, 1], by the beta integral of each term."""
        from scipy.special import beta

        j = np.arange(self.values.size)
        return float((self.values * beta(j + 1, self.values.size - j)).sum())

    @cached_property
    def polynomial(self) -> Polynomial:
        """The same function in powers of a."""
        m = self.values.size - 1
        total = Polynomial([0.0])
        for j, value in enumerate(self.values):
            total += value * Polynomial([0.0, 1.0]) ** j * Polynomial([1.0, -1.0]) ** (m - j)
        return total


def entropy_profile(target: Target) -> RateProfile:
    """h, from the entropies of all subsets."""
    masks, with_i = np.arange(target.subsets), (1 << np.arange(target.L))[:, None]
    H = target.entropies
    return loss_profile(H[masks | with_i] - H[masks], target.L)


def token_losses(target: Target, tables: NDArray) -> Array:
    """E_P[-log q^i(X_i | X_A)] for every round, coordinate and visible set."""
    return -expect(target.p, tables)


def loss_profile(losses: Array, length: int) -> RateProfile:
    """c_lambda of one round, from its token losses of shape `(L, 2**L)`."""
    masks = np.arange(1 << length)
    outside = (masks >> np.arange(length)[:, None]) & 1 == 0
    sizes = np.broadcast_to(subset_sizes(length), outside.shape)
    sums = np.bincount(sizes[outside], losses[outside], minlength=length)
    return RateProfile(sums.astype(float))


def dependence_profile(target: Target) -> RateProfile:
    """D(a) = sum over ordered pairs i != j of E_A I(X_i; X_j | X_A), straight from subsets.

    For L = 1 there are no pairs and D = 0.
    """
    if target.L < 2:
        return RateProfile(np.zeros(1))
    masks, sizes = np.arange(target.subsets), subset_sizes(target.L)
    H, out = target.entropies, np.zeros(target.L - 1)
    for i in range(target.L):
        for j in (k for k in range(target.L) if k != i):
            pair = 1 << i | 1 << j
            A = masks[masks & pair == 0]
            information = H[A | 1 << i] + H[A | 1 << j] - H[A | pair] - H[A]
            out += np.bincount(sizes[A], information, minlength=target.L - 1)
    return RateProfile(out)


def total_correlations(target: Target) -> tuple[float, float]:
    """TC(X) and DTC(X)."""
    H, full = target.entropies, target.subsets - 1
    single = H[1 << np.arange(target.L)]
    last = H[full] - H[full ^ (1 << np.arange(target.L))]
    return float(single.sum() - H[full]), float(H[full] - last.sum())


def dependence_sum(target: Target) -> float:
    """sum_i I(X_i; X_{-i}) = TC + DTC."""
    H, full = target.entropies, target.subsets - 1
    bits = 1 << np.arange(target.L)
    return float((H[bits] + H[full ^ bits] - H[full]).sum())


@dataclass(frozen=True, eq=False)
class PathAccount:
    """The terms of Theorem 1 under an arbitrary path law."""

    J: float
    B: float
    C: float
    R: float
    KL_out: float
    KL_aug: float
    pi: Array
    """The output law over the enumerated outputs."""


def path_law(rounds: NDArray[np.int64], weights: Array) -> PathLaw:
    """A checked law: `rounds[s, i]` counts from 0, weights sum to one."""
    table, nu = np.asarray(rounds, dtype=np.int64), np.asarray(weights, dtype=float)
    if table.ndim != 2 or nu.shape != table.shape[:1] or table.size == 0 or table.min() < 0:
        raise UserError(
            "A path law needs one row of rounds and one weight per path.",
            got=f"rounds of shape {table.shape}, weights of shape {nu.shape}",
        )
    if not np.isfinite(nu).all() or (nu < 0).any() or abs(nu.sum() - 1) > 1e-8:
        raise UserError("The weights of the paths are not a law.", got=f"the sum {nu.sum():.9g}")
    live = nu > 0
    return PathLaw(table[live], nu[live] / nu[live].sum(), int(table.max()) + 1)


def account_paths(target: Target, tables: NDArray, law: PathLaw) -> PathAccount:
    """Evaluate every term; `tables` are log q of shape `(R, L, 2**L, outputs)`, R = 1 or N."""
    contexts, nu, p = law.contexts, law.weights, target.p
    coordinates = np.arange(target.L)
    losses = token_losses(target, tables)
    r = law.rounds if len(losses) > 1 else np.zeros_like(law.rounds)
    J = float(nu @ losses[r, coordinates, contexts].sum(axis=1))
    H = target.entropies
    increments = H[contexts | 1 << coordinates] - H[contexts]
    B = float(nu @ increments.sum(axis=1)) - target.entropy
    log_q = path_log_law(tables, law)
    log_pi = log_sum(np.log(nu)[:, None] + log_q, axis=0)
    log_p = np.where(p > 0, log_of(p), 0.0)
    with np.errstate(invalid="ignore"):
        credit = float(nu @ expect(p, log_pi - log_q))
    return PathAccount(
        J=J,
        B=B,
        C=J - target.entropy - B,
        R=credit,
        KL_out=kl(p, log_pi),
        KL_aug=float(nu @ expect(p, log_p - log_q)),
        pi=np.exp(log_pi),
    )


@dataclass(frozen=True)
class Account:
    """Every term of Theorem 1 and its corollaries, in nats."""

    L: int
    """Coordinates."""
    N: int
    """Rounds."""
    outputs: int
    """Points of the output space."""
    H_X: float
    """Entropy of the target."""
    J_N: float
    """Schedule-matched posterior loss."""
    B_N: float
    """Price of drawing a round's coordinates independently."""
    C_N: float
    """Accumulated posterior error."""
    R_N: float
    """Credit for mixing reveal paths."""
    KL_out: float
    """KL(P || pi)."""
    KL_aug: float
    """KL(P x nu || Q), output and path together."""
    H_pi: float
    """Entropy of the output law."""
    TV: float
    """Half the L1 distance between P and pi."""
    h_at_grid: list[float]
    """h at a_0..a_{N-1}."""
    c_at_grid: list[float]
    """c_lambda at a_0..a_{N-1}, with the denoiser and temperature of that round."""
    TC: float
    """Total correlation of the target."""
    DTC: float
    """Dual total correlation of the target."""
    dependence_sum: float
    """TC + DTC = sum_i I(X_i; X_{-i})."""
    mesh_bound: float
    """Largest mass times `dependence_sum`, at least B_N."""
    pinsker_bound: float
    """sqrt((B_N + C_N) / 2), at least TV."""
    share_prob_c: float
    """sum_k delta_k^2: the chance that two given coordinates share a round."""
    L_inf: float | None
    """Area under c_lambda, the continuous-time objective; None if rounds differ."""
    pi: list[Any]
    """The output law, nested like P."""


def account(problem: LawProblem) -> Account:
    """Evaluate Theorem 1 on a problem."""
    target, masses = problem.target, problem.masses
    tables = problem.tables()
    H_X = target.entropy
    h = entropy_profile(target)(problem.grid[:-1])
    losses = token_losses(target, tables)
    c = losses_at_grid(losses, problem)
    log_pi = log_output(problem, tables)
    pi = np.exp(log_pi)
    J, B, C = _dot(masses, c), _dot(masses, h) - H_X, _dot(masses, c - h)
    TC, DTC = total_correlations(target)
    dependence = dependence_sum(target)
    return Account(
        L=target.L,
        N=problem.N,
        outputs=target.size,
        H_X=H_X,
        J_N=J,
        B_N=B,
        C_N=C,
        R_N=mixing_credit(problem, tables, log_pi) if np.isfinite(J) else np.inf,
        KL_out=kl(target.p, log_pi),
        KL_aug=augmented_kl(problem, tables) if problem.enumerable else J - H_X,
        H_pi=entropy_of(pi),
        TV=0.5 * float(np.abs(target.p - pi).sum()),
        h_at_grid=h.tolist(),
        c_at_grid=c.tolist(),
        TC=TC,
        DTC=DTC,
        dependence_sum=dependence,
        mesh_bound=float(masses.max()) * dependence,
        pinsker_bound=float(np.sqrt(max(B + C, 0.0) / 2)),
        share_prob_c=float((masses**2).sum()),
        L_inf=loss_profile(losses[0], target.L).area if len(losses) == 1 else None,
        pi=pi.reshape(target.shape).tolist(),
    )


def kl(p: Array, log_q: Array) -> float:
    """KL(p || q) with 0 log 0 = 0; infinite where q misses mass of p."""
    return float(kls(p, log_q))


def kls(p: Array, log_q: Array) -> Array:
    """KL(p || q) over the last axis of `log_q`, as sum of p log(p/q) - p + q.

    Both are laws, so this is the same number, but every term is nonnegative: no cancellation
    where q is close to p.
    """
    live = p > 0
    log_ratio = log_q - np.where(live, log_of(p), 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        near = p * (np.expm1(log_ratio) - log_ratio)
        far = np.exp(log_q) - p - p * log_ratio
        terms = np.where(np.abs(log_ratio) < 0.5, near, far)
    return np.where(live, terms, np.exp(log_q)).sum(axis=-1)


def entropy_of(p: Array) -> float:
    """Entropy in nats."""
    return float(-expect(p, log_of(p)))


def augmented_kl(problem: LawProblem, tables: NDArray) -> float:
    """KL(P x nu || Q) path by path."""
    p = problem.target.p
    return _above_paths(problem, tables, np.where(p > 0, log_of(p), 0.0))


def mixing_credit(problem: LawProblem, tables: NDArray, log_pi: Array) -> float:
    """R_N = E_P KL(nu || Q(S | X)), from the posterior over paths of each output.

    log nu(S) - log Q(S | x) = log pi(x) - log Q^S(x). Too many paths to list: the expectation
    over paths is linear in the tables, which gives E_P log pi + J_N.
    """
    if problem.enumerable:
        return _above_paths(problem, tables, log_pi)
    losses = losses_at_grid(token_losses(problem.target, tables), problem)
    return float(expect(problem.target.p, log_pi)) + _dot(problem.masses, losses)


def _above_paths(problem: LawProblem, tables: NDArray, log_law: Array) -> float:
    """How far a law lies above those of the paths: E_P E_nu of log law(X) - log Q^S(X)."""
    p, total = problem.target.p, 0.0
    for nu, log_q in path_chunks(problem, tables):
        with np.errstate(invalid="ignore"):
            total += float(nu @ expect(p, log_law - log_q))
    return total


def expected_conditional_tc(target: Target, masses: Array) -> float:
    """E_S sum_k TC(X_{S_k} | X_{A_{k-1}}), from the law of (visible set, round's set).

    Before round k the visible set has probability a^|A| (1-a)^(L-|A|), and each hidden coordinate
    joins the round with probability delta_k / (1 - a_{k-1}).
    """
    H, sizes = target.entropies, subset_sizes(target.L)
    subsets = np.arange(target.subsets)
    after, before = np.nonzero((subsets[None, :] & ~subsets[:, None]) == 0)
    block = sizes[after] - sizes[before]
    single = np.zeros(after.size)
    for i in range(target.L):
        inside = (after & ~before) >> i & 1 == 1
        single[inside] += H[before[inside] | 1 << i] - H[before[inside]]
    correlation = single - (H[after] - H[before])
    total, level = 0.0, 0.0
    for mass in masses:
        hidden = target.L - sizes[after]
        left = max(1 - level - mass, 0.0)
        total += float((level ** sizes[before] * mass**block * left**hidden) @ correlation)
        level += mass
    return total


def losses_at_grid(losses: Array, problem: LawProblem) -> Array:
    """c_lambda(a_{k-1}) with the losses of round k."""
    length, levels = problem.target.L, problem.grid[:-1]
    if len(losses) == 1:
        return loss_profile(losses[0], length)(levels)
    rounds = zip(losses, levels, strict=True)
    return np.array([float(loss_profile(loss, length)(level)) for loss, level in rounds])


def _dot(masses: Array, values: Array) -> float:
    return float(masses @ values)


def parallel_price(target: Target, grid: ArrayLike) -> float:
    """B_N = sum_k delta_k h(a_{k-1}) - H(X): it depends on the target and the grid alone."""
    a = np.asarray(grid, dtype=float)
    return float(np.diff(a) @ entropy_profile(target)(a[:-1])) - target.entropy


def price_as_integral(target: Target, grid: ArrayLike) -> float:
    """B_N = sum_k integral of (a_k - u) D(u) over round k, with D from mutual informations."""
    a = np.asarray(grid, dtype=float)
    D = dependence_profile(target).polynomial
    total = 0.0
    for low, high in pairwise(a):
        integral = (Polynomial([high, -1.0]) * D).integ()
        total += float(integral(high) - integral(low))
    return total


def uniform_remainder_sides(target: Target, rounds: int) -> tuple[float, float]:
    """|B_N - (TC + DTC) / 2N| and its bound max|h''| / 12 N^2, on the equal grid."""
    price = parallel_price(target, np.linspace(0, 1, rounds + 1))
    left = abs(price - dependence_sum(target) / (2 * rounds))
    second = entropy_profile(target).polynomial.deriv(2)
    return left, sup_abs(second) / (12 * rounds**2)


def lipschitz_sides(problem: LawProblem) -> tuple[float, float]:
    """|C_N - area of e_lambda| and (K/2) sum delta^2, for one denoiser shared by all rounds."""
    target, masses = problem.target, problem.masses
    losses = token_losses(target, problem.tables())[0]
    c, h = loss_profile(losses, target.L), entropy_profile(target)
    error = RateProfile(c.values - h.values)
    left = abs(float(masses @ error(problem.grid[:-1])) - error.area)
    slope = sup_abs(error.polynomial.deriv())
    return left, slope / 2 * float((masses**2).sum())


def pair_entropy_sides(problem: LawProblem) -> tuple[float, float]:
    """H(pi_1) and H(P) + c I(X_1; X_2) for two coordinates: the first is never smaller."""
    target = problem.target
    H = target.entropies
    information = float(H[1] + H[2] - H[3])
    c = float((problem.masses**2).sum())
    return entropy_of(np.exp(log_output(problem))), target.entropy + c * information


def kernel_tv_bound(xi: ArrayLike) -> tuple[float, float]:
    """1 - prod(1 - xi_k) and sum xi_k: what step errors of size xi_k can do to the output."""
    steps = np.asarray(xi, dtype=float)
    return float(-np.expm1(np.log1p(-np.minimum(steps, 1 - 1e-16)).sum())), float(steps.sum())


def sup_abs(polynomial: Polynomial) -> float:
    """max |p| on [0, 1]: at an end or at a real root of the derivative."""
    slope = polynomial.deriv()
    roots = slope.roots() if slope.degree() > 0 else np.array([])
    inner = [r.real for r in roots if abs(r.imag) < 1e-9 and 0 < r.real < 1]
    points = np.array([0.0, 1.0, *inner])
    return float(np.abs(polynomial(points)).max())


def round_errors(first: LawProblem, second: LawProblem) -> Array:
    """xi_k = sup over states of the TV distance of the two samplers' kernels in round k.

    Both share the grid. In state (A, x_A) the set B joins with its reveal probability, and the
    kernels then differ by the TV distance of two products over B.
    """
    target, q, r = first.target, first.tables(), second.tables()
    worst = []
    for k, rho in enumerate(hazards(first.grid)):
        first_table, second_table = q[min(k, len(q) - 1)], r[min(k, len(r) - 1)]
        sets = range(target.subsets - 1) if k else (0,)
        worst.append(
            max(_state_error(first_table, second_table, A, rho, target.shape) for A in sets)
        )
    return np.array(worst)


def _state_error(q: Array, r: Array, A: int, rho: float, shape: tuple[int, ...]) -> float:
    """The largest kernel distance over the states with visible set A."""
    length = len(shape)
    hidden = [i for i in range(length) if not A >> i & 1]
    total = np.zeros(())
    for choice in range(1, 1 << len(hidden)):
        block = [i for n, i in enumerate(hidden) if choice >> n & 1]
        chance = rho ** len(block) * (1 - rho) ** (len(hidden) - len(block))
        gap = np.abs(np.exp(q[block, A].sum(axis=0)) - np.exp(r[block, A].sum(axis=0)))
        cells = gap.reshape(shape)
        # Coordinates outside A and B do not matter: their axes repeat the same value.
        idle = tuple(i for i in hidden if i not in block)
        distance = 0.5 * cells.mean(axis=idle, keepdims=True).sum(axis=tuple(block), keepdims=True)
        total = total + chance * distance
    return float(np.max(total))


MIXED = 1e-13
"""Rows of a power of the matrix that agree to this no longer remember where they started."""


class Chain:
    """A stationary chain X_1..X_L with a positive transition matrix."""

    def __init__(self, kernel: ArrayLike, length: int) -> None:
        self.kernel, self.length = _checked(kernel), length
        self.start = stationary(self.kernel)

    @property
    def values(self) -> int:
        """The number of symbols."""
        return self.kernel.shape[0]

    @cached_property
    def powers(self) -> Array:
        """K^1, K^2, ..., up to the mixing time: shape `(D, V, V)`."""
        out = [self.kernel]
        while len(out) < self.length - 1 and np.ptp(out[-1], axis=0).max() > MIXED:
            out.append(out[-1] @ self.kernel)
        return np.stack(out)

    @property
    def entropy_rate(self) -> float:
        """H(X_2 | X_1)."""
        return float(-self.start @ (self.kernel * np.log(self.kernel)).sum(axis=1))

    @property
    def entropy(self) -> float:
        """H(X_1..X_L)."""
        first = float(-self.start @ np.log(self.start))
        return first + (self.length - 1) * self.entropy_rate

    @property
    def pairs(self) -> Array:
        """The law of two neighbours."""
        return self.start[:, None] * self.kernel

    def token_losses(self, lam: float = 1.0) -> Array:
        """E[-log q_lambda(X_i | nearest neighbours)] for every pair of distances.

        Shape `(D + 1, D + 1)`: entry (d, e) has the left neighbour d + 1 steps away and the right
        one e + 1; the last row and column stand for no neighbour.
        """
        alone = np.broadcast_to(self.start, (1, *self.kernel.shape))
        left = np.concatenate([self.powers, alone])  # a -> v
        right = np.concatenate([self.powers, np.ones_like(alone)])  # v -> b
        right_law = np.concatenate([self.powers, np.full_like(alone, 1 / self.values)])
        out = np.empty((len(left), len(right)))
        for d, first in enumerate(left):
            # joint[e, a, v, b] without its part P(b): laws of (a, v), then of b given v
            weight = self.start[:, None] * first
            log_q = lam * (np.log(first)[None, :, :, None] + np.log(right)[:, None, :, :])
            log_q -= log_sum(log_q, axis=2, keepdims=True)
            joint = weight[None, :, :, None] * right_law[:, None, :, :]  # no neighbour: a dummy
            out[d] = -(joint * log_q).sum(axis=(1, 2, 3))
        return out

    def neighbour_weights(self, level: float) -> Array:
        """sum over positions of Pr(left distance) Pr(right distance) at visible probability a."""
        depth = len(self.powers)
        reach = np.arange(self.length)[:, None]  # tokens on that side of position i
        d = np.arange(1, depth + 1)[None, :]
        near = np.where(d <= reach, level * (1 - level) ** (d - 1), 0.0)
        # Further than the mixing time, or nobody visible at all.
        far = (1 - level) ** np.minimum(reach, depth)
        left = np.concatenate([near, far], axis=1)
        return left.T @ left[::-1]

    def profiles(self, levels: ArrayLike, lams: ArrayLike) -> Array:
        """c_lambda(a): shape `(lams, levels)`; at lambda = 1 it is h(a)."""
        losses = np.stack([self.token_losses(float(lam)) for lam in np.atleast_1d(lams)])
        flat = losses.reshape(len(losses), -1)
        columns = [self.neighbour_weights(float(a)).reshape(-1) for a in np.atleast_1d(levels)]
        return np.stack([flat @ column for column in columns], axis=1)

    def account(self, masses: ArrayLike, lams: ArrayLike) -> tuple[float, Array]:
        """B_N, and C_N at every lambda, for any reveal masses."""
        delta = np.asarray(masses, dtype=float)
        levels = np.concatenate([[0.0], np.cumsum(delta)[:-1]])
        lams = np.append(1.0, np.atleast_1d(np.asarray(lams, dtype=float)))
        sums = self.profiles(levels, lams) @ delta
        return float(sums[0]) - self.entropy, sums[1:] - sums[0]

    def log_likelihood(self, ids: ArrayLike) -> Array:
        """log P(x) of every row."""
        x = np.asarray(ids)
        steps = np.log(self.kernel)[x[:, :-1], x[:, 1:]]
        return np.log(self.start)[x[:, 0]] + steps.sum(axis=1)

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Exact samples, one token after the other."""
        cumulative = self.kernel.cumsum(axis=1)
        out = np.empty((count, self.length), dtype=np.int64)
        out[:, 0] = rng.choice(self.values, size=count, p=self.start)
        for i in range(1, self.length):
            level = rng.random(count)[:, None]
            below = (cumulative[out[:, i - 1]] <= level).sum(axis=1)
            out[:, i] = np.minimum(below, self.values - 1)
        return out


def random_chain(values: int, length: int, rng: np.random.Generator) -> Chain:
    """Rows from a symmetric Dirichlet law, with one percent of the uniform one mixed in."""
    rows = rng.dirichlet(np.full(values, 0.3), size=values)
    return Chain(0.99 * rows + 0.01 / values, length)


def _checked(kernel: ArrayLike) -> Array:
    matrix = np.asarray(kernel, dtype=float)
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] > 0
    if not square or not np.isfinite(matrix).all() or (matrix <= 0).any():
        raise UserError(
            "A chain needs a square transition matrix with positive entries.",
            got=f"an array of shape {matrix.shape}",
        )
    if np.abs(matrix.sum(axis=1) - 1).max() > 1e-8:
        raise UserError("The rows of the transition matrix do not sum to one.")
    return matrix / matrix.sum(axis=1, keepdims=True)
