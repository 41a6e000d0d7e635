"""N-grams of a pool, counted in parts, against a count by sets."""

from __future__ import annotations

import functools
from itertools import pairwise

import numpy as np
import pytest

from strop.measure.entropy import Grams, count
from strop.measure.metric import PoolRows


def slow(ids: np.ndarray, sizes: tuple[int, ...], n: int) -> Grams:
    """As the words say it: sets of tuples."""
    rows = [[int(token) for token in row if token >= 0] for row in ids]

    def grams(row: list[int], k: int) -> list[tuple[int, ...]]:
        return [tuple(row[i : i + k]) for i in range(len(row) - k + 1)]

    distinct = {}
    for k in sizes:
        every = [gram for row in rows for gram in grams(row, k)]
        distinct[k] = len(set(every)) / len(every) if every else None
    shared = []
    for i, row in enumerate(rows):
        others = {gram for j, other in enumerate(rows) if j != i for gram in grams(other, n)}
        inside = np.zeros(len(row), bool)
        for start, gram in enumerate(grams(row, n)):
            inside[start : start + n] |= gram in others
        shared.append(float(inside.mean()) if row else 0.0)
    return Grams(distinct, np.array(shared))


def pools() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    ragged = rng.integers(0, 5, (9, 24))
    ragged[np.arange(24) >= rng.integers(0, 25, 9)[:, None]] = -1
    wide = rng.integers(0, 160_000, (12, 2_000))  # four of its tokens need more than 64 bits
    wide[7, 100:140] = wide[3, 500:540]
    return {
        "few tokens": rng.integers(0, 3, (8, 40)),
        "many tokens": rng.integers(0, 30_000, (12, 60)),
        "two texts": np.repeat(rng.integers(0, 50, (2, 30)), 6, 0),
        "one token": np.full((5, 20), 7),
        "ragged": ragged,
        "shorter than n": rng.integers(0, 3, (4, 2)),
        "one output": rng.integers(0, 3, (1, 30)),
        "a large vocabulary": wide,
    }


@functools.cache
def counted(name: str, sizes: tuple[int, ...], n: int) -> Grams:
    return slow(pools()[name], sizes, n)


@pytest.mark.parametrize("held", [1, 7, 100, 2**23])
@pytest.mark.parametrize("name", pools())
def test_counts_in_any_number_of_parts_are_exact(name: str, held: int) -> None:
    ids = pools()[name]
    if ids.size > 10_000 and held < 100:
        held *= 10_000  # as many parts as there are n-grams would be read forever
    cuts = [0, *sorted({1, len(ids) // 2}), len(ids)]
    chunks = [ids[a:b] for a, b in pairwise(cuts)]
    for n, sizes in ((4, (1, 2, 3, 4)), (2, (3,))):
        found, right = count(lambda: chunks, sizes, n, held), counted(name, sizes, n)
        assert found.distinct == right.distinct
        np.testing.assert_allclose(found.shared, right.shared, rtol=1e-12)


def test_a_pool_of_no_outputs() -> None:
    found = count(list, (1, 2), 2)
    assert found.distinct == {1: None, 2: None}
    assert len(found.shared) == 0


def test_the_pool_is_counted_once_for_all_who_ask() -> None:
    reads: list[bool] = []

    def read(with_texts: bool) -> list[tuple[list[str], np.ndarray]]:
        reads.append(with_texts)
        return [([], np.arange(12).reshape(3, 4))]

    rows = PoolRows(3, read)
    assert rows.grams.distinct[2] == 1.0
    first = len(reads)
    assert rows.grams.shared.tolist() == [0.0, 0.0, 0.0]
    assert len(reads) == first
    assert not any(reads)  # nobody asked for texts
