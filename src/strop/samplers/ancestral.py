"""Ancestral sampling of a masked denoiser: the public MDLM code, and the same law at less cost.

Each update offers every masked position one categorical outcome among all tokens and the mask:
token v has weight p(v) (t - s), staying masked has weight s. Weights are not normalised.

The two fast laws, one for each precision of the draw, ask the network only in rounds in which a
token comes out, and the head only where:

- In exact arithmetic the round in which a position is revealed does not depend on the tokens: it is
  round k with the grid's mass m_k. So `RevealFirst` draws the rounds before anything else. (The
  dense sampler's 53-bit clocks differ from exact ones by about 1e-10 at most.)
- In float32 tokens and timing are entangled: a position stays masked when no token beats the mask's
  clock, and rare tokens cannot. Every masked position has an offer in every round (see `lattice`),
  most of which are refused without asking the network. `LatticeRace` draws the first that is not
  (see `skips`), and a sequence goes on to the earliest of its positions. If all its offers fall
  through, its state is still the same and serves the next round too.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.rng import Stream
from strop.samplers.machinery.addressed import Address, settled
from strop.samplers.machinery.categorical import invert, shaped
from strop.samplers.machinery.dense import DenseRun
from strop.samplers.machinery.device import upload
from strop.samplers.machinery.grid import sigma_of
from strop.samplers.machinery.lattice import Lattice
from strop.samplers.machinery.offers import Offers, point_numbers
from strop.samplers.machinery.packed import Law, Packed, Rows, packed
from strop.samplers.machinery.skips import Skips

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


class _Dated:
    """A law in which every masked position has a date: the round in which it needs the head."""

    def __init__(self, packed: Packed) -> None:
        self._due = np.full(packed.masked.shape, packed.done, np.int32)

    def advance(self, slots: Numbers, packed: Packed) -> None:
        """Go to the earliest date of a sequence."""
        nearest = self._dates(slots).min(1)
        if packed.spec.finish == "none":
            nearest[nearest == packed.grid.updates] = packed.done
        packed.round[slots] = nearest

    def take(self, slots: Numbers, packed: Packed) -> tuple[Numbers, Numbers]:
        """The positions of that date, which have none any more."""
        now = packed.round[slots].astype(np.int32)
        found = np.flatnonzero(self._dates(slots) == now[:, None])
        where, position = np.divmod(found, self._due.shape[1])
        slot = slots[where]
        self._due[slot, position] = packed.done
        return slot, position

    def _dates(self, slots: Numbers) -> NDArray[np.int32]:
        return self._due if len(slots) == len(self._due) else self._due[slots]


class RevealFirst(_Dated):
    """The law of float64 draws: reveal rounds first."""

    def __init__(self, packed: Packed, seed: int) -> None:
        super().__init__(packed)
        self._stream = Stream(seed, "reveal-first")
        self._edges = np.cumsum(packed.grid.masses)[:-1]
        self._begin, self._done = packed.begin, packed.done
        self._numbers = torch.zeros(self._due.shape, dtype=torch.float64, device=packed.ids.device)

    def enter(self, slots: Numbers, outputs: Numbers) -> None:
        """Draw all that is random: the round of every position, and the number for its token."""
        at = outputs[:, None], 0, self._begin.place[slots]
        rounds = np.searchsorted(self._edges, self._stream.uniform(*at, 0), side="right")
        self._due[slots] = np.where(self._begin.open[slots], rounds, self._done)
        device = self._numbers.device
        self._numbers[upload(slots, device)] = upload(self._stream.uniform(*at, 1), device)

    def draw(self, logits: Tensor, rows: Rows, packed: Packed) -> Tensor:
        """Every row is revealed, and nobody has to know what came out."""
        clean = shaped(logits, packed.denoiser.mask_id, packed.spec, packed.confirm)
        return invert(clean, self._numbers[rows.there])


class LatticeRace(_Dated):
    """The law of float32 draws: offers on the lattice, from one that is open to the next."""

    def __init__(self, packed: Packed, seed: int) -> None:
        super().__init__(packed)
        grid = packed.grid
        # The finish, where it draws, has the plain probabilities and leaves the mask no weight.
        self._token = torch.cat([grid.t - grid.s, torch.ones(1)]).numpy()
        mask = torch.cat([grid.s, torch.zeros(1)]).numpy()
        self._stream, self._lattice = Stream(seed, "lattice-race/2"), Lattice()
        self._skips = Skips(self._lattice, self._token, mask)
        self._begin, self._done = packed.begin, packed.done
        self._score = np.zeros(self._due.shape, np.float32)
        self._points = np.zeros(self._due.shape, np.int64)
        self._numbers = np.zeros((*self._due.shape, 3))

    def enter(self, slots: Numbers, outputs: Numbers) -> None:
        """Draw the first open offer of every position."""
        self._due[slots] = self._done
        where, position = np.nonzero(self._begin.open[slots])
        self._skip(slots[where], position, outputs[where], np.zeros(len(where), np.int64))

    def draw(self, logits: Tensor, rows: Rows, packed: Packed) -> Numbers:
        """Settle the open offers; a position that is refused goes on to its next one."""
        mask_id = packed.denoiser.mask_id
        law = shaped(logits, mask_id, packed.spec, packed.confirm)
        at, cell = packed.address(rows.slot, rows.position), (rows.slot, rows.position)
        mass = self._token[at.round]
        known = self._score[cell], self._points[cell], mass, self._numbers[cell]
        offers = Offers.known(*at, *known)
        token = settled(self._lattice, offers, law, mass, mask_id, self._stream)
        out = np.flatnonzero(token == mask_id)
        if out.size:
            slot, position = rows.slot[out], rows.position[out]
            self._skip(slot, position, at.output[out], at.round[out] + 1)
        return token

    def _skip(self, slot: Numbers, position: Numbers, output: Numbers, start: Numbers) -> None:
        place = self._begin.place[slot, position]
        cell = slot, position
        found = self._skips.next(self._stream, Address(output, start, place))
        self._due[cell], self._score[cell], self._points[cell] = found
        self._numbers[cell] = point_numbers(self._stream, output, found.round, place, 0)


def _law(packed: Packed, seed: int) -> Law:
    exact = packed.spec.precision == "float64"
    return RevealFirst(packed, seed) if exact else LatticeRace(packed, seed)


fast = packed(_law)
"""The law of `cached` in either precision."""
