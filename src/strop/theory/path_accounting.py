"""Theorem 1 for any law over reveal paths, not only those of a grid.

The identities need just one thing: that the path is independent of the data. With fixed orders
or correlated rounds there is no visible probability a and no profile, so every term is an
expectation over paths:

    J = E sum_i -log q^i(X_i | X_{A_i(S)})
    B = E sum_i H(X_i | X_{A_i(S)}) - H(X)
    C = J - H(X) - B
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.theory.accounting import kl
from strop.theory.denoiser import log_sum
from strop.theory.profile import token_losses
from strop.theory.reveal import PathLaw
from strop.theory.sampler import path_log_law
from strop.theory.target import Array, Target, expect, log_of


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
