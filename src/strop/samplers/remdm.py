"""ReMDM (Wang et al. 2025) on a masked denoiser: tokens are revised.

Every update draws one categorical outcome at every position. A masked position offers token v the
weight p(v) a and staying masked the weight b; a visible one keeps its token with weight 1 - sigma
and is masked again with weight sigma. a, b and sigma are the schedule's (`remdm_rates`). The
prediction is kept while nothing changes, and what is masked at the end is filled by the finish.

At less cost: how much is revealed and taken back in an update depends on the schedule, never on the
prediction there: where sigma goes by confidence, it goes by the confidence of earlier draws. So a
sequence passes through the updates one by one, decides at every visible token whether it is taken
back and at every masked position whether a token may come out, and asks the network only in an
update where one may; head and draw run at those positions alone. Tokens that an update takes back
are still visible to the prediction of that same update.

The schedules say how much a sampler reveals and takes back in every update. Let a_t = 1 - t be the
visible share before an update and a_s after it. A visible token is taken back with probability
sigma; a masked position is revealed with probability (a_s - (1 - sigma) a_t) / (1 - a_t). For every
sigma up to min(1, (1 - a_s) / a_t) the visible share after the update is a_s, as without taking
back: the schedules only choose sigma.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from strop.denoisers.device import Floats, Numbers, upload_rows
from strop.rng import Stream
from strop.samplers.machinery.categorical import shaped
from strop.samplers.machinery.dense import DenseRun
from strop.samplers.machinery.lattice import Weights, addressed
from strop.samplers.machinery.packed import Packed, Rows, packed
from strop.samplers.machinery.start import RevealGrid
from strop.spec.generator import SamplerSpec


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
    if spec.name == "remdm-loop":
        return _loop(spec, grid)
    a_t, a_s = (1 - grid.t).double().numpy(), (1 - grid.s).double().numpy()
    # The largest sigma that leaves a masked position a probability: min(1, (1 - a_s) / a_t).
    largest = np.where(a_t > 0, np.minimum(1.0, (1 - a_s) / np.where(a_t > 0, a_t, 1.0)), 1.0)
    by_confidence, back = spec.name == "remdm-conf", largest
    if not by_confidence:
        eta = float(spec.settings["eta"])
        back = np.minimum(eta, largest) if spec.name == "remdm-cap" else eta * largest
    shared = np.zeros_like(back) if by_confidence else back  # masks have no confidence to lose
    token = (a_s - (1 - shared) * a_t) / (1 - a_t)
    mask = (1 - a_s - shared * a_t) / (1 - a_t)
    # Rounding may dip below zero.
    return Rates(np.maximum(token, 0.0), np.maximum(mask, 0.0), back, by_confidence)


def unsure_first(confidence: Tensor, visible: Tensor) -> Tensor:
    """Shares [B, L] that sum to one over the visible tokens: softmax of minus confidence.

    Confidence is the probability with which a token was drawn. Nothing visible, no shares.
    """
    scores = torch.where(visible, -confidence.double(), -torch.inf)
    return torch.softmax(scores, dim=-1).nan_to_num_(0.0)


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


def remdm(run: DenseRun) -> Tensor:
    """Any of the four schedules; the public code casts to the draw's precision at the draw."""
    rates, mask_id = remdm_rates(run.spec, run.grid), run.denoiser.mask_id
    ids, prediction = run.start(), None
    confidence = torch.zeros(ids.shape, dtype=torch.float64, device=ids.device)
    for k, noise in enumerate(run.grid.sigmas()[:-1]):
        if prediction is None:
            prediction = run.log_probs(ids, noise).exp()
        visible = ids != mask_id
        revised = visible & run.begin.opened(ids.device)  # what is given is never taken back
        back = torch.full(ids.shape, rates.back[k], dtype=torch.float64, device=ids.device)
        if rates.by_confidence:
            back *= unsure_first(confidence, revised)
        back = torch.where(revised, back, 0.0)
        # A visible token's own probability is one and all others are zero.
        factor = torch.where(visible, 1 - back, rates.token[k])
        weights = prediction * factor[..., None].to(prediction.dtype)
        weights[..., mask_id] = torch.where(visible, back, rates.mask[k]).to(prediction.dtype)
        moved = run.draw(weights.to(run.dtype))
        drawn = prediction.gather(-1, moved[..., None])[..., 0].double()
        confidence = torch.where(visible, confidence, drawn)
        ids = run.step(ids, moved)
        if run.denoiser.time_conditioned or run.changed:
            prediction = None
    return run.public_finish(ids)


class Revising:
    """Any of ReMDM's schedules, in either precision."""

    def __init__(self, packed: Packed, seed: int) -> None:
        rates = remdm_rates(packed.spec, packed.grid)
        self._back, self._by_confidence = rates.back, rates.by_confidence
        # The finish, where it draws, has the plain probabilities and leaves the mask no weight.
        self._weights = Weights(np.append(rates.token, 1.0), np.append(rates.mask, 0.0))
        self._draws = addressed(packed.spec.precision, Stream(seed, "revising"))
        self._wanted = np.zeros(packed.masked.shape, bool)  # a token may come out
        self._leaving = np.zeros(packed.masked.shape, bool)  # taken back when the update is over
        self._confidence = np.zeros(packed.masked.shape)

    def enter(self, slots: Numbers, outputs: Numbers) -> None:  # noqa: ARG002
        """Nothing is visible yet, so nothing can be taken back."""
        self._leaving[slots] = False

    def advance(self, slots: Numbers, packed: Packed) -> None:
        """End the current update and let others pass until one needs the network."""
        going = slots
        while going.size:
            self._take_back(going, packed)
            packed.round[going] += 1
            at_finish = packed.round[going] == packed.grid.updates
            self._finish(going[at_finish], packed)
            going = going[packed.round[going] < packed.grid.updates]
            self._choose(going, packed)
            where, position = np.nonzero(packed.masked[going])
            slot = going[where]
            at = packed.address(slot, position)
            opened = self._draws.opened(at, self._weights.at(at.round))
            self._wanted[slot[opened], position[opened]] = True
            going = going[~self._wanted[going].any(1)]

    def take(self, slots: Numbers, packed: Packed) -> tuple[Numbers, Numbers]:  # noqa: ARG002
        """Where a token may come out in this update."""
        where, position = np.nonzero(self._wanted[slots])
        self._wanted[slots] = False
        return slots[where], position

    def draw(self, logits: Tensor, rows: Rows, packed: Packed) -> Numbers:
        """Settle the rows that may be revealed, and remember how sure they were."""
        mask_id = packed.denoiser.mask_id
        clean = shaped(logits, mask_id, packed.spec, packed.confirm)
        sure = clean.clone() if self._by_confidence else None
        at = packed.address(rows.slot, rows.position)
        weights = self._weights.at(at.round)
        token, packed.chance = self._draws.draw(clean, at, weights, mask_id)
        if sure is not None:
            chosen = packed.upload(token)[:, None]
            confidence = sure.gather(-1, chosen)[:, 0].exp().cpu().numpy()  # waits
            self._confidence[rows.slot, rows.position] = confidence
        return token

    def _take_back(self, slots: Numbers, packed: Packed) -> None:
        where, position = np.nonzero(self._leaving[slots])
        if not where.size:
            return
        slot = slots[where]
        masks = np.full(len(slot), packed.denoiser.mask_id)
        at = upload_rows(packed.ids.device, slot, position, masks)
        packed.ids[at[0], at[1]] = at[2]
        packed.note(slot, position, masks)
        packed.blank[slots] = packed.masked[slots].all(1)
        self._leaving[slots] = False

    def _choose(self, slots: Numbers, packed: Packed) -> None:
        """Decide, before the network is asked, which visible tokens this update takes back."""
        visible = ~packed.masked[slots] & packed.begin.open[slots]  # what is given stays
        where, position = np.nonzero(visible)
        slot = slots[where]
        chance = self._back[packed.round[slot]]
        if self._by_confidence:
            shares = unsure_first(
                torch.from_numpy(self._confidence[slots]), torch.from_numpy(visible)
            )
            chance = chance * shares.numpy()[where, position]
        at = packed.address(slot, position)
        self._leaving[slot, position] = self._draws.loses(at, chance)

    def _finish(self, slots: Numbers, packed: Packed) -> None:
        """Fill what is masked, if the finish fills and anything is."""
        if packed.spec.finish != "none":
            self._wanted[slots] = packed.masked[slots]
        packed.round[slots[~self._wanted[slots].any(1)]] = packed.done


fast = packed(Revising)
"""The fast sampler with the law of `remdm`."""
