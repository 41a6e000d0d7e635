"""The exact law of the float32 draw, and a way to sample it without V random numbers.

The public draw gives every class v a clock D(k) = 1e-10 - log(k / N + 1e-10), k uniform on
{0, ..., N - 1}, N = 2**24, all in float32; the largest weight / clock wins, the lowest index on
ties. The lattice has a smallest clock of about 1 / N, so a class of tiny weight cannot win often:
rare tokens are truncated. That law, ties and mask outcome included, is what this file samples.

How: the mask's own clock gives a score x that a token must beat. Tokens reach x independently with
probability p_v = #{k : w_v / D(k) >= x} / N <= 1 - exp(-(1 + e) w_v / x). So the tokens that reach
x are a thinning of Poisson points of rate (1 + e) W / x, W >= sum of weights, and W is known before
the network runs: where no point falls, the position stays masked and needs no head. A point picks
token v with probability w_v / W and survives with probability p_v over its bound, p_v counted
exactly on the lattice. Among survivors, clocks are uniform on the lattice points that reach x.

Where x is so low that many tokens reach it, a higher threshold is used first: if any token reaches
that, the winner is among those; if none does, clocks are drawn for all classes below it.

`Offers` hold what is drawn of the race before the network is asked.

An `Addressed` draw is one categorical draw between the tokens and the mask, with an address instead
of a state. Tokens have weights p(v) a, the mask has weight b. Where a and b are known before the
network has been asked, `opened` says where it has to be; `draw` settles it there. Asking twice at
one address gives the same answer. There are two laws: exact arithmetic (`ExactDraw`), and the
float32 lattice (`LatticeDraw`).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.denoisers.device import Floats, Numbers, Truths, upload
from strop.records.record import Precision
from strop.rng import RACE_EPSILON, Stream, unit53
from strop.samplers.machinery.categorical import invert, share

# ---------------------------------------------------------------------------------------- lattice

WEIGHT_SLACK = 1e-4  # rounded probabilities may sum to a little more than one
CLOCK_SLACK = 1e-5  # rounded clocks may be a little shorter than exact ones; proven for y <= CAP
CAP = 8.0  # expected points above which the threshold is raised
PAIR = np.array([[0], [1]])


class Address(NamedTuple):
    """Where the random numbers of some draws lie, one entry per draw."""

    output: Numbers
    round: Numbers
    position: Numbers

    def at(self, rows: Any) -> Address:
        """The addresses of some draws."""
        return Address(*(part[rows] for part in self))


@dataclass(frozen=True)
class Offers:
    """Masked positions at one update each, before the network has been asked."""

    where: Address
    mask_score: Singles
    """x: what a token must beat."""
    threshold: Singles
    """The same, or a higher one where many tokens would beat x."""
    raised: Truths
    bound: Floats
    """W: at least the sum of the token weights."""
    points: Numbers
    """Poisson points above the threshold; none means that no token reached it."""
    numbers: Floats | None = None
    """Where they were drawn ahead, those of the first point (see `point_numbers`)."""

    def __getitem__(self, chosen: Any) -> Offers:
        where, *parts = vars(self).values()
        selected: list[Any] = [part if part is None else part[chosen] for part in parts]
        return Offers(where.at(chosen), *selected)

    def __len__(self) -> int:
        return len(self.points)

    @property
    def open(self) -> Truths:
        """Which offers need the network: a point fell, or the threshold was not the last word."""
        return (self.points > 0) | self.raised


def levels(score: Singles, token_mass: Singles) -> tuple[Singles, Truths, Floats]:
    """The threshold of an offer, whether it is raised, and the bound W."""
    bound = token_mass.astype(np.float64) * (1 + WEIGHT_SLACK)
    raised = bound > CAP * score.astype(np.float64)
    return np.where(raised, (bound / CAP).astype(np.float32), score), raised, bound


def poisson(rate: Floats, u: Floats) -> Numbers:
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


def points_of(offers: Offers) -> tuple[Numbers, Numbers]:
    """All points, by row and number."""
    row = np.repeat(np.arange(len(offers)), offers.points)
    return row, np.arange(len(row)) - (np.cumsum(offers.points) - offers.points)[row]


def point_numbers(stream: Stream, where: Address, point: Any) -> Floats:
    """The numbers of points [n, 3]: its token, does it survive, where is its clock."""
    words = stream.words(*where, 1 + 2 * point + PAIR)
    (chosen, survival), clock = unit53(words[0], words[1]), unit53(words[2][1], words[3][1])
    return np.array([chosen, survival, clock]).T


def numbers_of(offers: Offers, row: Numbers, point: Numbers, stream: Stream) -> Floats:
    """The numbers of all points; only those that were not drawn ahead are drawn."""
    if offers.numbers is None:
        return point_numbers(stream, offers.where.at(row), point)
    numbers = offers.numbers[row]
    later = np.flatnonzero(point)
    if later.size:
        numbers[later] = point_numbers(stream, offers.where.at(row[later]), point[later])
    return numbers


BITS = 24
"""Random bits in a float32 number of torch's CPU generator."""

LARGEST_TABLE = 2**17  # entries of a rows-by-classes table
NEAR = 4  # lattice points on either side of where a score is reached in exact arithmetic

Singles = NDArray[np.float32]


class Lattice:
    """The clocks that float32 random numbers can show."""

    def __init__(self, bits: int | None = None) -> None:
        self.bits = BITS if bits is None else bits
        self.size = 1 << self.bits

    def clock(self, k: NDArray[Any]) -> Singles:
        """D(k) by the very float32 operations of the public draw."""
        u = torch.from_numpy(np.array(k, dtype=np.float32)).div_(self.size)
        return u.add_(RACE_EPSILON).log_().neg_().add_(RACE_EPSILON).numpy()

    def first(self, weight: Singles, threshold: Singles, strict: Any = False) -> Numbers:
        """The smallest k whose score weight / D(k) reaches (exceeds) the threshold; N if none.

        Scores do not fall as k grows (a test checks all 2**24 clocks), so it is enough to look at
        the neighbours of N e^(-weight / threshold), and to bisect where rounding took it further.
        """
        if np.any(strict):
            above = np.nextafter(threshold, np.float32(np.inf))
            threshold = np.where(strict, above, threshold)
        near = self.size * np.exp(-weight.astype(np.float64) / np.maximum(threshold, 1e-45))
        low = np.fmin(np.fmax(np.ceil(near), NEAR), self.size + 1.0).astype(np.int64) - NEAR
        k = np.add.outer(np.arange(2 * NEAR), low)
        reached = weight / self.clock(np.minimum(k, self.size - 1)) >= threshold
        reached |= k >= self.size
        smallest = low + reached.argmax(0)
        missed = ~reached[-1] | (reached[0] & (low > 0))
        if missed.any():
            smallest[missed] = self._bisect(weight[missed], threshold[missed])
        return smallest

    def _bisect(self, weight: Singles, threshold: Singles) -> Numbers:
        low = np.zeros(weight.shape, np.int64)
        high = np.full(weight.shape, self.size, np.int64)
        for _ in range(self.bits + 1):
            middle = (low + high) >> 1
            reached = weight / self.clock(np.minimum(middle, self.size - 1)) >= threshold
            undecided = low < high
            high = np.where(undecided & reached, middle, high)
            low = np.where(undecided & ~reached, middle + 1, low)
        return low

    def offer(
        self, stream: Stream, where: Address, token_mass: Singles, mask_weight: Singles
    ) -> Offers:
        """Everything about these draws that does not need the network.

        `token_mass` is the float32 factor t - s of the token probabilities, `mask_weight` is s.
        """
        word, high, low, _ = stream.words(*where, 0)
        k = (word >> np.uint64(32 - self.bits)).astype(np.int64)
        return self.offers(where, k, unit53(high, low), token_mass, mask_weight)

    def offers(
        self, where: Address, k: Numbers, u: Floats, token_mass: Singles, mask_weight: Singles
    ) -> Offers:
        """The same, given the lattice point of the mask's clock and the number for the points."""
        score = mask_weight / self.clock(k)
        threshold, raised, bound = levels(score, token_mass)
        points = poisson((1 + CLOCK_SLACK) * bound / threshold.astype(np.float64), u)
        return Offers(where, score, threshold, raised, bound, points)

    def settle(
        self, offers: Offers, weights: torch.Tensor, mask_id: int, stream: Stream
    ) -> tuple[Numbers, int]:
        """The winner of each open offer, `mask_id` where the mask stays; and how many rows broke
        a bound and were drawn class by class instead.

        `weights` [R, V] are float32 token weights with zero in the mask's column.
        """
        row, point = points_of(offers)
        chosen, survival, clock = numbers_of(offers, row, point, stream).T
        token, weight, total = _fallen(offers, row, point, chosen, weights)
        broken = total > offers.bound
        distinct = _distinct(row, token, weights.shape[1])
        row, token, weight = row[distinct], token[distinct], weight[distinct]
        survival, clock = survival[distinct], clock[distinct]

        threshold, raised = offers.threshold[row], offers.raised[row]
        first = self.first(weight, threshold, strict=(token > mask_id) & ~raised)
        reach = (self.size - first) / self.size
        cover = -np.expm1(
            -(1 + CLOCK_SLACK) * weight.astype(np.float64) / threshold.astype(np.float64)
        )
        broken[row[reach > cover * (1 + 1e-12)]] = True

        survives = survival * cover < reach
        span = self.size - first
        k = first + np.minimum((clock * span).astype(np.int64), span - 1)
        row, token, weight, k = row[survives], token[survives], weight[survives], k[survives]
        winner = _best(len(offers), row, token, weight / self.clock(k), mask_id)

        again = np.flatnonzero(broken | (offers.raised & (winner == mask_id)))
        step = max(1, LARGEST_TABLE // weights.shape[1])
        for start in range(0, len(again), step):
            rows = again[start : start + step]
            # Above a raised threshold nothing was found: every clock lies below it. Where a bound
            # broke, only the mask's own score is known.
            below = offers.raised[rows] & ~broken[rows]
            threshold = np.where(below, offers.threshold[rows], np.float32(np.inf))
            table = weights[upload(rows, weights.device)].cpu().numpy()  # waits
            count = self.first(table, np.broadcast_to(threshold[:, None], table.shape))
            numbers = 2**20 + np.arange(table.shape[1])  # of one clock per class
            u = stream.uniform(*offers.where.at((rows, None)), numbers)
            scores = table / self.clock(np.minimum((u * count).astype(np.int64), count - 1))
            scores[:, mask_id] = offers.mask_score[rows]
            winner[rows] = scores.argmax(-1)
        return winner, int(broken.sum())


def _fallen(
    offers: Offers, row: Numbers, point: Numbers, u: Floats, weights: torch.Tensor
) -> tuple[Numbers, Singles, Floats]:
    """The token that each point falls on (V: none) and its weight; and the sum of each row.

    The device is asked once.
    """
    level = np.zeros((len(offers), int(offers.points.max(initial=0))))
    level[row, point] = u * offers.bound[row]
    cumulative = weights.cumsum(-1, dtype=torch.float64)
    token = torch.searchsorted(cumulative, upload(level, weights.device), right=True)
    weight = weights.gather(1, token.clamp(max=weights.shape[1] - 1))
    columns = [token, weight, cumulative[:, -1:]]  # all in float64
    on_host = torch.cat(columns, 1).cpu().numpy()  # waits
    tokens, heavy = on_host[row, point], on_host[row, point + level.shape[1]]
    return tokens.astype(np.int64), heavy.astype(np.float32), on_host[:, -1]


def _distinct(row: Numbers, token: Numbers, classes: int) -> Numbers:
    """The points that fell on a token, without those where one of the row fell before."""
    fell = np.flatnonzero(token < classes)
    if not (row[1:] == row[:-1]).any():
        return fell
    _, firsts = np.unique(row[fell] * np.int64(classes) + token[fell], return_index=True)
    return fell[firsts]


def _best(rows: int, row: Numbers, token: Numbers, score: Singles, mask_id: int) -> Numbers:
    """Per row the token of the highest score, the lowest index on ties."""
    winner = np.full(rows, mask_id, np.int64)
    order = np.lexsort((-token, score, row))  # the last entry of a row is its winner
    winner[row[order]] = token[order]
    return winner


def exact_law(weights: NDArray[Any], bits: int = BITS) -> Floats:
    """The probability that each class wins the float32 race, by enumerating its lattice.

    Takes O(V N log(V N)) for V classes and N = 2**bits: for small cases, tests and documentation.
    """
    weights = np.asarray(weights, dtype=np.float32)
    lattice = Lattice(bits)
    clocks = lattice.clock(np.arange(lattice.size))
    score, owner, low, high = _levels((weights[:, None] / clocks).astype(np.float32, copy=False))
    # Walk all scores upwards; among equal ones the highest class first, so that when class v is
    # visited, classes above it count ties and classes below it do not. Scores are not negative,
    # so their bits have their order, and one number per score is enough to sort by.
    rank = score.view(np.uint32).astype(np.uint64) << np.uint64(32)
    order = np.argsort(rank | (len(weights) - owner).astype(np.uint64))
    owner, low, high = owner[order], low[order], high[order]
    log_low = np.where(low > 0, np.log(np.maximum(low, 1) / lattice.size), 0.0)
    log_high = np.log(high / lattice.size)
    running = np.cumsum(log_high - log_low) - (log_high - log_low)
    unseen = len(weights) - (np.cumsum(low == 0) - (low == 0))
    alone = unseen - (low == 0) == 0
    won = np.where(alone, (high - low) / lattice.size * np.exp(running - log_low), 0.0)
    return np.bincount(owner, weights=won, minlength=len(weights)).astype(np.float64)


def _levels(scores: Singles) -> tuple[NDArray[Any], ...]:
    """Distinct scores [V, N], their classes, and the lattice points below and up to each.

    Scores do not fall along the lattice, so equal ones are neighbours.
    """
    new = np.ones(scores.shape, bool)
    new[:, 1:] = scores[:, 1:] != scores[:, :-1]
    owner, first = np.nonzero(new)
    after = np.append(first[1:], 0)
    return scores[new], owner, first, np.where(after > 0, after, scores.shape[1])


def first_order(probs: NDArray[Any], t: float, s: float, bits: int = BITS) -> Floats:
    """Probability of being revealed as each token in the update from t to s, to first order.

    A token of weight q = p (t - s) against the rest, t - q, wins with q / t * r / (e^r - 1),
    r = (t - q) / q / 2**bits: its clock cannot fall below one lattice step. To first order the
    others are not truncated themselves.
    """
    q = np.asarray(probs, dtype=np.float64) * (t - s)
    safe = np.where(q > 0, q, 1.0)
    r = np.minimum((t - q) / safe / 2.0**bits, 700.0)  # beyond that the factor is zero anyway
    factor = np.where(r > 0, r / np.expm1(np.where(r > 0, r, 1.0)), 1.0)
    return np.where(q > 0, q / t * factor, 0.0)


def with_warning(tokens: Numbers, broken: int) -> Numbers:
    """What `settle` drew; warns about draws that broke a bound."""
    if broken:
        warnings.warn(
            f"{broken} draws broke a bound of the fast float32 law (probabilities that sum to "
            "more than 1.0001) and were made class by class; implementation='dense' avoids it",
            stacklevel=3,
        )
    return tokens


# -------------------------------------------------------------------------------------- addressed


class Weights(NamedTuple):
    """The weights a and b, one entry per draw (or, as a table to choose from, per round)."""

    token: Floats
    mask: Floats

    def at(self, rows: Any) -> Weights:
        """The weights of some draws."""
        return Weights(self.token[rows], self.mask[rows])

    @classmethod
    def certain(cls, draws: int) -> Weights:
        """All weight for the tokens, none for the mask."""
        return cls(np.ones(draws), np.zeros(draws))


class Addressed(Protocol):
    """Categorical draws whose random numbers have addresses."""

    def opened(self, where: Address, weights: Weights) -> Truths:
        """Where a token may come out; elsewhere the mask stays, whatever the network says."""
        ...

    def draw(
        self, law: Tensor, where: Address, weights: Weights, mask_id: int
    ) -> tuple[Numbers, Tensor]:
        """The outcome at opened addresses, given log p [R, V], which is overwritten.

        And p of each token, still on the device; anything where the mask stays.
        """
        ...

    def loses(self, where: Address, chance: Floats) -> Truths:
        """Where the mask, of weight `chance`, wins against one token of weight 1 - chance."""
        ...


class ExactDraw:
    """Exact arithmetic: a coin for the round, then one number for the token.

    With `partial`, p may sum to less than one. The first coin is then thrown with an upper bound
    of its chance, before the network is asked, and a second coin corrects it.
    """

    def __init__(self, stream: Stream, *, partial: bool = False) -> None:
        self._stream, self._partial = stream, partial

    def opened(self, where: Address, weights: Weights) -> Truths:
        """Where a token comes out, if p sums to one."""
        hazard = weights.token / (weights.token + weights.mask)
        return self._stream.uniform(*where, 0) < hazard

    def draw(
        self, law: Tensor, where: Address, weights: Weights, mask_id: int
    ) -> tuple[Numbers, Tensor]:
        """A token everywhere, but for what the second coin refuses."""
        if not self._partial:
            token, chance = self.tokens(law, where)
            return token.cpu().numpy(), chance  # waits
        law[..., mask_id] = -torch.inf
        total = law.exp().sum(-1, dtype=torch.float64).clamp_(max=1.0)
        coin, u = (self._stream.uniform(*where, number) for number in (1, 2))
        token, mask, coin, u = upload(np.stack([*weights, coin, u]), law.device)
        total_mass = token * total + mask
        accept = total * (token + mask) / torch.where(total_mass > 0, total_mass, 1.0)
        token = invert(law, u)
        tokens = torch.where(coin < accept, token, mask_id).cpu().numpy()  # waits
        return tokens, share(law, token)

    def tokens(self, law: Tensor, where: Address) -> tuple[Tensor, Tensor]:
        """Tokens of a law that sums to one and the probability of each, still on the device."""
        token = invert(law, upload(self._stream.uniform(*where, 1), law.device))
        return token, share(law, token)

    def loses(self, where: Address, chance: Floats) -> Truths:
        """A coin."""
        return self._stream.uniform(*where, 2) < chance


class LatticeDraw:
    """The law of the float32 race (see `lattice`)."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._lattice = stream, Lattice()

    def opened(self, where: Address, weights: Weights) -> Truths:
        """Where the mask's own clock left an offer open."""
        return self._offers(where, weights).open

    def draw(
        self, law: Tensor, where: Address, weights: Weights, mask_id: int
    ) -> tuple[Numbers, Tensor]:
        """Settle the open offers; a refused one leaves the mask."""
        offers = self._offers(where, weights)
        return settle_offers(self._lattice, offers, law, weights.token, mask_id, self._stream)

    def loses(self, where: Address, chance: Floats) -> Truths:
        """Two clocks of the lattice against each other.

        A tie goes to the token, as in the race wherever the mask is the last class.
        """
        first, second, _, _ = self._stream.words(*where, 2**31)
        shift = np.uint64(32 - self._lattice.bits)
        token = (1 - chance).astype(np.float32) / self._lattice.clock(first >> shift)
        return chance.astype(np.float32) / self._lattice.clock(second >> shift) > token

    def _offers(self, where: Address, weights: Weights) -> Offers:
        token, mask = (part.astype(np.float32) for part in weights)
        return self._lattice.offer(self._stream, where, token, mask)


def settle_offers(
    lattice: Lattice,
    offers: Offers,
    law: Tensor,
    token_mass: NDArray[Any],
    mask_id: int,
    stream: Stream,
) -> tuple[Numbers, Tensor]:
    """The outcomes of open offers, given log p [R, V], which is overwritten, and the weights a.

    And p of each token: the law that the race is given, not the sharper one that it has.
    """
    if mask_id < law.shape[-1]:
        law[..., mask_id] = -torch.inf
    mass = upload(token_mass.astype(np.float32), law.device)
    scaled = law.float().exp_().mul_(mass[:, None])
    token = with_warning(*lattice.settle(offers, scaled, mask_id, stream))
    return token, share(scaled, upload(token, law.device))


def addressed(precision: Precision, stream: Stream, *, partial: bool = False) -> Addressed:
    """The draws of a precision."""
    return ExactDraw(stream, partial=partial) if precision == "float64" else LatticeDraw(stream)
