"""From one open offer of a position to its next, without a number for every round between.

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
from numpy.typing import NDArray

from strop.rng import Stream, unit53
from strop.samplers.machinery.addressed import Address
from strop.samplers.machinery.lattice import CLOCK_SLACK, WEIGHT_SLACK, Lattice

STRETCH_BITS = 10
SKIP = 2**31 + 1  # the address of a skip's numbers among those of a round
ROUNDING = 1 + 1e-6  # scores are rounded to float32, rates are not
CERTAIN = 64.0  # -log of less than any number drawn can be: its round is not skipped
SMALLEST = 1e-30  # a mask weight below it has no room for `ROUNDING`

Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]


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
        rest = self._sums[-1] - self._sums[self._surely]
        rest = np.multiply(rest, self._rate, where=rest > 0, out=np.zeros_like(rest))
        self.chance = np.minimum(self._base + rest, 1.0)
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
            found = self._candidate(at.round, unit53(high, low))
            more = np.flatnonzero(found < len(self.chance))
            going, found = going[more], found[more]
            at = Address(at.output[more], found, at.position[more])
            k, u = self._offered(stream, at, unit53(high2[more], low2[more]))
            offers = self._lattice.offers(*at, k, u, self._token[found], self._mask[found])
            opened = offers.open
            done = going[opened]
            rounds[done], points[done] = found[opened], offers.points[opened]
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
