"""How many tokens share their reveal round, and the grid that the clipped schedule really uses.

These describe sampling geometry, not output error.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from strop.errors import UserError
from strop.theory.target import Array

# The time at which the public sampler stops and fills what is left.
TERMINAL_TIME = 1e-5


@dataclass(frozen=True)
class Collisions:
    """Expected occupancy of the reveal rounds."""

    length: int
    rounds: int
    empty: float
    """Rounds that reveal nothing: sum_k (1 - delta_k)^L."""
    singleton: float
    """Rounds that reveal one token: sum_k L delta_k (1 - delta_k)^(L-1)."""
    share_prob: float
    """Chance that a given token shares its round: 1 - sum_k delta_k (1 - delta_k)^(L-1)."""
    colliding_pairs: float
    """Unordered pairs in one round: L(L-1)/2 sum_k delta_k^2."""

    def as_dict(self) -> dict[str, Any]:
        """All values by name."""
        return asdict(self)


def collisions(length: int, masses: ArrayLike) -> Collisions:
    """The four expectations for any reveal masses."""
    delta = np.asarray(masses, dtype=float)
    alone = (1 - delta) ** (length - 1)
    return Collisions(
        length=length,
        rounds=delta.size,
        empty=float(((1 - delta) ** length).sum()),
        singleton=float(length * (delta * alone).sum()),
        share_prob=float(1 - (delta * alone).sum()),
        colliding_pairs=float(length * (length - 1) / 2 * (delta**2).sum()),
    )


def equal_masses(rounds: int) -> Array:
    """N rounds of mass 1/N."""
    return np.full(_count(rounds), 1.0 / rounds)


def clipped_masses(updates: int, terminal: float = TERMINAL_TIME) -> Array:
    """M updates from time 1 to `terminal` and the cleanup round: N = M + 1 masses.

    A hidden token survives an update t -> s with probability s/t, so at time t it is hidden with
    probability t; the masses are the telescoping differences.
    """
    _count(updates)
    if not 0 < terminal < 1:
        raise UserError("The terminal time is out of range.", got=terminal, expected="0 < eps < 1")
    times = np.linspace(1.0, terminal, updates + 1)
    survival = np.cumprod(np.append(1.0, times[1:] / times[:-1]))
    return np.append(-np.diff(survival), survival[-1])


def cleanup_tv(length: int, terminal: float = TERMINAL_TIME) -> float:
    """1 - (1 - eps)^L: all that two ways of filling the last masks can differ by."""
    return float(-np.expm1(length * np.log1p(-terminal)))


def _count(rounds: int) -> int:
    if rounds < 1 or rounds > 10**8:
        raise UserError(
            "The number of rounds is out of range.",
            where="`rounds`",
            got=rounds,
            expected="between 1 and 100,000,000",
        )
    return rounds
