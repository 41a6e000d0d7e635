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
  (see below), and a sequence goes on to the earliest of its positions. If all its offers fall
  through, its state is still the same and serves the next round too.

The skip goes from one open offer of a position to its next, without a number for every round
between.

An offer (see `lattice`) is decided by two independent numbers: the lattice point k of the mask's
clock and u, uniform on [0, 1), which opens it where 1 - u <= 1 - e^-r, r = R D(k), with a rate R of
the round, and always where r is above `CAP`. How probable that is, is a sum over the whole lattice,
too long to take for every round, but easily bounded. Let the lattice be cut into stretches of equal
size, and D' be the longest clock of the one that k is in, that of its first point. The offer is a
*candidate* where 1 - u < min(1, R D'). Clocks do not grow along the lattice and 1 - e^-r <= r, so
every open offer is a candidate; and in round n one is with the probability Q_n, the mean of
min(1, R_n D') over the stretches: exact, and known before anything is drawn.

Rounds are independent, so the first candidate after a round is found by inverting the product of
the 1 - Q_n. Given that an offer is a candidate, its stretch has a chance proportional to
min(1, R D'), k is uniform in it and 1 - u is uniform below min(1, R D'): the two numbers of the
offer again, on the lattice, conditioned on an event that holds whenever it is open. Where it turns
out not to be, the skip goes on from there. This is the law of offers made round by round, ties and
coarseness of the mask's clock included; to treat that clock as exponential is not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.denoisers.device import Floats, Numbers, upload
from strop.rng import Stream, unit53
from strop.samplers.machinery.categorical import invert, shaped, share
from strop.samplers.machinery.dense import DenseRun
from strop.samplers.machinery.lattice import (
    CLOCK_SLACK,
    WEIGHT_SLACK,
    Address,
    Lattice,
    Offers,
    levels,
    point_numbers,
    settle_offers,
)
from strop.samplers.machinery.packed import Law, Packed, Rows, packed
from strop.samplers.machinery.start import sigma_of

STRETCH_BITS = 10
SKIP = 2**31 + 1  # the address of a skip's numbers among those of a round
ROUNDING = 1 + 1e-6  # scores are rounded to float32, rates are not
CERTAIN = 64.0  # -log of less than any number drawn can be: its round is not skipped
SMALLEST = 1e-30  # a mask weight below it has no room for `ROUNDING`


class OpenOffers(NamedTuple):
    """Open offers, one entry each (see `Offers`)."""

    round: Numbers
    """The number of rounds where none is open any more."""
    mask_score: NDArray[np.float32]
    points: Numbers


class Skips:
    """The rounds of a grid, by their weights (see `Lattice.offer`)."""

    def __init__(self, lattice: Lattice, token_mass: NDArray, mask_weight: NDArray) -> None:
        self._lattice, self._token, self._mask = lattice, token_mass, mask_weight
        bits = min(lattice.bits, STRETCH_BITS)
        self._stretches, self._shift = 1 << bits, lattice.bits - bits
        first = np.arange(self._stretches) << self._shift
        self._longest = lattice.clock(first).astype(np.float64)
        self._sums = np.append(0.0, np.cumsum(self._longest)) / self._stretches
        self._rate = self._rates()
        # Stretches whose longest clock makes a candidate for sure come first.
        surely = np.divide(
            1.0, self._rate, where=self._rate > 0, out=np.full_like(self._rate, np.inf)
        )
        self._surely = np.searchsorted(-self._longest, -surely, side="right")
        self._base = self._surely / self._stretches
        remainder = self._sums[-1] - self._sums[self._surely]
        remainder = np.multiply(
            remainder, self._rate, where=remainder > 0, out=np.zeros_like(remainder)
        )
        self.chance = np.minimum(self._base + remainder, 1.0)
        """Q: the probability of a candidate in each round."""
        with np.errstate(divide="ignore"):
            self._hazard = np.append(0.0, np.cumsum(np.minimum(-np.log1p(-self.chance), CERTAIN)))

    def _rates(self) -> Floats:
        token, mask = self._token.astype(np.float64), self._mask.astype(np.float64)
        slack = (1 + CLOCK_SLACK) * (1 + WEIGHT_SLACK) * ROUNDING
        safe = np.where(mask > SMALLEST, mask, 1.0)
        return np.where(token > 0, np.where(mask > SMALLEST, slack * token / safe, np.inf), 0.0)

    def next(self, stream: Stream, start: Address) -> OpenOffers:
        """The first open offer from the rounds of `start` on."""
        rounds = np.full(len(start.round), len(self.chance))
        score, points = np.zeros(len(rounds), np.float32), np.zeros(len(rounds), np.int64)
        going, at = np.arange(len(rounds)), start
        while going.size:
            high, low, high2, low2 = stream.words(*at, SKIP)
            candidate = self._candidate(at.round, unit53(high, low))
            more = np.flatnonzero(candidate < len(self.chance))
            going, candidate = going[more], candidate[more]
            at = Address(at.output[more], candidate, at.position[more])
            k, u = self._offered(stream, at, unit53(high2[more], low2[more]))
            offers = self._lattice.offers(at, k, u, self._token[candidate], self._mask[candidate])
            opened = offers.open
            done = going[opened]
            rounds[done], points[done] = candidate[opened], offers.points[opened]
            score[done] = offers.mask_score[opened]
            going, at = going[~opened], at.at(~opened)
            at = at._replace(round=at.round + 1)
        return OpenOffers(rounds, score, points)

    def _candidate(self, start: Numbers, u: Floats) -> Numbers:
        """The first round with a candidate, from `start` on."""
        return np.searchsorted(self._hazard[1:], self._hazard[start] - np.log1p(-u), side="right")

    def _offered(self, stream: Stream, at: Address, v: Floats) -> tuple[Numbers, Floats]:
        """The numbers k and u of candidates."""
        word, high, low, _ = stream.words(*at, 0)
        rate, surely, base = self._rate[at.round], self._surely[at.round], self._base[at.round]
        v = v * self.chance[at.round]
        sure = v < base
        beyond = self._sums[surely] + (v - base) / np.where(sure | (rate == 0), 1.0, rate)
        stretch = np.where(
            sure, v * self._stretches, np.searchsorted(self._sums, beyond, "right") - 1
        )
        stretch = np.minimum(stretch.astype(np.int64), self._stretches - 1)
        k = (stretch << self._shift) | (word >> np.uint64(32 - self._shift)).astype(np.int64)
        cover = np.minimum(rate * self._longest[stretch], 1.0)
        return k, 1 - unit53(high, low) * cover


def cached(run: DenseRun) -> Tensor:
    """`ddpm_cache`: times are used as they are, and predictions are kept while nothing changes.

    The cache is dropped as soon as any sequence of the batch changed, and never used by a
    time-conditioned network. Random numbers are drawn on cached steps as well. Under a schedule of
    temperatures the network's scores are kept.
    """
    ids, scores, prediction = run.start(), None, None
    for t, s, sigma in zip(run.grid.t, run.grid.s, run.grid.sigmas(), strict=False):
        if run.heats is not None:
            scores = run.logits(ids, sigma) if scores is None else scores
            prediction = run.probabilities(run.law(scores.clone(), ids))
        elif prediction is None:
            prediction = run.probabilities(run.log_probs(ids, sigma))
        ids = run.step(ids, update(run, ids, prediction, t, s))
        if run.denoiser.time_conditioned or run.changed:
            scores = prediction = None
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
    weights = prediction * (t - s)
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
        due = np.flatnonzero(self._dates(slots) == now[:, None])
        where, position = np.divmod(due, self._due.shape[1])
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
        """Every row is revealed, and the tokens need not be known here."""
        heat = packed.heat(rows.slot)
        clean = shaped(logits, packed.denoiser.mask_id, packed.spec, packed.confirm, heat)
        token = invert(clean, self._numbers[rows.cells])
        packed.chance = share(clean, token)
        return token


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
        law = shaped(logits, mask_id, packed.spec, packed.confirm, packed.heat(rows.slot))
        at, cell = packed.address(rows.slot, rows.position), (rows.slot, rows.position)
        mass = self._token[at.round]
        score, points, numbers = self._score[cell], self._points[cell], self._numbers[cell]
        offers = Offers(at, score, *levels(score, mass), points, numbers)
        token, packed.chance = settle_offers(
            self._lattice, offers, law, mass, mask_id, self._stream
        )
        out = np.flatnonzero(token == mask_id)
        if out.size:
            slot, position = rows.slot[out], rows.position[out]
            self._skip(slot, position, at.output[out], at.round[out] + 1)
        return token

    def _skip(self, slot: Numbers, position: Numbers, output: Numbers, start: Numbers) -> None:
        open_index = self._begin.place[slot, position]
        cell = slot, position
        offers = self._skips.next(self._stream, Address(output, start, open_index))
        self._due[cell], self._score[cell], self._points[cell] = offers
        first = Address(output, offers.round, open_index)
        self._numbers[cell] = point_numbers(self._stream, first, 0)


def _law(packed: Packed, seed: int) -> Law:
    exact = packed.spec.precision == "float64"
    return RevealFirst(packed, seed) if exact else LatticeRace(packed, seed)


fast = packed(_law)
"""The law of `cached` in either precision."""
