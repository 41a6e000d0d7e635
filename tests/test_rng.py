"""Random numbers with an address: known answers, independence of order, uniformity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from strop.rng import Stream, derive_seed, philox, unit53

ONES = 0xFFFFFFFF
WORD = st.integers(0, ONES)
ADDRESSES = hnp.arrays(np.uint64, st.tuples(st.integers(1, 20), st.just(4)), elements=WORD)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((ONES,) * 4, (ONES,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_known_answers_of_random123(counter: Any, key: Any, words: str) -> None:
    assert " ".join(f"{int(word):08x}" for word in philox(counter, key)) == words


def test_addresses_broadcast() -> None:
    stream = Stream(3, "name")
    table = stream.uniform(np.arange(4)[:, None], 7, np.arange(5), 1)
    assert table.shape == (4, 5)
    assert table[2, 3] == stream.uniform(2, 7, 3, 1)


@given(ADDRESSES, st.data())
def test_neither_order_nor_batch_of_addresses_counts(
    addresses: np.ndarray, data: st.DataObject
) -> None:
    stream = Stream(11, "order")
    together = stream.uniform(*addresses.T)
    order = data.draw(st.permutations(range(len(addresses))))
    cut = data.draw(st.integers(0, len(addresses)))
    shuffled = addresses[order]
    parts = [stream.uniform(*part.T) for part in (shuffled[:cut], shuffled[cut:])]
    assert np.array_equal(np.concatenate(parts), together[order])
    assert np.array_equal([stream.uniform(*one) for one in addresses], together)


@given(ADDRESSES, st.integers(0, 2**63 - 1), st.text(max_size=10))
def test_a_stream_is_a_function_of_seed_and_name(
    addresses: np.ndarray, seed: int, name: str
) -> None:
    one, again = Stream(seed, name), Stream(seed, name)
    assert np.array_equal(one.uniform(*addresses.T), again.uniform(*addresses.T))


def same(one: Stream, other: Stream, where: tuple[int, ...] = (0, 0, 0, 0)) -> bool:
    return all(a == b for a, b in zip(one.words(*where), other.words(*where), strict=True))


@given(st.integers(0, 2**63 - 2), st.text(max_size=10))
def test_other_seeds_and_names_give_other_numbers(seed: int, name: str) -> None:
    stream = Stream(seed, name)
    assert same(stream, Stream(seed, name))
    assert not same(stream, Stream(seed + 1, name))
    assert not same(stream, Stream(seed, name + "x"))


@given(st.tuples(WORD, WORD, WORD, WORD), st.integers(0, 3), WORD)
def test_other_addresses_give_other_numbers(
    where: tuple[int, ...], axis: int, instead: int
) -> None:
    stream = Stream(5, "address")
    other = tuple(instead if i == axis else word for i, word in enumerate(where))
    words = [tuple(map(int, stream.words(*place))) for place in (where, other)]
    assert (words[0] == words[1]) == (where == other)  # a bijection of the counter: never equal


def test_names_do_not_run_into_seeds() -> None:
    assert derive_seed(1, "dense", 23) != derive_seed(12, "dense", 3)
    assert derive_seed(1, "dense", 2, 3) != derive_seed(1, "dense", 23)
    assert len({derive_seed(s, "dense", i) for s in range(30) for i in range(30)}) == 900


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**40))
def test_derived_seeds_suit_torch(seed: int, where: int) -> None:
    derived = derive_seed(seed, "dense", where)
    assert 0 <= derived < 2**63
    assert derived == derive_seed(seed, "dense", where)


@given(WORD, WORD)
def test_unit_interval_is_half_open(high: int, low: int) -> None:
    value = float(unit53(np.array(high, np.uint64), np.array(low, np.uint64)))
    assert 0 <= value < 1
    assert value * 2**53 == (high << 21 | low >> 11)


def chi_square(counts: np.ndarray) -> float:
    return float(stats.chisquare(counts.ravel()).pvalue)


def uniforms(axis: int) -> np.ndarray:
    """200,000 numbers along one coordinate of the address, the others fixed."""
    place: list[Any] = [1, 2, 3, 4]
    place[axis] = np.arange(200_000)
    return Stream(20260, "uniformity").uniform(*place)


@pytest.mark.parametrize("axis", range(4))
def test_uniformity_along_every_coordinate(axis: int) -> None:
    """64 cells, level 1e-4 (fixed seed: it passes or it does not).

    Power: a generator whose cell probabilities are off by 3 % up and down alternately has
    noncentrality 200,000 * 0.03^2 = 180 on 63 degrees of freedom, and is caught with > 99.9 %.
    """
    level, df = 1e-4, 63
    power = stats.ncx2.sf(stats.chi2.isf(level, df), df, 200_000 * 0.03**2)
    assert power > 0.999
    u = uniforms(axis)
    assert chi_square(np.histogram(u, 64, (0, 1))[0]) > level
    # Neighbours along the coordinate are independent: 8 x 8 cells of successive pairs.
    pairs = np.histogram2d(u[::2], u[1::2], 8, [(0, 1), (0, 1)])[0]
    assert chi_square(pairs) > level
    # The low bits too, which the histogram does not see.
    low = (u * 2**53).astype(np.uint64) & np.uint64(63)
    assert chi_square(np.bincount(low.astype(int), minlength=64)) > level


def test_the_uniformity_test_can_fail() -> None:
    u = uniforms(0)
    cell = (u * 64).astype(int)
    keep = (cell % 2 == 0) | (np.random.default_rng(0).random(len(u)) < 0.94)
    assert chi_square(np.histogram(u[keep], 64, (0, 1))[0]) < 1e-4
