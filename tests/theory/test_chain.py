"""The profiles of a Markov chain against the enumeration of the same chain at small lengths."""

from __future__ import annotations

import numpy as np
import pytest

from strop.errors import UserError
from strop.theory.accounting import Chain, account, entropy_profile, random_chain
from strop.theory.sampler import LawProblem, clipped_masses
from strop.theory.target import Target
from theory.chain_pairs import calibrate, pooled_pairs


@pytest.mark.parametrize("length", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("lam", [0.6, 1.0, 2.2])
def test_account_equals_enumeration(length, lam):
    chain = random_chain(3, length, np.random.default_rng(length))
    target = Target.markov(chain.kernel, length)
    grid = np.array([0, 0.15, 0.6, 1])
    wanted = account(LawProblem.bayes(target, grid, lam))
    price, loss = chain.account(np.diff(grid), [lam])
    assert price == pytest.approx(wanted.B_N, abs=1e-12)
    assert loss[0] == pytest.approx(wanted.C_N, abs=1e-12)
    assert chain.entropy == pytest.approx(target.entropy, abs=1e-12)


def test_beyond_the_mixing_time_nothing_is_lost():
    # Rows that differ by .02: the chain forgets within eight steps, far below the length of 9.
    kernel = np.array([[0.51, 0.49], [0.49, 0.51]])
    chain = Chain(kernel, 9)
    assert len(chain.powers) < 9
    target = Target.markov(kernel, 9)
    levels = np.array([0.0, 0.1, 0.5, 0.9])
    found = chain.profiles(levels, [1.0])[0]
    assert found == pytest.approx(entropy_profile(target)(levels), abs=1e-11)


def test_one_update_per_token_leaves_little():
    chain = random_chain(4, 256, np.random.default_rng(0))
    few, _ = chain.account(clipped_masses(4), [1.0])
    many, _ = chain.account(clipped_masses(256), [1.0])
    # B_N falls like 1/N: the masses are 64 times smaller.
    assert few / many == pytest.approx(64, rel=0.5)


def test_draws_follow_the_chain():
    # 4000 x 16 pairs in 9 cells, five standard errors of a binomial share.
    chain = random_chain(3, 17, np.random.default_rng(1))
    ids = chain.draw(4000, np.random.default_rng(2))
    shares = np.bincount((ids[:, :-1] * 3 + ids[:, 1:]).reshape(-1), minlength=9) / (4000 * 16)
    assert np.abs(shares - chain.pairs.reshape(-1)).max() < 5 * np.sqrt(0.25 / 4000)
    nll = -chain.log_likelihood(ids)
    assert abs(nll.mean() - chain.entropy) < 5 * nll.std() / np.sqrt(4000)


@pytest.mark.parametrize(
    "kernel", [[[1.0, 0.0], [0.5, 0.5]], [[0.5, 0.4], [0.5, 0.5]], [[0.5, 0.5]], [1.0]]
)
def test_bad_matrices(kernel):
    with pytest.raises(UserError):
        Chain(kernel, 4)


def test_pooled_pairs_of_the_chain_itself():
    chain = random_chain(3, 5, np.random.default_rng(4))
    assert pooled_pairs(Target.markov(chain.kernel, 5).P) == pytest.approx(chain.pairs, abs=1e-14)


def test_two_tokens_have_one_optimum():
    found = calibrate(random_chain(3, 2, np.random.default_rng([1, 3])), 2)
    assert found.pairs == pytest.approx(found.whole, abs=1e-5)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_pairs_understate_the_sharpening_that_whole_outputs_want(seed):
    # Seen on these chains, not a theorem; the docs quote it.
    found = calibrate(random_chain(3, 6, np.random.default_rng([seed, 3])), 2)
    assert 1 < found.pairs < found.whole
