"""The reveal grid: which share of the positions is still hidden before and after every update.

A position is revealed in round k with mass m_k. Before that round the hidden share is
t_k = m_k + m_{k+1} + ..., after it s_k = t_k - m_k. The last mass belongs to the finish.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from strop.spec.generator import EPSILON, SamplerSpec
from strop.spec.value import Cooling

NOISE_EPSILON = 1e-3
"""The log-linear noise of the public code stops short of masking everything."""


@dataclass(frozen=True)
class RevealGrid:
    """Times in float32, as the public code has them, and the exact masses beside them."""

    t: Tensor
    """Hidden share before each update, [K]."""
    s: Tensor
    """Hidden share after each update, [K]."""
    last: Tensor
    """Hidden share at the finish: the last mass, a scalar."""
    masses: np.ndarray
    """Probability of being revealed in each update, and in the finish: K + 1 numbers."""

    @property
    def updates(self) -> int:
        """The number of updates before the finish."""
        return len(self.t)

    def sigmas(self) -> Tensor:
        """The noise level at each update and at the finish: K + 1 numbers."""
        return sigma_of(torch.cat([self.t, self.last[None]]))


def sigma_of(t: Tensor) -> Tensor:
    """Log-linear noise: sigma = -log(1 - (1 - 1e-3) t)."""
    return -torch.log1p(-(1 - NOISE_EPSILON) * t)


def alpha_of(t: Tensor) -> Tensor:
    """The share of the signal that noise leaves: alpha = 1 - (1 - 1e-3) t = e^-sigma."""
    return 1 - (1 - NOISE_EPSILON) * t


def reveal_grid(spec: SamplerSpec) -> RevealGrid:
    """The grid that a spec asks for."""
    if spec.grid == "uniform":
        steps = spec.steps
        times = torch.linspace(1, EPSILON, steps + 1)
        # The public code subtracts a constant instead of reading the next time from the grid, so
        # the two differ in the last bits; bit parity needs the same.
        width = (1 - EPSILON) / steps
        masses = np.array([width] * steps + [EPSILON])
        return RevealGrid(times[:-1], times[:-1] - width, times[-1], masses)
    masses = np.asarray(spec.grid, dtype=np.float64)
    masses = masses / masses.sum()
    hidden = torch.from_numpy(np.cumsum(masses[::-1])[::-1].copy()).float()
    return RevealGrid(hidden[:-1], hidden[1:], hidden[-1], masses)


def temperatures(spec: SamplerSpec, grid: RevealGrid) -> np.ndarray | None:
    """The temperature of each update and of the finish, K + 1 numbers; None where it is one number.

    An update goes by the share revealed before it, the finish has the schedule's last value.
    """
    if not isinstance(spec.temperature, Cooling):
        return None
    revealed = np.append(0.0, np.cumsum(grid.masses)[: grid.updates - 1])[: grid.updates]
    return np.array([*map(spec.temperature.at, revealed), spec.temperature.last])


def neighbouring(grid: RevealGrid) -> RevealGrid:
    """The same times as the DUO code has them: steps are differences of neighbours, no constant."""
    times = torch.cat([grid.t, grid.last[None]])
    return replace(grid, s=grid.t - (times[:-1] - times[1:]))
