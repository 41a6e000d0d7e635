"""Log-likelihoods: exact with a causal model; the masks of the estimate and their law.

Power: of L = 3 tokens each of 7 sets of masks has probability 1 / (L C(L, l)). With N = 8,000 draws
a law off by .05 in total variation moves the chi-square statistic by at least 4 N .05**2 = 80,
which over 7 outcomes a test at 1e-3 detects with probability above .99. Drawing any of the 7 sets
alike (off by .19, asserted) must fail.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import strop
from strop import SamplerSpec, UserError
from strop.instruments.gpu import loaded
from strop.instruments.pretend import moved, pretended
from strop.interop.likelihood import Pair, check_masked, exact, is_greedy, monte_carlo, patterns

PAIR = Pair((5, 9, 33), (40, 7, 12))
SETS = [s for s in itertools.product([False, True], repeat=3) if any(s)]
LAW = np.array([1 / (3 * math.comb(3, sum(s))) for s in SETS])
SEEDS = 8000


@pytest.fixture(scope="module")
def masked() -> Any:
    return strop.load_model("embedded:tales-tiny", device="cpu")


@pytest.fixture(scope="module")
def table(masked: Any) -> np.ndarray:
    """log p of what each set hides, from the whole table of the denoiser."""
    whole = torch.tensor(PAIR.context + PAIR.response)
    found = []
    for hidden in SETS:
        ids = whole.clone()
        places = [3 + i for i, one in enumerate(hidden) if one]
        ids[places] = masked.mask_id
        law = masked.log_probs(ids[None])[0]
        found.append(sum(float(law[place, whole[place]]) for place in places))
    return np.array(found)


def drawn(samples: int, row: int) -> np.ndarray:
    """How often each set is the `row`-th of so many, over seeds."""
    places = {one: i for i, one in enumerate(SETS)}
    rows = (tuple(patterns(PAIR, samples, seed)[row].tolist()) for seed in range(SEEDS))
    return np.bincount([places[one] for one in rows], minlength=len(SETS))


@pytest.mark.parametrize(("samples", "row"), [(1, 0), (5, 3)])
def test_every_set_of_masks_has_its_probability(samples: int, row: int) -> None:
    counts = drawn(samples, row)
    assert stats.chisquare(counts, LAW * SEEDS).pvalue > 1e-3
    alike = np.full(len(SETS), 1 / len(SETS))
    assert abs(alike - LAW).sum() / 2 > 0.15
    assert stats.chisquare(counts, alike * SEEDS).pvalue < 1e-9


def test_even_steps_give_every_number_of_masks_its_share() -> None:
    many = patterns(PAIR, 9, 4).sum(1)
    assert np.bincount(many).tolist() == [0, 3, 3, 3]


def test_the_estimate_is_that_of_its_masks_and_tends_to_the_bound(masked, table) -> None:
    bound = float((LAW * 3 / np.array([sum(s) for s in SETS]) * table).sum())
    places = {one: i for i, one in enumerate(SETS)}

    def by_hand(samples: int, seed: int) -> float:
        rows = [tuple(one) for one in patterns(PAIR, samples, seed).tolist()]
        return float(np.mean([3 / sum(one) * table[places[one]] for one in rows]))

    for seed in range(3):
        found = monte_carlo(masked, PAIR, samples=16, seed=seed, batch_size=None)
        assert found == pytest.approx(by_hand(16, seed), abs=1e-4)
        assert found == pytest.approx(
            monte_carlo(masked, PAIR, samples=16, seed=seed, batch_size=2), abs=1e-4
        )
    alone = np.array([by_hand(1, seed) for seed in range(2000)])
    error = alone.std(ddof=1) / math.sqrt(len(alone))
    assert abs(alone.mean() - bound) < 4 * error
    # A wrong weight, such as none at all, would be seen.
    assert abs(float((LAW * table).sum()) - bound) > 8 * error


def test_one_token_is_exact(masked: Any) -> None:
    one = Pair((5, 9, 33), (40,))
    ids = torch.tensor([[5, 9, 33, masked.mask_id]])
    wanted = float(masked.log_probs(ids)[0, 3, 40])
    assert monte_carlo(masked, one, samples=7, seed=1, batch_size=None) == pytest.approx(
        wanted, abs=1e-5
    )


def test_greedy_is_what_the_surest_first_decoder_writes(masked: Any) -> None:
    spec = SamplerSpec(name="llada", temperature=0.0, steps=6, block_length=6)
    ids = strop.draw.sample(masked, spec, prompts=[{"ids": [5, 9, 33]}], length=6).ids[0].tolist()
    assert is_greedy(masked, Pair((5, 9, 33), tuple(ids)))
    ids[2] = (ids[2] + 1) % 4000
    assert not is_greedy(masked, Pair((5, 9, 33), tuple(ids)))


def test_causal_models_are_exact_alone_and_in_batches() -> None:
    model: Any = strop.load_model("embedded:tales-ar", device="cpu")
    pairs = [Pair((5, 9), (33, 40, 7)), Pair((1,), (2, 3)), Pair((8, 9), (11, 12, 13))]
    best = model.network(input_ids=torch.tensor([[5, 9]])).logits[0, -1].argmax()
    pairs.append(Pair((5, 9), (int(best),)))
    for size in (None, 1):
        found = exact(model, pairs, size)
        for one, (score, greedy) in zip(pairs, found, strict=True):
            ids = torch.tensor([one.context + one.response])
            law = torch.log_softmax(model.network(input_ids=ids).logits[0].double(), -1)
            rows = law[len(one.context) - 1 : -1]
            wanted = rows.gather(1, torch.tensor(one.response)[:, None]).sum()
            assert score == pytest.approx(float(wanted), abs=1e-4)
            assert greedy == (rows.argmax(-1).tolist() == list(one.response))
        assert found[-1][1]


@pytest.mark.parametrize(("noise", "timed"), [(False, True), (True, False)])
def test_other_noise_and_networks_with_time_are_refused(masked, noise, timed) -> None:
    class Other:
        vocab_size, mask_id = masked.vocab_size, masked.vocab_size if noise else masked.mask_id
        time_conditioned, source, spec = timed, "somewhere", masked.spec

    with pytest.raises(UserError, match="needs masks and a network"):
        check_masked(Other())  # pyright: ignore[reportArgumentType]
    check_masked(masked)


def test_the_random_numbers_belong_to_the_tokens() -> None:
    other = Pair((5, 9, 34), PAIR.response)
    same = patterns(PAIR, 32, 0)
    assert (same == patterns(Pair(PAIR.context, PAIR.response), 32, 0)).all()
    assert (same != patterns(other, 32, 0)).any()
    assert (same != patterns(PAIR, 32, 1)).any()


def test_on_a_gpu_scores_are_made_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never more rows of scores at a time than the device has room for; the number is the CPU's."""
    pair = Pair((5, 9, 33), (30, 7, 12, 1, 2))
    model: Any = loaded("llada", tmp_path)
    want = monte_carlo(model, pair, samples=16, seed=1, batch_size=None)
    asked, real = [], model.logits
    model.logits = lambda states, row, place: asked.append(len(row)) or real(states, row, place)
    monte_carlo(model, pair, samples=16, seed=1, batch_size=None)
    [rows] = asked  # on the CPU at once, as ever
    assert rows > 14
    monkeypatch.setattr("strop.interop.likelihood.head_rows", lambda *_: 7)
    with pretended():
        found = monte_carlo(moved(model), pair, samples=16, seed=1, batch_size=None)
    assert asked[1:] == [7] * (rows // 7) + [rows % 7] * (rows % 7 > 0)
    assert found == pytest.approx(want, abs=1e-5)
