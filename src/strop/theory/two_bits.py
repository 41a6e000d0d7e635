"""Proposition 2 (exact repair) for two uniform bits, and the V-ary witness, in closed form.

The two coordinates share a round with probability c = sum_k delta_k^2 and are then independent;
otherwise the second follows the tempered conditional, which agrees with probability
u = sigmoid(lambda logit s). The output is P_t with t = c/2 + (1-c) u.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from strop.errors import UserError

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
    B, C = c * (np.log(2) - binary_entropy(s)), (1 - c) * loss
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


def binary_entropy(s: float) -> float:
    """-s log s - (1-s) log(1-s)."""
    return float(-s * np.log(s) - (1 - s) * np.log1p(-s))


def _kl(p: float, rest: float, log_q: float, log_rest: float) -> float:
    return float(p * (np.log(p) - log_q) + rest * (np.log(rest) - log_rest))


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
