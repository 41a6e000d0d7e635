"""Offers of the float32 race: what is drawn of it before the network is asked (see `lattice`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.rng import Stream, unit53

WEIGHT_SLACK = 1e-4  # rounded probabilities may sum to a little more than one
CLOCK_SLACK = 1e-5  # rounded clocks may be a little shorter than exact ones; proven for y <= CAP
CAP = 8.0  # expected points above which the threshold is raised
PAIR = np.array([[0], [1]])

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Offers:
    """Masked positions at one update each, before the network has been asked."""

    output: NDArray[np.int64]
    round: NDArray[np.int64]
    position: NDArray[np.int64]
    mask_score: Floats
    """x: what a token must beat."""
    threshold: Floats
    """The same, or a higher one where many tokens would beat x."""
    raised: NDArray[np.bool_]
    bound: NDArray[np.float64]
    """W: at least the sum of the token weights."""
    points: NDArray[np.int64]
    """Poisson points above the threshold; none means that no token reached it."""
    numbers: NDArray[np.float64] | None = None
    """Where they were drawn ahead, those of the first point (see `point_numbers`)."""

    def __getitem__(self, chosen: Any) -> Offers:
        def some(part: Any) -> Any:
            return part if part is None else part[chosen]

        return Offers(*(some(getattr(self, name)) for name in self.__dataclass_fields__))

    def __len__(self) -> int:
        return len(self.output)

    @classmethod
    def known(
        cls,
        output: NDArray[np.int64],
        round_: NDArray[np.int64],
        position: NDArray[np.int64],
        mask_score: Floats,
        points: NDArray[np.int64],
        token_mass: Floats,
        numbers: NDArray[np.float64] | None = None,
    ) -> Offers:
        """Offers whose random part has been drawn before."""
        found = levels(mask_score, token_mass)
        return cls(output, round_, position, mask_score, *found, points, numbers)

    @property
    def open(self) -> NDArray[np.bool_]:
        """Which offers need the network: a point fell, or the threshold was not the last word."""
        return (self.points > 0) | self.raised


def levels(score: Floats, token_mass: Floats) -> tuple[Floats, NDArray[Any], NDArray[Any]]:
    """The threshold of an offer, whether it is raised, and the bound W."""
    bound = token_mass.astype(np.float64) * (1 + WEIGHT_SLACK)
    raised = bound > CAP * score.astype(np.float64)
    return np.where(raised, (bound / CAP).astype(np.float32), score), raised, bound


def poisson(rate: NDArray[np.float64], u: NDArray[np.float64]) -> NDArray[np.int64]:
    """Poisson counts by inversion; most are zero and cost one comparison."""
    count = np.zeros(rate.shape, np.int64)
    left = np.flatnonzero(u >= np.exp(-rate))
    term = np.exp(-rate[left])
    cumulative = term.copy()
    n = 0
    while len(left):
        n += 1
        count[left] = n
        term = term * rate[left] / n
        cumulative = cumulative + term
        # The second condition ends the sum where u exceeds what float64 can add up to.
        going = (u[left] >= cumulative) & (term > 1e-300)
        left, term, cumulative = left[going], term[going], cumulative[going]
    return count


def points_of(offers: Offers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All points, by row and number."""
    row = np.repeat(np.arange(len(offers)), offers.points)
    return row, np.arange(len(row)) - (np.cumsum(offers.points) - offers.points)[row]


def point_numbers(
    stream: Stream,
    output: NDArray[np.int64],
    round_: NDArray[np.int64],
    position: NDArray[np.int64],
    point: Any,
) -> NDArray[np.float64]:
    """The numbers of points [n, 3]: its token, does it survive, where is its clock."""
    words = stream.words(output, round_, position, 1 + 2 * point + PAIR)
    (chosen, survival), clock = unit53(words[0], words[1]), unit53(words[2][1], words[3][1])
    return np.array([chosen, survival, clock]).T


def numbers_of(
    offers: Offers, row: NDArray[np.int64], point: NDArray[np.int64], stream: Stream
) -> NDArray[np.float64]:
    """Those of all points; only what was not drawn ahead is drawn."""
    if offers.numbers is None:
        there = offers.output[row], offers.round[row], offers.position[row]
        return point_numbers(stream, *there, point)
    found = offers.numbers[row]
    later = np.flatnonzero(point)
    if later.size:
        more = row[later]
        there = offers.output[more], offers.round[more], offers.position[more]
        found[later] = point_numbers(stream, *there, point[later])
    return found
