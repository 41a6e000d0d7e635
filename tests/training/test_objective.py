"""The loss forms against exact sums over all sequences and all mask sets of small targets."""

import functools
import itertools
import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from strop.checkpoints.config import DiTShape
from strop.denoisers.dit import DiT
from strop.denoisers.network import MDLM
from strop.denoisers.tabular import TabularDenoiser
from strop.spec import CheckpointSpec
from strop.training.model import Diffusion
from strop.training.objective import (
    NOISES,
    Noise,
    any_order_noise,
    causal_surprise,
    llada_noise,
    placed,
    public_noise,
)
from training.dense_loss import loss_per_token

V, L = 3, 4
DRAWS = 400_000


@pytest.fixture(scope="module")
def law():
    generator = np.random.default_rng(7)
    table = generator.gamma(0.4, size=(V,) * L) + 1e-3
    return table / table.sum()


@pytest.fixture(scope="module")
def model():
    """A denoiser of another law: an imperfect model of the target."""
    table = np.random.default_rng(8).gamma(0.8, size=(V,) * L) + 1e-3
    return TabularDenoiser(table / table.sum())


def surprise_sums(law, model):
    """E over the target of the summed surprise of the masked tokens, for every mask set."""
    sequences = torch.tensor(list(itertools.product(range(V), repeat=L)))
    weights = torch.from_numpy(law.reshape(-1))
    sums = {}
    for hidden in itertools.product([False, True], repeat=L):
        mask = torch.tensor(hidden)
        table = model.log_probs(torch.where(mask, V, sequences))
        surprise = -table.gather(-1, sequences[..., None])[..., 0]
        sums[hidden] = float((weights * (surprise * mask).sum(-1)).sum())
    return sums


def area(law, model):
    """The bound per token: the mean over mask counts of the mean surprise of a masked token."""
    sums = surprise_sums(law, model)
    return sum(
        value / (L * math.comb(L, sum(hidden)) * sum(hidden))
        for hidden, value in sums.items()
        if any(hidden)
    )


def clipped(law, model):
    """What the public loss estimates: t from 1e-3, masking at .999 t, weight 1/t."""
    sums = surprise_sums(law, model)

    def at(t):
        m = 0.999 * t
        return sum(m ** sum(h) * (1 - m) ** (L - sum(h)) * s for h, s in sums.items()) / (t * L)

    return quad(at, 1e-3, 1, epsabs=1e-12)[0] / (1 - 1e-3)


def llada(law, model, prompt=0):
    """LLaDA's: t from 1e-3, masking at t, weight 1/t, over what follows a prompt of that length."""
    response = L - prompt
    sums = {h[prompt:]: s for h, s in surprise_sums(law, model).items() if not any(h[:prompt])}

    def at(t):
        chance = {h: t ** sum(h) * (1 - t) ** (response - sum(h)) for h in sums}
        return sum(chance[h] * s for h, s in sums.items()) / (t * response)

    return quad(at, 1e-3, 1, epsabs=1e-12)[0] / (1 - 1e-3)


@functools.cache
def many(noise_of, length=L):
    """The noise of many independent batches of 64 (stratified inside a batch)."""
    generator = torch.Generator().manual_seed(11)
    parts = [noise_of(64, length, generator) for _ in range(DRAWS // 64)]
    sigma = None if parts[0].sigma is None else torch.cat([p.sigma for p in parts])
    return Noise(torch.cat([p.hidden for p in parts]), torch.cat([p.weight for p in parts]), sigma)


def draws(law, model, noise):
    """Losses of batches of 64 texts under such noise."""
    generator = torch.Generator().manual_seed(12)
    flat = torch.from_numpy(law.reshape(-1))
    picks = torch.multinomial(flat, DRAWS, replacement=True, generator=generator)
    ids = torch.tensor(list(itertools.product(range(V), repeat=L)))[picks]
    loss = loss_per_token(model, ids, noise=noise).mean(-1)
    return loss.view(-1, 64).mean(-1).double().numpy()  # batches are independent of each other


def z_score(batches, exact):
    return (batches.mean() - exact) / (batches.std(ddof=1) / math.sqrt(len(batches)))


def test_the_area_of_the_exact_denoiser_is_the_entropy(law):
    # An independent anchor for the enumeration itself: chain rule in every order.
    entropy = -(law * np.log(law)).sum()
    assert area(law, TabularDenoiser(law)) == pytest.approx(entropy / L, abs=1e-10)


@pytest.mark.parametrize(
    ("form", "exact"), [("any-order", area), ("public", clipped), ("llada", llada)]
)
def test_the_forms_are_unbiased(law, model, form, exact):
    # 6,250 independent batches. The standard error is below 1% of the value (asserted), so a bias
    # of 5% would be more than five standard errors and fail; by chance this fails once in 16,000.
    batches = draws(law, model, many(NOISES[form]))
    value = exact(law, model)
    assert batches.std(ddof=1) / math.sqrt(len(batches)) < 0.01 * value
    assert abs(z_score(batches, value)) < 4


def test_a_wrong_weight_is_caught(law, model):
    # Negative control: mask count right, weight (L + 1) / k instead of L / k.
    noise = many(any_order_noise)
    wrong = Noise(noise.hidden, noise.weight * (L + 1) / L, None)
    assert abs(z_score(draws(law, model, wrong), area(law, model))) > 8


def after_a_token(noise):
    """Noise over three tokens, placed behind a prompt of one."""
    moved = placed(noise, torch.ones(DRAWS, dtype=torch.long), L)
    return Noise(moved.hidden, moved.weight, moved.sigma)  # no row has filling


def test_after_a_prompt_the_loss_is_that_of_the_response(law, model):
    value, response = llada(law, model, prompt=1), many(llada_noise, L - 1)
    assert abs(z_score(draws(law, model, after_a_token(response)), value)) < 4
    # Negative controls: the prompt masked like the rest, and masked tokens that all count the same.
    assert abs(z_score(draws(law, model, many(llada_noise)), value)) > 8
    unweighted = Noise(response.hidden, torch.ones(DRAWS), None)
    assert abs(z_score(draws(law, model, after_a_token(unweighted)), value)) > 8


def test_placed_noise_lies_in_the_responses():
    noise = llada_noise(64, 5, torch.Generator().manual_seed(1))
    prompts = torch.arange(64) % 7
    moved = placed(noise, prompts, 12)
    for row, prompt in enumerate(prompts.tolist()):
        assert torch.equal(moved.hidden[row, prompt : prompt + 5], noise.hidden[row])
        assert moved.hidden[row].sum() == noise.hidden[row].sum()
        assert moved.text is not None
        assert moved.text[row].tolist() == [True] * (prompt + 5) + [False] * (7 - prompt)


def test_the_clipped_bound_is_not_the_bound(law, model):
    # The two targets differ by little; the exact numbers show that it is not nothing.
    assert area(law, model) - clipped(law, model) > 1e-4


def test_public_noise_has_the_public_rates():
    generator = torch.Generator().manual_seed(0)
    noise = public_noise(4096, 512, generator)
    t = 1 / noise.weight
    assert float(t.min()) >= 1e-3 * (1 - 1e-4)
    assert float(t.max()) <= 1 + 1e-4
    strata = ((t.sort().values - 1e-3) / (1 - 1e-3) * 4096).floor().clamp(max=4095)
    assert (strata - torch.arange(4096)).abs().max() <= 1  # rounding at the borders
    # Masked share against .999 t over 2 million tokens: standard error about 3e-4.
    assert float((noise.hidden.float().mean(1) - 0.999 * t).mean()) == pytest.approx(0, abs=1.5e-3)


def test_any_order_counts_are_uniform_and_exact():
    generator = torch.Generator().manual_seed(0)
    counts = torch.cat([any_order_noise(16, 8, generator).hidden.sum(1) for _ in range(2000)])
    assert counts.min() == 1
    assert counts.max() == 8
    # 32,000 counts in strata of 16: every value gets an eighth.
    share = torch.bincount(counts, minlength=9)[1:] / len(counts)
    assert torch.allclose(share, torch.full((8,), 1 / 8), atol=0.01)


def small_network(seed=0, time_conditioning=False):
    shape = DiTShape(23, 12, 32, 16, 2, 4, 0.0, time_conditioning, 22)
    torch.manual_seed(seed)
    network = DiT(shape)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    spec = CheckpointSpec(family="mdlm", sha256="0" * 64, shape={"length": 12})
    return network, MDLM(DiT(shape), spec, source="test")


@pytest.mark.parametrize(
    ("form", "time_conditioning"), [("public", False), ("public", True), ("any-order", False)]
)
def test_head_at_masked_positions_gives_the_dense_numbers(form, time_conditioning):
    network, denoiser = small_network(time_conditioning=time_conditioning)
    denoiser.network.load_state_dict(network.state_dict())
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(0, 22, (6, 12), generator=generator)
    noise = NOISES[form](6, 12, generator)
    module = Diffusion(network, torch.float32)
    sparse = module(ids, noise.hidden, noise.weight, noise.sigma)
    dense = loss_per_token(denoiser, ids, noise=noise)
    assert (dense[~noise.hidden] == 0).all()
    assert torch.allclose(sparse, dense.mean(-1), rtol=1e-5, atol=1e-6)


def test_gradients_are_those_of_the_dense_formula():
    network, _ = small_network()
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(0, 22, (6, 12), generator=generator)
    noise = any_order_noise(6, 12, generator)
    Diffusion(network, torch.float32)(ids, noise.hidden, noise.weight).mean().backward()
    sparse = {k: p.grad.clone() for k, p in network.named_parameters()}
    network.zero_grad()
    logits = network.head(network.features(torch.where(noise.hidden, 22, ids), torch.zeros(6)))
    penalty = torch.zeros(23).index_fill(0, torch.tensor([22]), -1e6)
    table = (logits + penalty).log_softmax(-1)
    surprise = -table.gather(-1, ids[..., None])[..., 0] * noise.hidden
    (surprise * noise.weight[:, None]).mean().backward()
    for key, parameter in network.named_parameters():
        assert torch.allclose(sparse[key], parameter.grad, rtol=1e-4, atol=1e-6), key
    assert (sparse["output_layer.linear.weight"][22] == 0).all()  # the mask is never predicted


def test_causal_surprise_predicts_the_next_token():
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(2, 5, 7, generator=generator)
    ids = torch.randint(0, 7, (2, 5), generator=generator)
    got = causal_surprise(logits, ids)
    for b, i in itertools.product(range(2), range(4)):
        expected = -logits[b, i].log_softmax(-1)[ids[b, i + 1]]
        assert float(got[b, i]) == pytest.approx(float(expected), abs=1e-6)
