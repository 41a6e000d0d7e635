"""Which tokens a comparison reads: the same ones of both sides, for every score."""

from __future__ import annotations

import numpy as np
import pytest

from strop.comparing.compare import compare
from strop.comparing.diversity import Scored, common_length, copies
from strop.comparing.side import Curve, Sample, Side
from strop.comparing.verdict import SHORTER
from strop.errors import UserError
from strop.measure.entropy import entropy

IDS = np.array([[1, 1, 2, 3, 3], [4, 5, 6, -1, -1], [7, 8, 8, 9, -1], [1, 1, 2, 9, 9]])
NATS = np.where(IDS >= 0, np.arange(20.0).reshape(4, 5) + 1, 0.0)


@pytest.mark.parametrize(("tokens", "counted"), [(3, 4), (4, 3), (5, 2)])
def test_all_scores_are_of_the_first_tokens_of_the_same_outputs(tokens: int, counted: int) -> None:
    found = Scored(IDS, NATS).first(tokens)
    there = (IDS >= 0).sum(1) >= tokens
    assert found.counted.tolist() == there.tolist()
    assert there.sum() == counted
    assert found.nll.tolist() == np.where(there, NATS[:, :tokens].sum(1), 0).tolist()
    assert found.tokens.tolist() == np.where(there, tokens, 0).tolist()
    assert found.entropy[there].tolist() == entropy(IDS[there, :tokens]).tolist()
    same = np.ix_(there, there)
    assert found.alike["copies"][same].tolist() == copies(IDS[there, :tokens]).tolist()
    level, spread = found.levels(np.ones((1, 4)))
    assert level[0] == pytest.approx(NATS[there, :tokens].sum() / (tokens * counted))
    assert spread[0] == pytest.approx(entropy(IDS[there, :tokens]).mean())


def test_outputs_that_are_left_out_make_no_pairs() -> None:
    """Three outputs, two of them copies, the third too short: the only pair is alike."""
    ones = np.array([1.0, 1.0, 0.0])
    pairs = np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, 0]])
    mine = Curve(Side([Sample(ones, ones, ones, {"copies": pairs})]), 30, 0)
    assert mine.alike("copies")[0, 0] == 1
    assert mine.left_out[0] == pytest.approx(1 / 3)
    for row, share in zip(mine.rows, mine.left_out, strict=True):
        assert share == pytest.approx(row[2] / 3)


@pytest.mark.parametrize(
    ("lengths", "tokens"),
    [
        (range(1, 21), 3),  # of twenty two may be shorter: 1 and 2 are
        (range(1, 20), 2),  # of nineteen one
        ([7] * 9 + [2], 7),
        ([7] * 8 + [2] * 2, 2),
        ([5] * 9, 5),
        ([5] * 8 + [4], 4),
    ],
)
def test_the_most_tokens_that_nine_tenths_reach(lengths: list[int], tokens: int) -> None:
    pool = of_lengths(list(lengths))
    assert common_length([pool]) == tokens
    assert common_length([pool, of_lengths([30] * 5)]) == tokens
    assert common_length([of_lengths([1] * 5), pool]) == 1
    assert (pool.lengths >= tokens).mean() >= 0.9


def of_lengths(lengths: list[int]) -> Scored:
    inside = np.arange(30) < np.array(lengths)[:, None]
    return Scored(np.where(inside, 1, -1), inside.astype(float))


def test_a_pool_with_next_to_nothing_scored_is_refused() -> None:
    with pytest.raises(UserError, match="no token that is scored"):
        common_length([of_lengths([4] * 8 + [0] * 2)])


# ---------------------------------------------------------------- what would be false otherwise

TOKENS, N, R = 40, 96, 400


def pool(rng: np.random.Generator, heat: float, length: np.ndarray | int = TOKENS) -> Scored:
    """Words by a law of given heat; an evaluator to which rarer words cost more."""
    rank = np.arange(1, 61.0)
    law = rank ** (-1.5 / heat)
    ids = rng.choice(60, (N, TOKENS), p=law / law.sum())
    nats = 1.0 + 0.5 * np.log(rank)[ids]
    inside = np.arange(TOKENS) < np.broadcast_to(length, N)[:, None]
    return Scored(np.where(inside, ids, -1), np.where(inside, nats, 0.0))


HEATS = (0.8, 0.9, 1.0, 1.1, 1.2)


def verdict(a: list[Scored], b: list[Scored]) -> tuple[str, str]:
    tokens = common_length([*a, *b])
    sides = [Side([one.first(tokens) for one in some]) for some in (a, b)]
    found = compare(*sides, replicates=R).verdict
    return found.kind, found.why


def test_a_generator_is_not_worse_than_itself_because_it_ends_earlier() -> None:
    """Three quarters of the length: read whole, the shorter side is "worse" in all of eight."""
    shorter, whole = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        a = [pool(rng, heat, 30) for heat in HEATS]
        b = [pool(rng, heat) for heat in HEATS]
        shorter.append(verdict(a, b)[0])
        sides = [
            Side([Sample(x.nats.sum(1), x.lengths * 1.0, entropy(x.ids)) for x in some])
            for some in (a, b)
        ]
        whole.append(compare(*sides, replicates=R).verdict.kind)
    assert set(whole) == {"worse"}
    assert set(shorter) <= {"the same", "cannot tell"}


def test_sides_that_leave_out_different_shares_have_no_verdict() -> None:
    """A ends early now and then, in up to a tenth of its outputs, and B never does."""
    rng = np.random.default_rng(3)
    early = np.where(np.arange(N) % 11 == 0, 20, TOKENS)
    a, b = ([pool(rng, heat, ends) for heat in HEATS] for ends in (early, TOKENS))
    assert verdict(a, b) == ("cannot tell", SHORTER)
    assert verdict(b, a) == ("cannot tell", SHORTER)
    both = [pool(rng, heat, early) for heat in HEATS]
    assert verdict(a, both)[1] != SHORTER


def test_stored_tokens_are_read_in_full_width() -> None:
    stored = {"ids": IDS.astype(np.int32), "nats": (NATS + 0.1).astype(np.float32)}
    found = Scored.of(stored)
    assert (found.ids.dtype, found.nats.dtype) == (np.int64, np.float64)
    assert found.ids.tolist() == IDS.tolist()
    assert found.nats.tolist() == stored["nats"].astype(float).tolist()
    assert (found.n, found.lengths.tolist()) == (4, [5, 3, 4, 5])
