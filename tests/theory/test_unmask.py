"""The parallel sampler on a chain, against laws that are known: the chain's own and a product."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from strop.denoisers.tabular import MarkovDenoiser
from strop.theory.accounting import random_chain

PATH = Path(__file__).parents[2] / "benchmarks" / "verdicts.py"
SPEC = importlib.util.spec_from_file_location("benchmark_of_verdicts", PATH)
assert SPEC is not None
assert SPEC.loader is not None
verdicts = sys.modules[SPEC.name] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(verdicts)
unmask = verdicts.unmask

COUNT = 8000
SIGMAS = 5.0
"""Of at most 64 frequencies compared at once, none is that far off by chance (4e-5)."""


def _off(found: np.ndarray, law: np.ndarray, outputs: int) -> float:
    """The largest distance in standard errors of independent outputs."""
    return float((np.abs(found - law) / np.sqrt(law * (1 - law) / outputs)).max())


def _pairs(ids: np.ndarray, at: int, values: int) -> np.ndarray:
    found = np.zeros((values, values))
    np.add.at(found, (ids[:, at], ids[:, at + 1]), 1 / len(ids))
    return found


def test_one_token_at_a_time_draws_the_chain_itself():
    chain = random_chain(5, 12, np.random.default_rng(0))
    ids = unmask(chain, COUNT, rounds=12, temperature=1.0, seed=1)
    for at in (0, 5, 10):
        assert _off(_pairs(ids, at, 5), chain.pairs, COUNT) < SIGMAS


def test_all_at_once_draws_every_token_by_itself():
    chain = random_chain(5, 12, np.random.default_rng(0))
    ids = unmask(chain, COUNT, rounds=1, temperature=1.0, seed=1)
    assert _off(_pairs(ids, 4, 5), np.outer(chain.start, chain.start), COUNT) < SIGMAS
    assert _off(_pairs(ids, 4, 5), chain.pairs, COUNT) > SIGMAS


def test_posteriors_are_those_of_the_denoiser():
    import torch

    chain, tau = random_chain(4, 6, np.random.default_rng(2)), 0.7
    left, right = verdicts._tables(chain, 1 / tau)
    # position 2 between token 3, two places to the left, and token 1, one place to the right
    mine = left[1 + 1 * 4 + 3] * right[1 + 0 * 4 + 1]
    ids = torch.tensor([[3, 4, 4, 1, 4, 4]])
    log_probs = MarkovDenoiser(chain.kernel, 6).log_probs(ids)[0, 2, :4].numpy() / tau
    theirs = np.exp(log_probs - log_probs.max())
    np.testing.assert_allclose(mine / mine.sum(), theirs / theirs.sum(), rtol=1e-9)


def test_a_seed_draws_the_same_at_any_count_and_by_the_same_numbers_at_any_temperature():
    chain = random_chain(5, 12, np.random.default_rng(0))
    few = unmask(chain, 10, rounds=4, temperature=0.9, seed=3)
    many = unmask(chain, 2100, rounds=4, temperature=0.9, seed=3)
    np.testing.assert_array_equal(few, many[:10])
    near = unmask(chain, 2100, rounds=4, temperature=0.9001, seed=3)
    assert (near == many).mean() > 0.99


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"rounds": 13}, {"temperature": 0.0}])
def test_wrong_rounds_or_temperature(wrong):
    chain = random_chain(5, 12, np.random.default_rng(0))
    with pytest.raises(AssertionError):
        unmask(chain, 4, **{"rounds": 4, "temperature": 1.0, "seed": 0, **wrong})
