"""Entropy, guard, repetition and Vendi against answers that are known."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from strop.errors import UserError
from strop.measure.entropy import (
    distinct,
    entropy,
    ngrams,
    pool_repetition,
    repetition,
    vendi_score,
)
from strop.measure.guard import guard, held_out_guard, read_texts

# Entropy and its guard


def test_entropy_by_hand() -> None:
    rows = np.array([[1, 1, 1, 1], [1, 2, 1, 2], [4, 3, 2, 1], [7, 7, 7, 2]])
    last = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    np.testing.assert_allclose(entropy(rows), [0, np.log(2), np.log(4), last], atol=1e-15)
    assert entropy(np.zeros((0, 4), int)).shape == (0,)
    assert str(entropy(rows)[0]) == "0.0"


def test_entropy_equals_a_count() -> None:
    rows = np.random.default_rng(0).zipf(1.3, (20, 300)) % 50000
    expected = []
    for row in rows:
        shares = np.array(list(Counter(row.tolist()).values())) / 300
        expected.append(-(shares * np.log(shares)).sum())
    np.testing.assert_allclose(entropy(rows), expected, rtol=1e-12)


def test_the_guard() -> None:
    assert guard(64).threshold is None
    rows = np.random.default_rng(1).integers(0, 40, (50, 128))
    measured = guard(64, rows)
    assert measured.threshold == pytest.approx(np.quantile(entropy(rows[:, :64]), 0.1))
    assert "50" in measured.source
    assert guard(129, rows).threshold is None  # no text is that long
    assert guard(64, rows[:19]).threshold is None


def test_a_guard_of_texts_that_somebody_brought(tmp_path: Path) -> None:
    class Reader:
        vocab_size, mask_id, codec = 12, 11, None

    path = tmp_path / "held.jsonl"
    with pytest.raises(UserError, match="not there"):
        held_out_guard(path, 4, Reader())
    path.write_text("".join(json.dumps({"ids": [1, 2, 3, i % 9]}) + "\n" for i in range(30)))
    found = held_out_guard(path, 4, Reader())
    assert found.threshold == pytest.approx(-0.5 * np.log(0.5) - 0.5 * np.log(0.25))
    assert "30 texts of held.jsonl" in found.source
    short = held_out_guard(path, 5, Reader())
    assert short.threshold is None  # and the reason says how many are long enough
    assert "0 of 30" in short.source
    path.write_text('{"ids": [1, 2, 3, 11]}\n')
    with pytest.raises(UserError, match="not a clean token"):
        held_out_guard(path, 4, Reader())


def test_the_texts_that_ship() -> None:
    held = read_texts()
    assert held is not None
    assert held.ids.shape[1] == 128
    assert held.ids.max() < (held.vocab_size or 0)


# Repetition


def test_repetition_by_hand() -> None:
    rows = np.array([[1, 2, 1, 2, 3, 4], [5, 6, 7, 8, 9, 3]])
    assert repetition(rows, 2).tolist() == [4 / 6, 0.0]
    assert pool_repetition(rows, 1).tolist() == [1 / 6, 1 / 6]  # the 3 alone is in both
    assert pool_repetition(np.array([[1, 2, 3], [2, 3, 9]]), 2).tolist() == [2 / 3, 2 / 3]
    assert distinct(rows, 2) == 9 / 10
    assert repetition(np.array([[1, 1, 1, 1]]), 2).tolist() == [1.0]


def test_repetition_equals_a_slow_count() -> None:
    rows = np.random.default_rng(2).integers(0, 4, (7, 30))
    n = 3
    grams = [[tuple(row[i : i + n]) for i in range(28)] for row in rows.tolist()]
    for k, row in enumerate(grams):
        inside, outside = np.zeros(30, bool), np.zeros(30, bool)
        others = {g for j, other in enumerate(grams) if j != k for g in other}
        for i, gram in enumerate(row):
            inside[i : i + n] |= row.count(gram) > 1
            outside[i : i + n] |= gram in others
        assert repetition(rows, n)[k] == inside.mean()
        assert pool_repetition(rows, n)[k] == outside.mean()
    everything = [g for row in grams for g in row]
    assert distinct(rows, n) == len(set(everything)) / len(everything)


def test_outputs_shorter_than_an_ngram() -> None:
    rows = np.array([[1, 2], [1, 2]])
    assert ngrams(rows, 4).shape == (2, 0)
    assert repetition(rows, 4).tolist() == [0.0, 0.0]
    assert pool_repetition(rows, 4).tolist() == [0.0, 0.0]
    assert distinct(rows, 4) is None


# Vendi


def test_vendi_counts_different_outputs() -> None:
    assert vendi_score(np.eye(5)) == pytest.approx(5)
    assert vendi_score(np.ones((5, 3))) == pytest.approx(1)
    two = np.array([[1.0, 0], [0, 2.0], [3.0, 0], [0, 1.0]])
    assert vendi_score(two) == pytest.approx(2)
    x = np.random.default_rng(0).normal(size=(6, 4))
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    values = np.linalg.eigvalsh(unit @ unit.T / 6)
    values = values[values > 1e-12]
    assert vendi_score(x) == pytest.approx(np.exp(-(values * np.log(values)).sum()))


def test_vendi_refuses_nothing() -> None:
    for bad in (np.zeros((0, 3)), np.zeros((2, 3)), np.array([[np.nan, 1.0]])):
        with pytest.raises(UserError, match="embedding"):
            vendi_score(bad)


def test_entropy_counts_nothing_behind_a_shorter_row() -> None:
    rows = np.array([[0, 2, -1, -1], [0, 0, 5, -1], [3, 3, 3, 3], [-1, -1, -1, -1], [0, 4, 6, 9]])
    third = -(2 / 3 * np.log(2 / 3) + 1 / 3 * np.log(1 / 3))
    expected = [np.log(2), third, 0, 0, np.log(4)]
    np.testing.assert_allclose(entropy(rows), expected, atol=1e-15)
    assert entropy(np.zeros((2, 0), int)).tolist() == [0.0, 0.0]
    assert entropy(np.array([[7], [8]])).tolist() == [0.0, 0.0]


# By hand


def test_ngrams_by_hand() -> None:
    """Numbers are equal where the n-grams are, and as many as there are places for one."""
    ids = np.array([[5, 7, 5, 7], [7, 5, 7, 9]])
    assert ngrams(ids, 1).tolist() == [[0, 1, 0, 1], [1, 0, 1, 2]]
    assert ngrams(ids, 2).tolist() == [[0, 1, 0], [1, 0, 2]]
    assert ngrams(ids, 3).tolist() == [[0, 2], [2, 1]]
    assert ngrams(ids, 4).tolist() == [[0], [1]]
    for n, places in ((5, 0), (6, 0), (0, 5)):
        assert ngrams(ids, n).shape == (2, places)
    assert ngrams(ids[:0], 2).shape == (0, 3)
    assert ngrams(ids.tolist(), 2).tolist() == ngrams(ids, 2).tolist()  # type: ignore[arg-type]
    # Pairs that a sum or a difference of their tokens would take for one.
    apart = np.array([[0, 1, 2, 2, 1, 0]])
    assert len(set(ngrams(apart, 2)[0].tolist())) == 5


def test_repetition_of_rows_of_different_lengths_by_hand() -> None:
    ids = np.array([[1, 2, 1, 2, -1, -1], [1, 2, 3, 4, 1, 2], [1, 1, -1, -1, -1, -1]])
    assert repetition(ids, 2).tolist() == [1.0, pytest.approx(4 / 6), 0.0]
    assert entropy(ids).tolist() == [
        pytest.approx(np.log(2)),
        pytest.approx(2 / 3 * np.log(3) + 1 / 3 * np.log(6)),
        0.0,
    ]


def test_the_vendi_score_of_whole_numbers_is_that_of_their_directions() -> None:
    assert vendi_score(np.array([[3, 0], [0, 5]])) == pytest.approx(2)
    assert vendi_score([[1, 0], [2, 0]]) == pytest.approx(1)  # type: ignore[arg-type]
    for wrong in (np.zeros((0, 3)), np.ones(3), np.zeros((2, 2)), np.full((2, 2), np.nan)):
        with pytest.raises(UserError):
            vendi_score(wrong)
