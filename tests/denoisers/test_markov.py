"""The Markov denoiser against the tabulated one, and the real samplers against enumeration."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from strop import SamplerSpec
from strop.denoisers import Denoiser, MarkovDenoiser, TabularDenoiser
from strop.draw import sample
from strop.errors import UserError
from strop.theory.sampler import LawProblem, output_by_subsets
from strop.theory.target import Target


def random_kernel(values, seed):
    rows = np.random.default_rng(seed).dirichlet(np.full(values, 0.5), size=values)
    return 0.98 * rows + 0.02 / values


@pytest.mark.parametrize(("values", "length"), [(2, 1), (2, 6), (3, 4), (4, 3), (5, 2)])
def test_every_posterior_equals_the_tabulated_one(values, length):
    kernel = random_kernel(values, length)
    exact = TabularDenoiser(Target.markov(kernel, length).P)
    chain = MarkovDenoiser(kernel, length)
    axes = [torch.arange(values + 1)] * length
    ids = torch.cartesian_prod(*axes).reshape(-1, length)
    found, wanted = chain.log_probs(ids), exact.log_probs(ids)
    assert torch.allclose(found.exp(), wanted.exp(), rtol=0, atol=1e-13)
    clean = wanted > -100
    assert torch.allclose(found[clean], wanted[clean], rtol=0, atol=1e-11)


def test_it_is_a_denoiser():
    chain = MarkovDenoiser(random_kernel(3, 0), 16)
    assert isinstance(chain, Denoiser)
    assert (chain.vocab_size, chain.mask_id, chain.length) == (4, 3, 16)
    other = MarkovDenoiser(random_kernel(3, 1), 16)
    assert chain.spec.id != other.spec.id
    assert chain.spec.id == MarkovDenoiser(random_kernel(3, 0), 16).spec.id


def test_logits_at_chosen_rows_are_those_of_the_whole_table():
    chain = MarkovDenoiser(random_kernel(4, 2), 32)
    ids = torch.randint(0, 5, (3, 32), generator=torch.Generator().manual_seed(0))
    hidden = chain.hidden(ids, None)
    assert hidden.shape[:2] == (3, 32)
    sequence, position = torch.tensor([0, 2, 1]), torch.tensor([5, 31, 0])
    rows = chain.logits(hidden, sequence, position)
    assert rows.shape == (3, 5)
    masked = ids[sequence, position] == 4
    whole = chain.log_probs(ids)[sequence, position]
    assert torch.allclose(rows[masked, :4], whole[masked, :4], atol=1e-12)


def test_a_distant_neighbour_says_nothing():
    chain = MarkovDenoiser(random_kernel(3, 3), 1024)
    ids = torch.full((1, 1024), 3)
    ids[0, 0] = 1
    lone = chain.log_probs(torch.full((1, 1024), 3))[0, 0, :3]
    assert torch.allclose(chain.log_probs(ids)[0, 1000, :3], lone, atol=1e-11)
    near = chain.log_probs(ids)[0, 1, :3].exp()
    assert near == pytest.approx(random_kernel(3, 3)[1] / random_kernel(3, 3)[1].sum(), abs=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("kind", ["markov", "tabular"])
@pytest.mark.parametrize("implementation", ["fast", "dense"])
def test_the_samplers_follow_the_enumerated_law(kind, temperature, implementation):
    # 20,000 draws, 26 degrees of freedom, level 1e-6 (limit 79): replacing 2% of the outputs by
    # one of them adds about 20000 * .02^2 / p, above 200 for p < .04, so that is found.
    kernel = random_kernel(3, 7)
    target = Target.markov(kernel, 3)
    denoiser = MarkovDenoiser(kernel, 3) if kind == "markov" else TabularDenoiser(target.P)
    masses, n = (0.3, 0.3, 0.4), 20_000
    spec = SamplerSpec(grid=masses, temperature=temperature, implementation=implementation)
    ids = sample(denoiser, spec, n=n, seed=5, batch_size=n).ids
    problem = LawProblem.bayes(target, np.concatenate([[0], np.cumsum(masses)]), 1 / temperature)
    expected = n * np.exp(output_by_subsets(problem.tables(), problem.masses))
    seen = np.bincount(np.ravel_multi_index(tuple(ids.T), (3, 3, 3)), minlength=27)
    assert ((seen - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 26)
    # the target itself is another law, and these draws can tell
    exact = n * target.p
    assert ((seen - exact) ** 2 / exact).sum() > chi2.isf(1e-6, 26)


@pytest.mark.parametrize(
    ("kernel", "length"),
    [
        ([[1.0, 0.0], [0.5, 0.5]], 4),
        ([[0.5, 0.4], [0.5, 0.5]], 4),
        ([[0.5, 0.5]], 4),
        ([[0.5, 0.5], [0.5, 0.5]], 0),
        ([[float("nan"), 0.5], [0.5, 0.5]], 4),
    ],
)
def test_bad_chains(kernel, length):
    with pytest.raises(UserError):
        MarkovDenoiser(kernel, length)
