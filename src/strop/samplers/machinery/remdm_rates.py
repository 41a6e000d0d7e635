"""ReMDM's schedules: how much a sampler reveals and takes back in every update.

Let a_t = 1 - t be the visible share before an update and a_s after it. A visible token is taken
back with probability sigma; a masked position is revealed with probability
(a_s - (1 - sigma) a_t) / (1 - a_t). For every sigma up to min(1, (1 - a_s) / a_t) the visible share
after the update is a_s, as without taking back: the schedules only choose sigma.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.samplers.machinery.grid import RevealGrid
from strop.spec import SamplerSpec

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rates:
    """For every update, the weights of a masked position and what a visible one loses: [K]."""

    token: Floats
    """A token's weight at a masked position, times its probability."""
    mask: Floats
    """The weight of staying masked."""
    back: Floats
    """sigma; by confidence, the sum of it over a sequence."""
    by_confidence: bool = False
    """Whether `back` is shared out among the visible tokens, the unsure ones first."""


def remdm_rates(spec: SamplerSpec, grid: RevealGrid) -> Rates:
    """The schedule that a spec asks for."""
    return _SCHEDULES[spec.name](spec, grid)


def unsure_first(confidence: Tensor, visible: Tensor) -> Tensor:
    """Shares [B, L] that sum to one over the visible tokens: softmax of minus confidence.

    Confidence is the probability with which a token was drawn. Nothing visible, no shares.
    """
    scores = torch.where(visible, -confidence.double(), -torch.inf)
    return torch.softmax(scores, dim=-1).nan_to_num_(0.0)


def _cap(spec: SamplerSpec, grid: RevealGrid) -> Rates:
    eta = float(spec.settings["eta"])
    return _revising(grid, np.minimum(eta, _largest(grid)))


def _rescale(spec: SamplerSpec, grid: RevealGrid) -> Rates:
    return _revising(grid, float(spec.settings["eta"]) * _largest(grid))


def _conf(spec: SamplerSpec, grid: RevealGrid) -> Rates:  # noqa: ARG001
    plain = _revising(grid, np.zeros(grid.updates))  # masked positions have no confidence to lose
    return Rates(plain.token, plain.mask, _largest(grid), by_confidence=True)


def _loop(spec: SamplerSpec, grid: RevealGrid) -> Rates:
    """Up to the share alpha_on, then round and round at that share, then on to the end."""
    eta, t_on, t_off, alpha_on = (
        float(spec.settings[name]) for name in ("eta", "t_on", "t_off", "alpha_on")
    )
    t, s = grid.t.double().numpy(), grid.s.double().numpy()
    before, after = t > t_on, t <= t_off
    climb = alpha_on / (1 - t_on)
    fall = (1 - alpha_on) / t_off
    hidden = np.where(before, 1 - (1 - t) * climb, t * fall)
    left = np.where(before, 1 - (1 - s) * climb, s * fall)
    inside = ~before & ~after
    again = eta * alpha_on / (1 - alpha_on)  # what is revealed makes up for what is taken back
    token = np.where(inside, again, hidden - left)
    # An update that crosses t_on with a long stride would leave less than nothing.
    mask = np.maximum(np.where(inside, 1 - again, left), 0.0)
    return Rates(token, mask, np.where(inside, eta, 0.0))


_SCHEDULES = {
    "remdm-cap": _cap,
    "remdm-rescale": _rescale,
    "remdm-conf": _conf,
    "remdm-loop": _loop,
}


def _visible(grid: RevealGrid) -> tuple[Floats, Floats]:
    """a_t and a_s: rounded like the times, then exact."""
    return (1 - grid.t).double().numpy(), (1 - grid.s).double().numpy()


def _largest(grid: RevealGrid) -> Floats:
    """The largest sigma that leaves a masked position a probability: min(1, (1 - a_s) / a_t)."""
    a_t, a_s = _visible(grid)
    return np.where(a_t > 0, np.minimum(1.0, (1 - a_s) / np.where(a_t > 0, a_t, 1.0)), 1.0)


def _revising(grid: RevealGrid, back: Floats) -> Rates:
    a_t, a_s = _visible(grid)
    token = (a_s - (1 - back) * a_t) / (1 - a_t)
    mask = (1 - a_s - back * a_t) / (1 - a_t)
    return Rates(np.maximum(token, 0.0), np.maximum(mask, 0.0), back)  # rounding may dip below zero
