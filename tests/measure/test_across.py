"""Diversity across outputs against held-out texts: by hand, its spread, and what decides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from strop.language import Language
from strop.measure.across import DECIDES, MARGIN, HeldOutPairs, _others, _Texts, share_of
from strop.measure.entropy import entropy
from strop.measure.guard import Guard, guard
from strop.stats.interval import Interval
from strop.stats.jackknife import jackknife
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
    outputs = np.tile(np.arange(6), 5)  # six of ten modes, five texts each
    alike = 4 / 29  # of two different outputs
    cross = min(1, 0.1 / SAME)  # two texts of one mode have likeness 1
    assert value(of_modes(outputs)) == pytest.approx(SAME / alike * cross**2)
    assert value(of_modes(outputs)) == pytest.approx(0.6, abs=0.06)
    one = value(of_modes(np.zeros(30, int)))
    assert one == pytest.approx(SAME * cross**2)


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
    assert value(broken) == pytest.approx(SAME / (alike * 7 / 79) * near**2)
    assert value(broken) < value(outputs) / 2


def test_texts_that_are_near_in_the_file_are_not_compared():
    """Pieces of one document in a row: they say nothing of how alike two documents are."""
    pieces = np.repeat(np.random.default_rng(5).permutation(np.tile(np.arange(10), 4)), 3)
    same = np.mean([pieces[i] == pieces[j] for i, j in FAR])
    assert HeldOutPairs(of_modes(pieces))._own[0] == pytest.approx(same)
    # pieces of one document are alike: over all pairs the mean would be another
    every = np.mean([pieces[i] == pieces[j] for i, j in np.ndindex(120, 120) if i != j])
    assert abs(same / every - 1) > 0.05


def test_the_values_are_those_of_leaving_out_each_output():
    modes = np.random.default_rng(3).integers(0, 10, 24)
    outputs, held = (
        of_modes(modes),
        HeldOutPairs(of_modes(np.random.default_rng(2).integers(0, 10, 900))),
    )
    found = held.shares(outputs)
    assert found.mean() == pytest.approx(value(outputs, held))
    left = [value(np.delete(outputs, k, axis=0), held) for k in range(24)]
    pseudo = 24 * value(outputs, held) - 23 * np.array(left)
    centred = pseudo - pseudo.mean()
    # the same up to one factor, which is what the held-out texts add: nearly nothing here
    factor = np.dot(found - found.mean(), centred) / np.dot(centred, centred)
    np.testing.assert_allclose(found - found.mean(), factor * centred, atol=1e-9)
    assert 1 < factor < 1.3
    fewer = HeldOutPairs(of_modes(np.random.default_rng(4).integers(0, 10, 40)))
    assert fewer.shares(outputs).std() > 1.2 * found.std()


def test_its_interval_holds_as_often_as_it_says():
    """60 pools of 64 from ten modes of unequal weight, 128 held-out texts each.

    At 95% fewer than 52 of 60 hold with probability .3%; half the width would hold in 67%.
    """
    law = np.arange(1, 11) / 55
    truth = (law**2).sum() / ((law[4:] / law[4:].sum()) ** 2).sum()
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


WHOLE = guard(LENGTH, of_modes(TEN))
assert WHOLE.pairs is not None


def between(low: float, high: float, n: int = DECIDES) -> Interval:
    return Interval((low + high) / 2, low, high, n=n, how="by hand")


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(0.9, 1, "above"), (0.7, 0.89, "below"), (0.85, 1, "undecided"), (0.89, 0.9, "undecided")],
)
def test_the_three_words_of_diversity(low: float, high: float, word: str):
    assert WHOLE.diverse(between(low, high)) == word
    assert WHOLE.diverse(between(low, high, DECIDES - 1)) is None
    assert replace(WHOLE, texts=()).diverse(between(low, high)) is None
    assert MARGIN == 0.9


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
        assert [one[k] for one in found] == pytest.approx(expected)
