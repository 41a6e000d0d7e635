"""The exact float32 law: clocks, enumeration, and the fast draw against both and brute force.

Seeds are fixed. Power: 100,000 draws over 50 outcomes detect a total variation of .015 at a level
of 1e-3 with probability .997 (.57 for .01). The negative controls (other ties, float64) are far
larger and fail by many orders of magnitude.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from laws import chi_square
from scipy import stats

from strop.rng import Stream
from strop.samplers.machinery import lattice as lattice_module
from strop.samplers.machinery.categorical import race
from strop.samplers.machinery.lattice import Address, Lattice, Offers, exact_law, first_order

PASS, FAIL = 1e-3, 1e-9
STEPS = [(0.5, 0.4), (0.5, 0.5 - 1 / 64), (0.9, 0.9 - 1 / 256), (0.05, 0.001), (0.3, 0.0)]


def zipf(tokens: int, exponent: float = 1.1) -> np.ndarray:
    law = 1 / (np.arange(1, tokens + 1) + 2.0) ** exponent
    return np.random.default_rng(5).permutation(law / law.sum())


def weights_of(law: np.ndarray, t: float, s: float, mask_id: int) -> np.ndarray:
    mass = np.float32(t) - np.float32(s)
    return np.insert(law.astype(np.float32) * mass, mask_id, np.float32(s))


def fast_counts(
    weights: np.ndarray, mask_id: int, mass: np.float32, bits: int, n: int, seed: int
) -> np.ndarray:
    """Winners of n fast draws against one row of weights."""
    lattice, stream = Lattice(bits), Stream(seed, "test")
    tokens = torch.from_numpy(weights.copy())
    tokens[mask_id] = 0
    count = np.zeros(len(weights))
    block = 50_000
    for start in range(0, n, block):
        size = min(block, n - start)
        offers = lattice.offer(
            stream,
            Address(np.arange(start, start + size), np.full(size, 2), np.full(size, 9)),
            np.full(size, mass),
            np.full(size, weights[mask_id]),
        )
        waiting = offers[offers.open]
        count[mask_id] += size - len(waiting)
        step = max(1, 2**24 // len(weights))
        for first in range(0, len(waiting), step):
            some = waiting[np.arange(first, min(first + step, len(waiting)))]
            winner, broken = lattice.settle(some, tokens.expand(len(some), -1), mask_id, stream)
            assert broken == 0
            count += np.bincount(winner, minlength=len(weights))
    return count


def brute_counts(weights: np.ndarray, bits: int, n: int, seed: int) -> np.ndarray:
    """The public draw itself, on a lattice of `bits` bits."""
    generator = torch.Generator().manual_seed(seed)
    row = torch.from_numpy(weights)
    count = np.zeros(len(weights))
    block = max(1, 2**22 // len(weights))
    for start in range(0, n, block):
        shape = (min(block, n - start), len(weights))
        u = torch.rand(shape, generator=generator)
        u = (u * 2**bits).floor() / 2**bits
        count += np.bincount(race(row, u).numpy(), minlength=len(weights))
    return count


def test_scores_never_fall_along_the_lattice():
    """What the bisection and the domination rest on, over all 2**24 clocks."""
    clocks = Lattice().clock(np.arange(2**24))
    assert (np.diff(clocks) <= 0).all()
    assert clocks.min() > 0


def test_clock_is_that_of_the_public_draw():
    u = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    k = (u.double() * 2**24).long().numpy()
    assert (k / 2**24 == u.numpy()).all(), "torch's float32 numbers are 24-bit"
    assert (Lattice().clock(k) == (1e-10 - (u + 1e-10).log()).numpy()).all()


@pytest.mark.parametrize("bits", [4, 8, 12])
def test_enumeration_of_a_known_case(bits):
    """One token as heavy as the mask wins half the time, and all ties."""
    law = exact_law(np.array([0.25, 0.25]), bits)
    assert law[0] - 0.5 == pytest.approx(2.0 ** -(bits + 1), rel=1e-9)
    assert law.sum() == pytest.approx(1, abs=1e-9)


def test_enumeration_against_all_pairs_of_clocks():
    """Four classes on a 3-bit lattice: all 4,096 outcomes, played out."""
    weights = np.array([0.1, 0.25, 0.25, 0.4], np.float32)
    grid = np.stack(np.meshgrid(*[np.arange(8)] * 4, indexing="ij"), -1).reshape(-1, 4)
    winner = (weights / Lattice(3).clock(grid)).argmax(-1)
    assert exact_law(weights, 3) == pytest.approx(
        np.bincount(winner, minlength=4) / 4096, abs=1e-12
    )


PLACES = {8: 0, 10: 49, 12: 20}
"""The mask's place that `make test` has with each lattice; the slow tests have the others."""


@pytest.mark.parametrize(
    ("bits", "mask_id"),
    [
        pytest.param(bits, mask_id, marks=[] if mask_id == here else pytest.mark.slow)
        for bits, here in PLACES.items()
        for mask_id in (49, 20, 0)
    ],
)
def test_fast_draw_against_enumeration(bits, mask_id):
    for number, (t, s) in enumerate(STEPS):
        weights = weights_of(zipf(49), t, s, mask_id)
        law = exact_law(weights, bits)
        mass = np.float32(t) - np.float32(s)
        count = fast_counts(weights, mask_id, mass, bits, 100_000, seed=100 * bits + number)
        assert chi_square(count, np.where(law < 1e-15, 0, law)) > PASS, (t, s)


@pytest.mark.parametrize("bits", [8, 12])
def test_brute_force_against_enumeration(bits):
    for number, (t, s) in enumerate(STEPS):
        weights = weights_of(zipf(49), t, s, 49)
        law = exact_law(weights, bits)
        count = brute_counts(weights, bits, 60_000, seed=number)
        assert chi_square(count, np.where(law < 1e-15, 0, law)) > PASS, (t, s)


@pytest.mark.parametrize("bits", [8, pytest.param(10, marks=pytest.mark.slow), 12])
def test_two_thousand_tokens(bits):
    """Against the enumerated law, and against the public draw (two samples)."""
    t, s = 0.5, 0.5 - 1 / 16
    weights = weights_of(zipf(1999), t, s, 1999)
    law = exact_law(weights, bits)
    mass = np.float32(t) - np.float32(s)
    count = fast_counts(weights, 1999, mass, bits, 100_000, seed=bits)
    assert chi_square(count, np.where(law < 1e-15, 0, law)) > PASS
    other = brute_counts(weights, bits, 20_000, seed=bits)
    order = np.argsort(-law)
    edges = np.unique(np.searchsorted(np.cumsum(law[order]), np.linspace(0.02, 0.98, 25)))
    table = np.stack([np.add.reduceat(c[order], np.append(0, edges)) for c in (count, other)])
    assert stats.chi2_contingency(table[:, table.sum(0) > 10]).pvalue > PASS


FOUND = {0.2: 1, 2e-3: 150, 2e-5: 20_000, 4e-6: 25_000}
"""Fifty thousand tokens in four classes of equal ones; the last two are truncated at M = 1,024."""


def spread(classes: dict[float, int]) -> tuple[np.ndarray, np.ndarray]:
    """The law over all tokens, and each token's class (the mask, last, is a class of its own)."""
    law = np.repeat(list(classes), list(classes.values()))
    group = np.repeat(np.arange(len(classes)), list(classes.values()))
    return law / law.sum(), np.append(group, len(classes))


def classwise_brute(classes: dict[float, int], t: float, s: float, n: int, seed: int) -> np.ndarray:
    """Brute force with all 24 bits, one number per class: the largest of m uniform lattice points
    is at most j with probability ((j + 1) / N)^m, so it can be drawn directly.
    """
    rng, lattice = np.random.default_rng(seed), Lattice()
    total = sum(p * m for p, m in classes.items())
    mass = np.float32(t) - np.float32(s)
    scores = []
    for p, m in classes.items():
        largest = np.ceil(lattice.size * rng.random(n) ** (1 / m)) - 1
        scores.append(np.float32(p / total) * mass / lattice.clock(np.maximum(largest, 0)))
    scores.append(np.float32(s) / lattice.clock(rng.integers(0, lattice.size, n)))
    return np.bincount(np.stack(scores).argmax(0), minlength=len(classes) + 1)


def test_fifty_thousand_tokens_reveal_rate_and_rare_tokens():
    """24 bits, M = 1,024, half of the positions hidden: reveal rate and rare tokens.

    Power: among 1.5 million offers about 1,960 reveal; in float64 it would be 2,930, half of
    them rare tokens, which float32 truncates.
    """
    t, s = 0.5, 0.5 - (1 - 1e-5) / 1024
    law, group = spread(FOUND)
    mask_id, n = len(law), 1_500_000
    weights = weights_of(law, t, s, mask_id)
    count = fast_counts(weights, mask_id, np.float32(t) - np.float32(s), 24, n, seed=24)
    ours = np.bincount(group, weights=count)
    brute = classwise_brute(FOUND, t, s, 4 * n, seed=25)
    assert stats.chi2_contingency(np.stack([ours, brute])).pvalue > PASS
    # The closed form gives the same shares; plain ones, as float64 has them, are far off.
    told = np.bincount(group[:-1], weights=first_order(law, t, s))
    assert chi_square(ours, np.append(told, 1 - told.sum())) > PASS
    plain = np.bincount(group[:-1], weights=law) * (t - s) / t
    assert chi_square(ours, np.append(plain, 1 - plain.sum())) < FAIL
    assert ours[3] < 0.2 * plain[3] * n


def test_classwise_brute_force_is_brute_force():
    classes = {0.5: 1, 0.05: 8, 0.002: 50}
    law, group = spread(classes)
    weights = weights_of(law, 0.5, 0.4, len(law))
    literal = np.bincount(group, weights=brute_counts(weights, 24, 40_000, seed=1))
    ours = classwise_brute(classes, 0.5, 0.4, 40_000, seed=2)
    assert stats.chi2_contingency(np.stack([ours, literal])).pvalue > PASS


def test_fifty_thousand_tokens_against_literal_brute_force():
    """Given a mask score that few tokens reach, the winner among 50,000 clocks of 24 bits.

    Power: of 4,000 draws about 190 reveal, and float64 would show some 10 of the rare tokens (none
    with probability e^-10), which have no lattice point that reaches this score.
    """
    classes = {0.34: 1, 4e-3: 150, 1e-6: 50_000}
    law, group = spread(classes)
    mask_id = len(law)
    mass = np.float32((1 - 1e-5) / 1024)
    x = np.float32(mass / 0.05)
    row = torch.from_numpy(law.astype(np.float32) * mass)
    n, block = 4_000, 80

    generator = torch.Generator().manual_seed(1)
    brute = np.zeros(len(classes) + 1)
    for _ in range(0, n, block):
        u = torch.rand((block, mask_id), generator=generator)
        score, token = (row / (1e-10 - (u + 1e-10).log())).max(-1)
        winner = np.where(score.numpy() >= x, token.numpy(), mask_id)
        brute += np.bincount(group[winner], minlength=len(brute))

    offers = at_score(x, mass, 5 * n)
    waiting = offers[offers.points > 0]
    winner, broken = Lattice().settle(
        waiting, torch.cat([row, torch.zeros(1)]).expand(len(waiting), -1), mask_id, Stream(3, "t")
    )
    assert broken == 0
    ours = np.bincount(group[winner], minlength=len(classes) + 1).astype(float)
    ours[-1] += 5 * n - len(waiting)
    assert brute[2] == ours[2] == 0
    kept = [0, 1, 3]
    assert stats.chi2_contingency(np.stack([ours, brute])[:, kept]).pvalue > PASS
    plain = np.bincount(group[:-1], weights=law) * (1 - np.exp(-0.05))
    assert plain[2] * n > 8


def at_score(x: np.float32, mass: np.float32, n: int) -> Offers:
    """Offers whose mask score is x, with Poisson points of the rate that x asks for."""
    bound = np.full(n, float(mass) * (1 + lattice_module.WEIGHT_SLACK))
    rate = (1 + lattice_module.CLOCK_SLACK) * bound / np.float64(x)
    zero, full = np.zeros(n, np.int64), np.full(n, x)
    points = np.random.default_rng(8).poisson(rate)
    return Offers(Address(np.arange(n), zero, zero), full, full, np.zeros(n, bool), bound, points)


@pytest.mark.parametrize("bits", [8, 12])
def test_draws_in_float64_are_noticed(bits):
    t, s = 0.9, 0.9 - 1 / 256
    law = zipf(49)
    weights = weights_of(law, t, s, 49)
    plain = np.append(law * (t - s) / t, s / t)
    count = np.random.default_rng(0).multinomial(100_000, plain).astype(float)
    coarse = exact_law(weights, bits)
    assert chi_square(count, coarse + 1e-9) < FAIL


@pytest.mark.parametrize("mask_id", [0, 8])
def test_ties_go_to_the_lowest_index(mask_id):
    """Equal weights tie often on a coarse lattice; the mask is a class among others."""
    weights = np.full(9, np.float32(0.125))
    law = exact_law(weights, 4)
    count = fast_counts(weights, mask_id, np.float32(1.0), 4, 100_000, seed=mask_id)
    assert chi_square(count, law) > PASS
    assert chi_square(count, law[::-1].copy()) < FAIL, "ties the other way round"


def test_a_broken_bound_is_counted_and_drawn_class_by_class():
    weights = torch.tensor([[0.3, 0.4, 0.0]])
    lattice, stream = Lattice(), Stream(0, "broken")
    n = 2_000
    offers = lattice.offer(
        stream,
        Address(np.arange(n), np.zeros(n, np.int64), np.zeros(n, np.int64)),
        np.full(n, np.float32(0.5)),  # claims less than the weights' sum
        np.full(n, np.float32(0.5)),
    )
    waiting = offers[offers.open]
    winner, broken = lattice.settle(waiting, weights.expand(len(waiting), -1), 2, stream)
    assert broken == len(waiting)
    assert set(np.unique(winner)) <= {0, 1, 2}


def test_what_is_drawn_class_by_class_does_not_depend_on_the_other_rows():
    lattice, stream, n = Lattice(), Stream(0, "alone"), 400
    rng = np.random.default_rng(0)
    where = Address(np.arange(n), np.zeros(n, np.int64), np.arange(n) % 5)
    mask_weight = rng.uniform(0.001, 0.5, n).astype(np.float32)  # thresholds raised, and not
    token_mass = rng.uniform(0.1, 0.9, n).astype(np.float32)
    offers = lattice.offer(stream, where, token_mass, mask_weight)
    waiting = offers[offers.open]
    claimed = token_mass[offers.open, None] * rng.choice([0.05, 1.2], (len(waiting), 1))
    tokens = claimed * rng.dirichlet(np.ones(6), len(waiting))
    tokens[:, 2] = 0  # the mask's own column
    weights = torch.from_numpy(tokens.astype(np.float32))
    winner, broken = lattice.settle(waiting, weights, 2, stream)
    assert 0 < broken < len(waiting)
    for rows in np.array_split(rng.permutation(len(waiting)), 7):
        assert (lattice.settle(waiting[rows], weights[rows], 2, stream)[0] == winner[rows]).all()


@pytest.mark.parametrize("bits", [8, 16, 24])
def test_bounds_hold_over_a_wide_range(bits):
    """The domination that the thinning needs, for random weights and thresholds."""
    rng = np.random.default_rng(bits)
    x = np.exp(rng.uniform(-12, 3, 20_000)).astype(np.float32)
    y = np.exp(rng.uniform(-18, np.log(lattice_module.CAP), 20_000))
    weight = (x * y).astype(np.float32)
    lattice = Lattice(bits)
    first = lattice.first(weight, x)
    reach = (lattice.size - first) / lattice.size
    cover = -np.expm1(-(1 + lattice_module.CLOCK_SLACK) * weight.astype(float) / x.astype(float))
    assert (reach <= cover * (1 + 1e-12)).all()
    # The bisection found the very first lattice point.
    inside = first < lattice.size
    at = weight[inside] / lattice.clock(first[inside])
    assert (at >= x[inside]).all()
    positive = inside & (first > 0)
    before = weight[positive] / lattice.clock(first[positive] - 1)
    assert (before < x[positive]).all()


def test_first_order_form():
    """r / (e^r - 1), against the enumeration where truncation is visible but not total."""
    law = zipf(49)
    t, s, bits = 0.5, 0.5 - 1 / 16, 14
    exact = exact_law(weights_of(law, t, s, 49), bits)[:49]
    assert first_order(law, t, s, bits) == pytest.approx(exact, rel=0.02, abs=1e-7)
    plain = law * (t - s) / t
    assert (exact < plain).all()
    assert exact.sum() < 0.99 * plain.sum()
    assert first_order(np.array([0.0, 1.0]), 0.5, 0.4)[0] == 0
