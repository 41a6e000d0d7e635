"""How much output error do per-round temperatures and better grids remove? Exact optima.

Random targets as in the 280-target study, on equal grids with the exact denoiser. These are
properties of small targets with more free parameters than one temperature, not of language.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from strop.theory.sampler import LawProblem
from strop.theory.schedules import PLANS, optimise, removed_shares
from strop.theory.target import Array, Target

SETTINGS = ((2, 2, 2), (2, 4, 2), (2, 3, 3), (3, 2, 2), (3, 3, 2), (3, 2, 3), (4, 2, 2))

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
            mine = np.array([s == setting for s in self.settings])
            row: dict[str, Any] = {"L_V_N": list(setting)}
            row |= {plan: float(np.median(self.shares[plan][mine])) for plan in self.shares}
            row["first_lambda"] = float(np.median(self.first_lambda[mine]))
            row["last_lambda"] = float(np.median(self.last_lambda[mine]))
            out.append(row)
        return out


def run_schedule_study(seed: int = 0, per_setting: int = 9, starts: int = 3) -> ScheduleStudy:
    """Optimise every plan on every target."""
    rng = np.random.default_rng([seed, 7])
    settings: list[tuple[int, int, int]] = []
    rows: list[dict[str, float]] = []
    lams: list[Array] = []
    for setting in SETTINGS:
        length, values, rounds = setting
        for k in range(per_setting):
            target = Target.dirichlet((values,) * length, (0.3, 1.0, 3.0)[k % 3], rng)
            problem = LawProblem.bayes(target, np.linspace(0, 1, rounds + 1))
            settings.append(setting)
            rows.append(removed_shares(problem, starts=starts))
            lams.append(optimise(problem, "per-round", starts).lam)
    return ScheduleStudy(
        settings=settings,
        shares={plan: np.array([row[plan] for row in rows]) for plan in (*PLANS, "grid from h")},
        first_lambda=np.array([lam[0] for lam in lams]),
        last_lambda=np.array([lam[-1] for lam in lams]),
    )
