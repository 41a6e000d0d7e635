"""The decoders' draw on rows of scores made by hand: which tokens may come, by which address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.denoisers.base import NEG_INFINITY
from strop.errors import UserError
from strop.rng import Stream
from strop.samplers.machinery.committing import View
from strop.samplers.machinery.drawing import NOT_OPEN, AddressedDraws, Confidence
from strop.spec import SamplerSpec

VOCAB, MASK = 7, 6
LOGITS = torch.tensor([0.0, 3.0, 1.0, 2.0, -1.0, -2.0, 9.0]).double()
"""Best first: 1, 3, 2, 0, 4, 5; the mask would be the best of all."""


def draws(outputs: Sequence[int] = (0,), width: int = 4, **given: Any) -> AddressedDraws:
    places = given.pop("places", np.tile(np.arange(width), (len(outputs), 1)))
    shape = {key: given.pop(key) for key in ("temperature", "top_p", "precision") if key in given}
    spec = SamplerSpec(name="blockwise", **{"precision": "float64", **shape})
    numbers, seed = np.asarray(outputs, np.int64), given.pop("seed", 3)
    return AddressedDraws(seed, spec, numbers, places, MASK, **given)


def view(
    table: torch.Tensor, *, rows: Sequence[int] | None = None, start: int = 0, open_: Any = None
) -> View:
    """What a network said of some rows, from a column on: scores [R, W, V]."""
    number = np.arange(len(table)) if rows is None else np.array(rows)
    seen = np.ones(table.shape[:2], bool) if open_ is None else np.asarray(open_)
    rounds = np.zeros_like(number)
    return View(
        number, start, seen, seen, seen, False, rounds, lambda s, c: table[s, c].clone(), VOCAB
    )


def law(logits: torch.Tensor, temperature: float = 1.0, **given: Any) -> torch.Tensor:
    return draws(**given)._law(logits[None].clone(), temperature)[0].exp()


# ---------------------------------------------------------------- which tokens, how likely


@pytest.mark.parametrize("k", [1, 2, 3, 5, 6])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_top_k_keeps_exactly_the_k_best(k: int, temperature: float) -> None:
    found = law(LOGITS, temperature, top_k=k)
    kept = [1, 3, 2, 0, 4, 5][:k]
    weights = torch.zeros(VOCAB).double()
    weights[kept] = (LOGITS[kept] / temperature).exp()
    assert found.tolist() == pytest.approx((weights / weights.sum()).tolist(), abs=1e-12)


def test_top_k_keeps_whoever_ties_with_the_last() -> None:
    tied = torch.tensor([1.0, 1.0, 2.0, 1.0, 0.0, 0.0, 9.0]).double()
    for k, kept in ((1, [2]), (2, [0, 1, 2, 3]), (4, [0, 1, 2, 3]), (5, [0, 1, 2, 3, 4, 5])):
        assert (law(tied, top_k=k) > 1e-9).nonzero()[:, 0].tolist() == kept


def test_all_of_them_is_no_cut_and_neither_is_zero() -> None:
    whole = LOGITS[:MASK].softmax(0).tolist()
    for k in (0, 6, 7, 99):
        assert law(LOGITS, top_k=k)[:MASK].tolist() == pytest.approx(whole)


@settings(max_examples=40)
@given(
    scores=st.lists(st.integers(-8, 8), min_size=MASK, max_size=MASK),
    k=st.integers(0, 8),
    temperature=st.sampled_from([0.5, 1.0, 2.0]),
)
def test_the_law_is_tempered_cut_and_sums_to_one(scores, k, temperature) -> None:
    logits = torch.tensor([*scores, 20]).double() / 2
    found = law(logits, temperature, top_k=k)
    assert float(found.sum()) == pytest.approx(1)
    least = sorted(scores, reverse=True)[min(k, MASK) - 1] if k else min(scores)
    kept = [i for i in range(MASK) if scores[i] >= least]
    weights = (logits[kept] / temperature).softmax(0)
    assert found[kept].tolist() == pytest.approx(weights.tolist(), abs=1e-9)
    assert float(found[MASK]) < 1e-12


def test_top_p_comes_before_top_k() -> None:
    """0.644, 0.237, 0.087, ...: 0.85 is reached by two tokens, of three that top_k would keep."""
    found = law(LOGITS, top_p=0.85, top_k=3)
    assert (found > 1e-9).nonzero()[:, 0].tolist() == [1, 3]
    assert (law(LOGITS, top_p=0.85, top_k=1) > 1e-9).nonzero()[:, 0].tolist() == [1]


def test_at_temperature_zero_the_best_token_the_lowest_of_equals() -> None:
    tied = torch.tensor([1.0, 2.0, 2.0, 0.0, 0.0, 0.0, 9.0]).double()
    for k in (0, 1, 3):
        assert law(tied, 0.0, top_k=k).argmax() == 1
        assert float(law(tied, 0.0, top_k=k)[1]) == 1


def test_what_is_drawn_is_what_may_be_drawn() -> None:
    """400 draws: the rarest of three tokens, at 9%, is missing with chance 4e-17."""
    table = LOGITS.expand(100, 4, VOCAB)
    for given_, kept in (
        ({"top_k": 3}, {1, 2, 3}),
        ({"top_k": 2}, {1, 3}),
        ({"top_k": 2, "forbid": [1]}, {2, 3}),
        ({"top_k": 1}, {1}),
    ):
        mine = draws(range(100), **given_)
        assert set(mine.tokens(view(table), np.ones((100, 4), bool)).flatten().tolist()) == kept
        assert set(mine.propose(view(table), Confidence("top"))[0].flatten().tolist()) == kept


# ---------------------------------------------------------------- what is scored


def scored(score: Confidence, **given: Any) -> tuple[int, float]:
    tokens, value = draws(width=1, **given).propose(view(LOGITS[None, None]), score)
    return int(tokens), float(value)


def test_scores_are_of_the_networks_own_law_or_of_the_one_drawn_from() -> None:
    own = LOGITS[:MASK].softmax(0)
    cold = (LOGITS[:MASK] / 0.5).softmax(0)
    token, value = scored(Confidence("confidence"), temperature=0.0)
    assert (token, value) == (1, pytest.approx(float(own[1])))
    assert scored(Confidence("top"), temperature=0.5)[1] == pytest.approx(float(own[1]))
    assert scored(Confidence("top", tempered=True), temperature=0.5)[1] == pytest.approx(
        float(cold[1])
    )
    cut = LOGITS[[1, 3]].softmax(0)
    assert scored(Confidence("top", tempered=True), top_k=2)[1] == pytest.approx(float(cut[0]))
    assert scored(Confidence("top"), top_k=2)[1] == pytest.approx(float(own[1]))
    # Without chance the scores are those of the untempered law, cut all the same.
    token, value = scored(Confidence("confidence", tempered=True), temperature=0.0, top_k=2)
    assert (token, value) == (1, pytest.approx(float(cut[0])))


def test_hushed_tokens_score_nothing_and_are_drawn_all_the_same() -> None:
    token, value = scored(Confidence("confidence"), temperature=0.0, hush=[1])
    assert (token, value) == (1, 0.0)
    others = LOGITS[[0, 2, 3, 4, 5]].softmax(0)
    assert scored(Confidence("top"), hush=[1])[1] == pytest.approx(float(others.max()))


def test_nothing_is_drawn_or_scored_where_nothing_is_open() -> None:
    open_ = torch.tensor([[True, False, True, False]])
    tokens, value = draws().propose(
        view(LOGITS.expand(1, 4, VOCAB), open_=open_), Confidence("top")
    )
    assert (tokens[0] != MASK).tolist() == open_[0].tolist()
    assert (value[0] > NOT_OPEN).tolist() == open_[0].tolist()
    assert NOT_OPEN < NEG_INFINITY


# ---------------------------------------------------------------- addresses


def test_a_draw_depends_on_output_round_and_place_alone() -> None:
    """Whoever else is in the batch, in whatever order, and through whatever window."""
    outputs, width = [4, 7, 5], 6
    table = torch.randn(3, width, VOCAB, generator=torch.Generator().manual_seed(1)).double()
    mine = draws(outputs, width)
    whole, values = mine.propose(view(table), Confidence("confidence"))
    numbers = mine.numbers(view(table))
    for row, output in enumerate(outputs):
        alone = draws([output], width)
        here = view(table[row : row + 1, 2:5], start=2)
        assert (
            alone.propose(here, Confidence("confidence"))[0][0].tolist() == whole[row, 2:5].tolist()
        )
        assert alone.numbers(here)[0].tolist() == numbers[row, 2:5].tolist()
    few = view(table[[2, 0]], rows=[2, 0])
    assert mine.propose(few, Confidence("confidence"))[0].tolist() == whole[[2, 0]].tolist()
    assert mine.numbers(few).tolist() == numbers[[2, 0]].tolist()
    assert values.isfinite().all()
    # Of columns that are not neighbours, the place counts and not the column.
    places = np.array([[0, 0, 0, 1, 2, 2]])
    shifted = draws([4], width, places=places).numbers(view(table[:1]))
    assert shifted[0, [0, 3, 4]].tolist() == numbers[0, [0, 1, 2]].tolist()


def test_another_round_another_output_another_seed_are_other_numbers() -> None:
    table = LOGITS.expand(1, 4, VOCAB)
    plain = draws().numbers(view(table))
    later = view(table)
    later.rounds = torch.ones(1, dtype=torch.long)
    others = [draws().numbers(later), draws([1]).numbers(view(table))]
    others += [draws(seed=4).numbers(view(table)), draws(name="llada").numbers(view(table))]
    for other in others:
        assert not (other == plain).any()
    assert ((plain >= 0) & (plain < 1)).all()


@pytest.mark.parametrize("counts", [[0, 1, 2], [3, 2, 0]])
def test_as_many_are_picked_as_are_wanted_among_the_open(counts) -> None:
    open_ = torch.tensor([[True] * 4, [True, False, True, True], [False, False, True, True]])
    shown = view(LOGITS.expand(3, 4, VOCAB), open_=open_)
    weights = torch.rand(3, 4, generator=torch.Generator().manual_seed(0)).double()
    found = draws([0, 1, 2]).pick(shown, weights, np.array(counts))
    assert found.sum(1).tolist() == counts
    assert not (found & ~open_).any()


def test_the_first_pick_is_by_weight() -> None:
    """Weights 4, 2, 1, 1 of 800: within four standard errors of the shares."""
    weights = torch.tensor([4.0, 2, 1, 1]).double().expand(800, 4)
    shown = view(LOGITS.expand(800, 4, VOCAB))
    found = draws(range(800)).pick(shown, weights, np.ones(800, np.int64)).sum(0)
    for count, share in zip(found.tolist(), (0.5, 0.25, 0.125, 0.125), strict=True):
        assert abs(count - 800 * share) < 4 * (800 * share * (1 - share)) ** 0.5


# ---------------------------------------------------------------- both precisions, damaged scores


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_a_token_depends_on_its_address_alone(precision: Any) -> None:
    """Whatever shares the batch: the other way round, or alone; another output draws others."""
    table = LOGITS.float().tile(6, 4, 1)
    outputs = [7, 2, 9, 4, 11, 5]
    every = np.ones((6, 4), bool)

    def drawn(numbers: list[int], **more: Any) -> list[list[int]]:
        some = draws(numbers, precision=precision, **more)
        found = some.tokens(view(table[: len(numbers)]), every[: len(numbers)])
        return found.tolist()

    rows = drawn(outputs)
    assert drawn(outputs[::-1]) == rows[::-1]
    assert [drawn([one])[0] for one in outputs] == rows
    assert len({tuple(row) for row in rows}) > 3
    assert {token for row in rows for token in row} <= set(range(MASK))
    assert drawn(outputs, seed=4) != rows
    certain = drawn(outputs, temperature=0.0)
    assert certain == [[1] * 4] * 6


def test_normalisers_are_added_up_and_looked_at_first_and_last() -> None:
    some = draws().confirm
    some.refuse_infinite()  # nothing was drawn
    ids, chance = torch.tensor([[3, 4]]), torch.tensor([[0.25, 0.5]])
    tokens, chances = some.fetched(ids, chance)
    assert (tokens.tolist(), chances.tolist()) == ([[3, 4]], [[0.25, 0.5]])
    some(torch.tensor([1.0, 2.0]))
    some(torch.tensor([4.0]))
    some(torch.tensor([8.0]))
    assert float(some._sum) == 15.0  # type: ignore[arg-type]
    some.refuse_infinite()
    some(torch.tensor([torch.nan]))  # later ones wait
    with pytest.raises(UserError):
        some.refuse_infinite()
    with pytest.raises(UserError):
        some.fetched(ids, chance)
    with pytest.raises(UserError):
        draws().confirm(torch.tensor([torch.nan]))


def test_tables_of_proposals_are_made_where_the_scores_are() -> None:
    """With nothing open, so that no score is asked for on a device that holds none."""
    closed = view(LOGITS.expand(1, 2, VOCAB), open_=np.zeros((1, 2), bool))
    there = replace(closed, device=torch.device("meta"))
    tokens, value = draws().propose(there, Confidence("top"))
    assert (tokens.device.type, value.device.type, value.dtype) == ("meta", "meta", torch.float64)
    assert draws().tokens(there, there.open).device.type == "meta"


def test_random_numbers_are_those_of_their_streams() -> None:
    """Streams are known by name, and outputs of earlier versions have these numbers."""
    mine, here = draws(width=12), view(LOGITS.expand(1, 12, VOCAB))
    row = np.zeros((1, 1), np.int64)
    for name, purpose in (("token", 0), ("order", 1), ("race", 2)):
        expected = Stream(3, f"blockwise/{name}").uniform(row, row, np.arange(12)[None], 0)
        assert mine._uniform(here, purpose).tolist() == expected.tolist()
    assert mine.numbers(here).tolist() == mine._uniform(here, 1).tolist()
    assert mine.numbers(here)[0, :2].tolist() == [0.3510312934253387, 0.4313819811038643]
    tokens, _ = mine.propose(here, Confidence("top"))
    assert tokens.tolist() == [[1, 1, 1, 2, 1, 1, 1, 3, 3, 0, 2, 1]]
    picked = mine.pick(here, torch.ones(1, 12), np.array([4]))
    assert picked.nonzero()[:, 1].tolist() == [0, 2, 7, 9]
