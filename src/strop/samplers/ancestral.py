"""Ancestral sampling of a masked denoiser: the public MDLM code, and the same law at less cost.

Each update offers every masked position one categorical outcome among all tokens and the mask:
token v has weight p(v) (t - s), staying masked has weight s. Weights are not normalised.

The two fast laws, one for each precision of the draw, ask the network only in rounds in which a
token comes out, and the head only where:

- In exact arithmetic the round in which a position is revealed does not depend on the tokens: it is
  round k with the grid's mass m_k. So `RevealFirst` draws the rounds before anything else. (The
  dense sampler's 53-bit clocks differ from exact ones by about 1e-10 at most.)
- In float32 tokens and timing are entangled: a position stays masked when no token beats the mask's
  clock, and rare tokens cannot. `LatticeRace` gives every masked position an offer in every round
  (see `lattice`), most of which are refused without asking the network; a sequence goes on to its
  first round with an open offer. If all its offers fall through, its state is still the same and
  serves the next round too.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.rng import Stream
from strop.samplers.machinery.addressed import Address, LatticeDraw, Weights
from strop.samplers.machinery.categorical import invert, shaped
from strop.samplers.machinery.dense import DenseRun
from strop.samplers.machinery.grid import sigma_of
from strop.samplers.machinery.packed import Law, Packed, packed

__all__ = ["LatticeRace", "RevealFirst", "cached", "fast", "uncached", "update"]

Numbers = NDArray[np.int64]


def cached(run: DenseRun) -> Tensor:
    """`ddpm_cache`: times are used as they are, and predictions are kept while nothing changes.

    The cache is dropped as soon as any sequence of the batch changed, and never used by a
    time-conditioned network. Random numbers are drawn on cached steps as well.
    """
    ids, prediction = run.start(), None
    for t, s, sigma in zip(run.grid.t, run.grid.s, run.grid.sigmas(), strict=False):
        if prediction is None:
            prediction = run.probabilities(run.log_probs(ids, sigma))
        moved = update(run, ids, prediction, t, s)
        if run.denoiser.time_conditioned or not moved.equal(ids):
            prediction = None
        ids = run.step(ids, moved)
    return run.public_finish(ids)


def uncached(run: DenseRun) -> Tensor:
    """`ddpm`: a network call at every step, times passed through the noise schedule."""
    ids = run.start()
    for s, sigma in zip(run.grid.s, run.grid.sigmas(), strict=False):
        prediction = run.probabilities(run.log_probs(ids, sigma))
        hidden = 1 - (-sigma).exp()
        ids = run.step(ids, update(run, ids, prediction, hidden, 1 - (-sigma_of(s)).exp()))
    return run.public_finish(ids)


def update(run: DenseRun, ids: Tensor, prediction: Tensor, t: Tensor, s: Tensor) -> Tensor:
    """One update from hidden share t to s, given exp of the predicted log-probabilities."""
    weights = prediction * (t - s).to(prediction.device)
    weights[..., run.denoiser.mask_id] = s
    return run.keep_visible(run.draw(weights), ids)


class RevealFirst:
    """The law of float64 draws: reveal rounds first."""

    def __init__(self, packed: Packed, seed: int) -> None:
        self._stream = Stream(seed, "reveal-first")
        self._edges = np.cumsum(packed.grid.masses)[:-1]
        self._reveal, self._begin = np.zeros(packed.masked.shape, np.int64), packed.begin

    def enter(self, slots: Numbers, outputs: Numbers) -> None:
        """Draw the round of every position."""
        u = self._stream.uniform(outputs[:, None], 0, self._begin.place[slots], 0)
        self._reveal[slots] = np.searchsorted(self._edges, u, side="right")

    def advance(self, slots: Numbers, packed: Packed) -> None:
        """Go to the earliest round of a position that is still masked."""
        rounds = np.where(packed.masked[slots], self._reveal[slots], packed.done)
        nearest = rounds.min(1)
        if packed.spec.finish == "none":
            nearest[nearest == packed.grid.updates] = packed.done
        packed.round[slots] = nearest
        packed.wanted[slots] = (rounds == nearest[:, None]) & (nearest != packed.done)[:, None]

    def draw(self, logits: Tensor, slots: Numbers, positions: Numbers, packed: Packed) -> Numbers:
        """Every wanted position is revealed: one random number each."""
        clean = shaped(logits, packed.denoiser.mask_id, packed.spec)
        place = self._begin.place[slots, positions]
        u = self._stream.uniform(packed.output[slots], 0, place, 1)
        return invert(clean, torch.from_numpy(u).to(clean.device)).cpu().numpy()


class LatticeRace:
    """The law of float32 draws: offers on the lattice."""

    def __init__(self, packed: Packed, seed: int) -> None:
        grid = packed.grid
        # The finish, where it draws, has the plain probabilities and leaves the mask no weight.
        token = torch.cat([grid.t - grid.s, torch.ones(1)]).numpy()
        mask = torch.cat([grid.s, torch.zeros(1)]).numpy()
        self._draws, self._weights = LatticeDraw(Stream(seed, "lattice-race")), Weights(token, mask)

    def enter(self, slots: Numbers, outputs: Numbers) -> None:
        """Nothing is drawn in advance."""

    def advance(self, slots: Numbers, packed: Packed) -> None:
        """Let rounds pass until one has an open offer, or the sequence is complete."""
        finish = packed.grid.updates
        going = slots
        while going.size:
            packed.round[going] += 1
            masked = packed.masked[going]
            last = packed.round[going] == finish
            ended = ~masked.any(1) | (last & (packed.spec.finish == "none"))
            packed.round[going[ended]] = packed.done
            greedy = going[last & ~ended & (packed.spec.finish == "greedy")]
            packed.wanted[greedy] = packed.masked[greedy]
            drawing = going[~ended & ~np.isin(going, greedy)]
            where, position = np.nonzero(packed.masked[drawing])
            slot = drawing[where]
            opened = self._draws.opened(*self._at(slot, position, packed))
            packed.wanted[slot[opened], position[opened]] = True
            going = drawing[~packed.wanted[drawing].any(1)]

    def draw(self, logits: Tensor, slots: Numbers, positions: Numbers, packed: Packed) -> Numbers:
        """Settle the open offers; a refused one leaves the mask."""
        mask_id = packed.denoiser.mask_id
        clean = shaped(logits, mask_id, packed.spec)
        return self._draws.draw(clean, *self._at(slots, positions, packed), mask_id)

    def _at(self, slot: Numbers, position: Numbers, packed: Packed) -> tuple[Address, Weights]:
        return packed.address(slot, position), self._weights.at(packed.round[slot])


def _law(packed: Packed, seed: int) -> Law:
    exact = packed.spec.precision == "float64"
    return RevealFirst(packed, seed) if exact else LatticeRace(packed, seed)


fast = packed(_law)
"""The law of `cached` in either precision."""
