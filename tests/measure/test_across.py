"""Diversity across outputs against held-out texts: by hand, its spread, and what decides."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from strop.language import Language
from strop.measure import across
from strop.measure.across import (
    DECIDES,
    MARGIN,
    HeldOutPairs,
    _jackknifed,
    _others,
    _Texts,
    share_of,
)
from strop.measure.entropy import entropy
from strop.measure.guard import Guard, guard
from strop.measure.metric import PoolRows
from strop.stats.interval import Interval
from strop.stats.resample import jackknife
from strop.tuning.race import Limit, guard_limits

LENGTH = 9


def of_modes(modes: np.ndarray) -> np.ndarray:
    """Texts of which two are the same if their modes are, and have nothing in common if not."""
    return 100 * np.asarray(modes)[:, None] + np.arange(LENGTH)


def noise(n: int, seed: int = 0) -> np.ndarray:
    """Texts that are like nothing."""
    return 10**6 + np.random.default_rng(seed).permutation(n * LENGTH).reshape(n, LENGTH)


TEN = np.random.default_rng(7).permutation(np.tile(np.arange(10), 12))
HELD = HeldOutPairs(of_modes(TEN))
FAR = [(i, j) for i in range(120) for j in range(120) if abs(i - j) >= 30]
"""Texts that are a quarter of the file apart."""
SAME = np.mean([TEN[i] == TEN[j] for i, j in FAR])


def value(outputs: np.ndarray, held: HeldOutPairs = HELD) -> float:
    return float(held.shares(outputs).mean())


def test_it_is_the_share_of_modes_that_are_kept():
    """Two texts of one mode have likeness 1; a text is like a tenth of the held-out ones."""
    cross = min(1, 0.1 / SAME)
    kept = value(of_modes(np.tile(np.arange(6), 50)))  # six of ten modes, fifty texts each
    assert kept == pytest.approx(0.1 / (49 / 299) * cross)
    assert kept == pytest.approx(0.6, abs=0.06)
    assert value(of_modes(np.zeros(30, int))) == pytest.approx(0.1 * cross)


def test_rare_texts_and_common_ones_weigh_alike():
    """Held-out texts of unequal modes, outputs of other shares: 1 over the sum of q squared / p."""
    many, few = np.repeat([0, 1, 2, 3], [50, 30, 20, 20]), np.repeat([0, 1, 2], [200, 300, 100])
    held = HeldOutPairs(of_modes(np.random.default_rng(1).permutation(many)))
    p, q = np.bincount(many) / 120, np.bincount(few, minlength=4)
    pairs = q * (q - 1) / (600 * 599)  # of two different outputs, both of one mode
    near = min(1, (q / 600 * p).sum() / held._own[0])
    assert value(of_modes(few), held) == pytest.approx(near / (pairs / p).sum())
    # the exact law is not told from itself, however unequal: 3% is what two draws differ by
    assert value(of_modes(np.tile(many, 20)), held) == pytest.approx(1, abs=0.03)


def test_noise_beside_good_outputs_adds_nothing():
    good = of_modes(np.tile(np.arange(6), 5))
    assert value(np.concatenate([good, noise(30)])) == pytest.approx(value(good))
    assert value(noise(30)) == 0.0


def test_noise_inside_outputs_lowers_it():
    """Outputs with noise in them are less like each other, but less like held-out texts, too."""
    outputs = of_modes(np.tile(np.arange(10), 8))
    broken = outputs.copy()
    broken[:, 5:] = noise(80)[:, 5:]
    likeness = (4 * 0.9) ** 2 / ((4 * 0.9 + 4) * (8 * 0.9))  # four of eight pairs are noise
    alike = (4 * 0.9 / (4 * 0.9 + 4)) ** 2
    near = min(1, likeness * 0.1 / SAME)
    assert value(broken) == pytest.approx(likeness * 0.1 / (alike * 7 / 79) * near)
    assert value(broken) < value(outputs) / 2


def test_texts_that_are_near_in_the_file_are_not_compared():
    """Pieces of one document in a row: they say nothing of how alike two documents are."""
    pieces = np.repeat(np.random.default_rng(5).permutation(np.tile(np.arange(10), 4)), 3)
    same = np.mean([pieces[i] == pieces[j] for i, j in FAR])
    assert HeldOutPairs(of_modes(pieces))._own[0] == pytest.approx(same)
    # pieces of one document are alike: over all pairs the mean would be another
    every = np.mean([pieces[i] == pieces[j] for i, j in np.ndindex(120, 120) if i != j])
    assert abs(same / every - 1) > 0.05


def by_definition(outputs: np.ndarray, held: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """The diversity, and without each output and without each run of texts, from sets of pairs.

    What a pair of tokens and a held-out text weigh stays as it is.
    """
    sets = [{*pairwise(row)} for row in [*held.tolist(), *outputs.tolist()]]
    h, every = len(held), set().union(*sets)
    weight = {p: np.sqrt(1 - sum(p in s for s in sets[:h]) / h) for p in every}
    size = [np.sqrt(sum(weight[p] ** 2 for p in s)) for s in sets]
    like = np.array(
        [
            [
                (sum(weight[p] ** 2 for p in a & b) / (x * y)) ** 2
                for b, y in zip(sets, size, strict=True)
            ]
            for a, x in zip(sets, size, strict=True)
        ]
    )
    apart = abs(np.subtract.outer(np.arange(h), np.arange(h))) >= h / 4
    theirs, mean = like[:h, :h] * apart, (like[:h, :h] * apart).sum() / apart.sum()
    of_texts = np.minimum(1, theirs.sum(1) / apart.sum(1) / mean / 4**-1) ** 2

    def value(kept: np.ndarray, w: np.ndarray) -> float:
        cross = like[h:, :h] @ w / w.sum()
        u = np.minimum(1, cross / mean / 4**-1) ** 2 * kept
        both = np.outer(u, u) * (1 - np.eye(len(u)))
        over = both * np.divide(1, cross, out=0 * cross, where=cross > 0)[:, None]
        ratio = (over * like[h:, h:]).sum() / both.sum()
        near = (u @ cross / u.sum()) / (w @ theirs @ w / (w @ apart @ w))
        return min(1, near) / ratio

    def without(weights: np.ndarray, gone: np.ndarray) -> np.ndarray:
        kept = weights.copy()
        kept[gone] = 0
        return kept

    runs = np.array_split(np.arange(h), 20)
    every_one = np.ones(len(outputs))
    outs = [value(without(every_one, np.array([k])), of_texts) for k in range(len(outputs))]
    ins = [value(every_one, without(of_texts, gone)) for gone in runs]
    return value(every_one, of_texts), np.array(outs), np.array(ins)


def uneven(seed: int, *, broken: int, noisy: int) -> np.ndarray:
    """Texts of modes of unequal weight, some with noise at their end, some nothing but noise."""
    dice = np.random.default_rng(seed)
    texts = of_modes(dice.choice(6, 40, p=np.arange(1, 7) / 21))
    texts[:broken, 4:] = noise(broken, seed)[:, 4:]
    texts[: broken // 2, :2] = of_modes(dice.choice(6, broken // 2))[:, :2]  # of two modes
    return np.concatenate([texts, noise(noisy, seed + 1)]) if noisy else texts


@pytest.mark.parametrize(("broken", "noisy"), [(24, 6), (4, 0)])
def test_the_values_are_those_of_leaving_out_each_output_and_each_run_of_texts(broken, noisy):
    outputs, texts = uneven(3, broken=broken, noisy=noisy), uneven(8, broken=6, noisy=0)
    expected, outs, ins = by_definition(outputs, texts)
    n, found = len(outputs), HeldOutPairs(texts).shares(outputs)
    assert found.mean() == pytest.approx(expected)
    spread, added = (_jackknifed(values) for values in (outs, ins))
    pseudo = (n - 1) * (outs.mean() - outs) * np.sqrt(1 + added / spread)
    np.testing.assert_allclose(found - found.mean(), pseudo, atol=1e-9)
    assert added > spread / 20  # neither is lost in the other


def test_its_interval_holds_as_often_as_it_says():
    """60 pools of 64 from ten modes of unequal weight, 128 held-out texts each.

    At 95% fewer than 52 of 60 hold with probability .3%; half the width would hold in 67%.
    """
    law = np.arange(1, 11) / 55
    truth = law[4:].sum()
    holds = short = 0
    for seed in range(60):
        dice = np.random.default_rng(seed)
        held = HeldOutPairs(of_modes(dice.choice(10, 128, p=law)))
        outputs = of_modes(dice.choice(np.arange(4, 10), 64, p=law[4:] / law[4:].sum()))
        found = held.diversity(outputs)
        assert found is not None
        low, high = found.ends
        holds += low <= truth <= high
        short += abs(found.value - truth) <= (high - low) / 4
    assert holds >= 52
    assert short < 52


def test_a_collapse_of_a_language():
    """Half of every latent's values are gone: below, and with as much noise no better."""
    language = Language.load("even")
    held = guard(language.length, language.draw(512, seed=1), source="exact texts")
    assert held.pairs is not None
    exact, collapsed = language.draw(384, seed=2), language.narrowed(1e6).draw(384, seed=3)
    assert held.diverse(held.pairs.diversity(exact)) == "above"
    assert held.diverse(held.pairs.diversity(collapsed)) == "below"
    noisy = np.random.default_rng(0).permuted(exact.ravel()).reshape(exact.shape)
    mixed = np.concatenate([collapsed, noisy])
    assert held.diverse(held.pairs.diversity(mixed)) == "below"
    # entropy of single outputs sees nothing of the collapse
    assert held.threshold is not None
    assert entropy(collapsed).mean() > held.threshold


@pytest.mark.parametrize("words", [16, 96])
def test_noise_is_not_diverse_however_short_it_is(words: int):
    """Words drawn at random: of 16, hardly any two outputs share a pair."""
    language = Language.load("even")
    held = guard(words, language.draw(512, seed=1)[:, :words], source="exact texts")
    assert held.pairs is not None
    noise = np.random.default_rng(0).integers(0, 353, (256, words))
    assert held.diverse(held.pairs.diversity(noise)) == "below"
    assert held.diverse(held.pairs.diversity(language.draw(256, seed=5)[:, :words])) != "below"


def test_short_outputs_are_read_as_far_as_most_reach():
    outputs = of_modes(np.tile(np.arange(6), 5))
    cut = outputs.copy()
    cut[:, 5:] = -1
    assert value(cut) == pytest.approx(value(outputs[:, :5], HeldOutPairs(HELD.ids[:, :5])))
    cut = outputs.copy()
    cut[:2, 5:] = -1  # fewer than one in ten
    assert value(cut) != pytest.approx(value(outputs[:, :5], HeldOutPairs(HELD.ids[:, :5])))
    assert np.isnan(HELD.shares(outputs[:7])).all()
    assert np.isfinite(HELD.shares(outputs[:8])).all()
    assert HELD.diversity(outputs[:, :1]) is None


def test_held_out_texts_that_have_nothing_in_common_say_nothing():
    """Also where only their beginnings have nothing in common, and outputs are that short."""
    texts = noise(30)
    assert HeldOutPairs(texts).diversity(of_modes(TEN)) is None
    texts[:, 5:] = np.arange(LENGTH - 5)
    outputs = noise(30, 1)
    outputs[:, 5:] = -1
    assert HeldOutPairs(texts).usable
    assert HeldOutPairs(texts).diversity(outputs) is None


WHOLE = guard(LENGTH, of_modes(TEN))
assert WHOLE.pairs is not None


def between(low: float, high: float, n: int = DECIDES) -> Interval:
    return Interval((low + high) / 2, low, high, n=n, how="by hand")


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(0.92, 1, "above"), (0.7, 0.91, "below"), (0.85, 1, "undecided"), (0.9, 0.92, "undecided")],
)
def test_the_three_words_of_diversity(low: float, high: float, word: str):
    assert WHOLE.diverse(between(low, high)) == word
    assert WHOLE.diverse(between(low, high, DECIDES - 1)) is None
    assert replace(WHOLE, texts=()).diverse(between(low, high)) is None
    assert MARGIN == 0.92


H = WHOLE.threshold or 0.0
OVER, ON, UNDER = between(H, H + 1), between(H - 1, H + 1), between(H - 1, H - 0.5)


@pytest.mark.parametrize(
    ("entropy", "diversity", "word"),
    [
        (OVER, between(0.95, 1), "above"),
        (OVER, between(0.5, 0.6), "below"),
        (OVER, between(0.8, 1), "undecided"),
        (ON, between(0.95, 1), "undecided"),
        (ON, between(0.5, 0.6), "below"),
        (UNDER, between(0.95, 1), "below"),
        (OVER, None, "above"),
    ],
)
def test_a_cell_must_hold_both(entropy: Interval, diversity: Interval | None, word: str):
    assert WHOLE.both(entropy, diversity) == word
    papers = replace(WHOLE, rule="mean")
    assert papers.both(entropy, diversity) == papers.verdict(entropy)


def test_what_a_search_must_hold():
    entropy = Limit("entropy", ">=", H, "interval")
    assert guard_limits(WHOLE) == (entropy, Limit("diversity", ">=", MARGIN, least=DECIDES))
    assert guard_limits(WHOLE, DECIDES - 1) == (entropy,)
    assert guard_limits(replace(WHOLE, rule="mean")) == (replace(entropy, by="mean"),)
    assert guard_limits(Guard(LENGTH, 5.0, "a convention")) == (
        Limit("entropy", ">=", 5.0, "interval"),
    )
    share = guard_limits(WHOLE)[1]
    assert share.side_of(between(0.2, 0.3, DECIDES - 1)) is True
    assert share.side_of(between(0.2, 0.3)) is False
    assert share.side_of(between(0.2, 0.95)) is None


def test_the_interval_is_the_jackknifes():
    outputs = of_modes(np.random.default_rng(1).integers(0, 8, 40))
    found = HELD.diversity(outputs)
    assert found == jackknife(share_of(HELD.shares(outputs)))
    assert found is not None
    assert found.how == "jackknife"


def test_sums_without_each_text_are_sums_of_the_others():
    weight, likeness = np.array([1.0, 0.5, 0.2, 1.0]), np.random.default_rng(0).random((4, 4))
    likeness = np.triu(likeness, 1) + np.triu(likeness, 1).T
    texts = _Texts(weight, _others(weight, 1), likeness @ weight)
    found = texts.without(np.arange(4))
    for k in range(4):
        w, some = np.delete(weight, k), np.delete(np.delete(likeness, k, 0), k, 1)
        expected = w.sum(), w.sum() ** 2 - w @ w, w @ some @ w
        assert [np.asarray(one)[k] for one in found] == pytest.approx(expected)


def test_of_very_many_outputs_the_first_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = of_modes(np.random.default_rng(3).choice(10, 90))
    few = HELD.shares(outputs[:64])
    monkeypatch.setattr(across, "COMPARED", 64)
    sizes: list[int] = []
    real = across._table
    monkeypatch.setattr(
        across, "_table", lambda ids, pairs: sizes.append(len(ids)) or real(ids, pairs)
    )
    found = HELD.shares(outputs)
    np.testing.assert_array_equal(found[:64], few)
    assert np.isnan(found[64:]).all()
    assert len(found) == 90
    np.testing.assert_array_equal(HELD.shares(outputs[:70], 90), found)
    assert max(sizes) == 64
    whole = across.share_of(found)
    assert whole.outputs == 64
    assert whole.value == pytest.approx(few.mean())


def test_rows_beyond_the_first_are_not_read() -> None:
    read: list[int] = []

    def rows(_: bool) -> Any:
        for first in range(0, 50, 10):
            read.append(first)
            yield [], np.arange(first, first + 10)[:, None]

    found = PoolRows(50, rows).first(15)
    assert found.ravel().tolist() == list(range(15))
    assert read == [0, 10]
    assert PoolRows(50, rows).first(99).ravel().tolist() == list(range(50))
