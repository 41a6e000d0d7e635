"""The skip to the next open offer: the law of offers made round by round, on the lattice.

Power: 100,000 skips over some 200 outcomes detect a total variation of .02 at a level of 1e-3 with
probability above .99. The control, a skip with an exponential clock for the mask, is such a law
on 5 bits, and in 40,000 outputs of the sampler on 4. Seeds are fixed.
"""

from __future__ import annotations

import laws
import numpy as np
import pytest
from laws import chi_square, counts, lattice_outcome, output_law
from test_output_laws import target

from strop import SamplerSpec, TabularDenoiser
from strop.rng import Stream
from strop.samplers import ancestral
from strop.samplers.ancestral import OpenOffers, Skips
from strop.samplers.machinery.lattice import (
    CAP,
    CLOCK_SLACK,
    WEIGHT_SLACK,
    Address,
    Lattice,
    Offers,
    levels,
)
from strop.samplers.machinery.start import reveal_grid

PASS, FAIL = 1e-3, 1e-9
BITS, N = 5, 100_000
TOKEN = np.array([0.1, 0.2, 0.0, 0.3, 0.35, 0.04, 1.0], np.float32)
MASK = np.array([0.9, 0.7, 0.7, 0.4, 0.05, 0.01, 0.0], np.float32)
"""Seven rounds: few offers, an empty round, many, thresholds that are raised, a sure finish."""


class Exponential(Skips):
    """The control: the mask's clock is taken for an exponential one, as long as it is skipped."""

    def next(self, stream, start):  # noqa: ARG002
        rng = np.random.default_rng(int(start.output.sum()) + 7 * int(start.round.sum()))
        rate, rounds = self._rate, len(self._rate)
        finite = np.where(np.isinf(rate), 1e12, rate)
        hazard = np.append(0.0, np.cumsum(np.log1p(finite)))  # open with R / (1 + R)
        reached = hazard[start.round] + rng.exponential(size=len(start.round))
        found = np.searchsorted(hazard[1:], reached, side="right")
        at = finite[np.minimum(found, rounds - 1)]
        # Given that it is open the clock has the density e^-D (1 - e^-RD): the sum of two.
        clock = rng.exponential(size=len(at)) + rng.exponential(size=len(at)) / (1 + at)
        size = self._lattice.size
        k = np.minimum((np.exp(-clock) * size).astype(np.int64), size - 1)
        u = 1 - rng.random(len(at)) * -np.expm1(-at * clock)
        on = np.minimum(found, rounds - 1)
        offers = self._lattice.offers(start, k, u, self._token[on], self._mask[on])
        return OpenOffers(found, offers.mask_score, offers.points)


def opened(bits: int) -> np.ndarray:
    """The probability that an offer is open, by round and lattice point."""
    with np.errstate(divide="ignore", invalid="ignore"):
        score = MASK[:, None] / Lattice(bits).clock(np.arange(1 << bits))
        rate = (1 + CLOCK_SLACK) * (1 + WEIGHT_SLACK) * TOKEN.astype(float)[:, None] / score
    return np.where(rate > CAP * (1 + CLOCK_SLACK), 1.0, -np.expm1(-np.nan_to_num(rate)))


def first_law(bits: int) -> np.ndarray:
    """The joint law of the first open offer's round and lattice point.

    In the last round the mask has no weight and its clock cannot be seen: all count as the first.
    """
    chance = opened(bits) / (1 << bits)
    none = 1 - chance.sum(1)
    law = chance * np.append(1.0, np.cumprod(none)[:-1])[:, None]
    law[-1] = np.append(law[-1].sum(), np.zeros((1 << bits) - 1))
    return law


def skipped(kind: type[Skips], bits: int, seed: int) -> OpenOffers:
    zero = np.zeros(N, np.int64)
    skips = kind(Lattice(bits), TOKEN, MASK)
    return skips.next(Stream(seed, "skips"), Address(np.arange(N), zero, zero))


def table(found: OpenOffers, bits: int) -> np.ndarray:
    """How often each round and lattice point came out; scores tell the points apart."""
    scores = MASK[:, None] / Lattice(bits).clock(np.arange(1 << bits))
    assert (np.diff(scores[:-1]) > 0).all()
    rows = [
        np.searchsorted(scores[n], found.mask_score[found.round == n]) for n in range(len(MASK))
    ]
    return np.stack([np.bincount(k, minlength=1 << bits) for k in rows]).astype(float)


@pytest.mark.parametrize("bits", [4, 5, 8])
def test_first_open_offer(bits):
    assert chi_square(table(skipped(Skips, bits, seed=bits), bits), first_law(bits)) > PASS


def test_offers_made_round_by_round_have_the_same_law():
    """The test's own control: the enumeration is that of `Lattice.offer`."""
    lattice, stream = Lattice(BITS), Stream(3, "one by one")
    found, going = [], np.arange(N)
    for n in range(len(MASK)):
        full = np.ones(len(going), np.int64)
        where = Address(going, n * full, 0 * full)
        offers = lattice.offer(
            stream, where, TOKEN[n] * full.astype("f4"), MASK[n] * full.astype("f4")
        )
        one = offers[offers.open]
        found.append(OpenOffers(one.where.round, one.mask_score, one.points))
        going = going[~offers.open]
    assert not len(going)
    together = OpenOffers(*(np.concatenate(part) for part in zip(*found, strict=True)))
    assert chi_square(table(together, BITS), first_law(BITS)) > PASS


def test_an_exponential_clock_is_noticed():
    """By the lattice points, and by the rounds alone, which is what a skip is for."""
    law = first_law(BITS)
    wrong, right = (table(skipped(kind, BITS, seed=0), BITS) for kind in (Exponential, Skips))
    assert chi_square(wrong, law + 1e-12) < FAIL
    assert chi_square(wrong.sum(1), law.sum(1) + 1e-12) < FAIL
    assert chi_square(right.sum(1), law.sum(1)) > PASS


def test_points_of_the_first_open_offer():
    """Poisson points of the offer's rate, at least one; or those of a raised threshold."""
    rounds, score, points = skipped(Skips, BITS, seed=9)
    zero = np.zeros(N, np.int64)
    offers = Offers(Address(zero, rounds, zero), score, *levels(score, TOKEN[rounds]), points)
    assert offers.open.all()
    plain = ~offers.raised
    rate = (1 + CLOCK_SLACK) * offers.bound[plain] / offers.threshold[plain].astype(float)
    one = rate * np.exp(-rate) / -np.expm1(-rate)
    seen = (points[plain] == 1).sum()
    assert abs(seen - one.sum()) < 4 * np.sqrt((one * (1 - one)).sum())
    raised = points[offers.raised]
    assert abs(raised.mean() - CAP) < 4 * np.sqrt(CAP / len(raised))


def test_a_skip_goes_on_from_where_it_is():
    """From round 3 on the law is that of the rounds from there."""
    zero = np.zeros(N, np.int64)
    skips = Skips(Lattice(BITS), TOKEN, MASK)
    found = skips.next(Stream(5, "on"), Address(np.arange(N), zero + 3, zero))
    law = first_law(BITS)
    law[:3] = 0
    assert chi_square(table(found, BITS), law / law.sum()) > PASS
    found = skips.next(Stream(5, "on"), Address(zero[:9], zero[:9] + len(MASK), zero[:9]))
    assert (found.round == len(MASK)).all()


@pytest.mark.parametrize("bits", [6, 12, 24])
def test_every_open_offer_is_a_candidate(bits):
    """Over random weights of a token and the mask, at the stretches' first points and others."""
    rng = np.random.default_rng(bits)
    token, mask = np.exp(rng.uniform(-12, 0, (2, 300))).astype(np.float32)
    lattice = Lattice(bits)
    skips = Skips(lattice, token, mask)
    first = np.arange(skips._stretches) << skips._shift
    within = first + rng.integers(0, 1 << skips._shift, len(first))
    for k in (first, within):
        score = (mask[:, None] / lattice.clock(k)).astype(float)
        bound = token.astype(float)[:, None] * (1 + WEIGHT_SLACK)
        rate = (1 + CLOCK_SLACK) * bound / score
        chance = np.where(bound > CAP * score, 1.0, -np.expm1(-rate))
        cover = np.minimum(skips._rate[:, None] * skips._longest, 1.0)
        assert (chance <= cover).all()
        assert cover.mean(1) == pytest.approx(skips.chance, rel=1e-12)


def output_p(skips: type[Skips], monkeypatch, bits: int) -> float:
    """p-value of the sampler's outputs with this skip against the enumerated law."""
    law = target(3, 2, seed=1)
    spec = SamplerSpec(steps=12, precision="float32")
    grid = reveal_grid(spec)
    t, s = (np.append(x.numpy(), np.float32(y)) for x, y in ((grid.t, 1), (grid.s, 0)))
    monkeypatch.setattr(ancestral, "Skips", skips)
    ids = laws.draw(TabularDenoiser(law), spec, seed=6, n=40_000, bits=bits)
    expected = output_law(law, grid.updates, lattice_outcome(t, s, bits), finish=spec.finish)
    return chi_square(counts(ids, 3), expected)


def test_outputs_show_which_clock_was_skipped_with(monkeypatch):
    assert output_p(Skips, monkeypatch, bits=4) > PASS
    assert output_p(Exponential, monkeypatch, bits=4) < FAIL
