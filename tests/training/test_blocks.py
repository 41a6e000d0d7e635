"""Block diffusion as it is trained: the law of its noise, the pass over 2n tokens, a whole run."""

from __future__ import annotations

from itertools import combinations
from math import factorial

import numpy as np
import pytest
import torch
from torch import Tensor

import strop
from strop.checkpoints.config import DiTShape
from strop.denoisers.bd3lm import BD3LM, BlockSight, training_sight
from strop.denoisers.dit import DiT
from strop.errors import UserError
from strop.training.data import held_out_losses
from strop.training.documents import Shards
from strop.training.model import Diffusion
from strop.training.objective import (
    NOISES,
    Noise,
    any_order_noise,
    block_noise,
    loss_of,
    surprise_of,
)
from strop.training.spec import ModelSpec, TrainSpec
from training.toy import config, same, train, weights

MASK, LENGTH = 22, 11


@pytest.fixture(scope="module")
def network() -> DiT:
    torch.manual_seed(4)
    made = DiT(DiTShape(MASK + 1, LENGTH, 32, 16, 2, 4, 0.0, False, MASK))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return made


@pytest.fixture
def ids() -> Tensor:
    return torch.randint(0, MASK, (5, LENGTH), generator=torch.Generator().manual_seed(1))


def one_block_at_a_time(network: DiT, ids: Tensor, noise: Noise, block: int) -> Tensor:
    """[B]: every block in a call of its own behind its clean past, nothing side by side."""
    total, mask_id = torch.zeros(len(ids)), network.shape.mask_id
    for first in range(0, ids.shape[1], block):
        mine = slice(first, min(first + block, ids.shape[1]))
        text = ids[:, : mine.stop].clone()
        text[:, mine][noise.hidden[:, mine]] = mask_id
        number = torch.arange(mine.stop) // block
        states = network.features(
            text, torch.zeros(1), sight=BlockSight(number[:, None] >= number[None])
        )
        for row in range(len(ids)):
            where = first + noise.hidden[row, mine].nonzero()[:, 0]
            lost = surprise_of(network.head(states[row, where]), ids[row, where], mask_id)
            total[row] = total[row] + (lost * noise.weight[row, where]).sum()
    return total / ids.shape[1]


@pytest.mark.parametrize("block", [1, 2, 4, 8])
@pytest.mark.parametrize("form", ["any-order", "public"])
def test_one_pass_over_twice_the_tokens_is_one_block_at_a_time(network, ids, block, form):
    noise = block_noise(form, 5, LENGTH, block, torch.Generator().manual_seed(2))
    losses = []
    for loss in (
        Diffusion(network, torch.float32, block)(ids, *noise.tensors()),
        one_block_at_a_time(network, ids, noise, block),
    ):
        network.zero_grad()
        loss.sum().backward()
        grads = [one.grad.clone() for one in network.parameters() if one.grad is not None]
        losses.append((loss.detach(), torch.cat([one.flatten() for one in grads])))
    (fast, there), (slow, here) = losses
    # float32: sums of at most 11 terms of size 3 and weights up to 1000 (at the clipped time).
    assert torch.allclose(fast, slow, rtol=1e-5)
    assert torch.allclose(there, here, rtol=1e-3, atol=1e-5 * float(here.abs().max()))


def test_one_block_as_long_as_the_row_is_masked_diffusion(network, ids):
    whole = block_noise("any-order", 5, LENGTH, LENGTH, torch.Generator().manual_seed(2))
    plain = any_order_noise(5, LENGTH, torch.Generator().manual_seed(2))
    hidden = plain.hidden.clone()
    hidden[:, 0] = False  # given, where every text begins
    assert torch.equal(whole.hidden, hidden)
    given = Noise(hidden, plain.weight * LENGTH / (LENGTH - 1))
    expected = Diffusion(network, torch.float32)(ids, *given.tensors())
    found = Diffusion(network, torch.float32, LENGTH)(ids, *whole.tensors())
    assert torch.allclose(found, expected, rtol=1e-6)
    # Through the doubled pass too, whose clean half nobody sees then.
    both = torch.cat([torch.where(hidden, MASK, ids), ids], 1)
    sight = training_sight(LENGTH, LENGTH, ids.device)
    states = network.features(both, torch.zeros(1), sight=sight)[whole.where()]
    doubled = loss_of(surprise_of(network.head(states), ids[hidden], MASK), whole)
    assert torch.allclose(found, doubled, rtol=1e-5)


def test_blocks_of_one_are_the_causal_loss(network, ids):
    noise = block_noise("any-order", 5, LENGTH, 1)
    assert noise.hidden[:, 1:].all()
    loss = Diffusion(network, torch.float32, 1)(ids, *noise.tensors())
    surprise = []
    for position in range(1, LENGTH):
        read = torch.cat([ids[:, :position], torch.full((5, 1), MASK)], 1)
        number = torch.arange(position + 1)
        states = network.features(
            read, torch.zeros(1), sight=BlockSight(number[:, None] >= number[None])
        )
        surprise.append(surprise_of(network.head(states[:, position]), ids[:, position], MASK))
    assert torch.allclose(loss, torch.stack(surprise).mean(0), rtol=1e-5)


def test_the_noise_of_every_block_is_unbiased_for_its_own_bound():
    """A position's weight, by which others of its block are hidden with it, is the chance that
    exactly these come after it in a uniform order; also where a block is cut short. 150,000 rows:
    the smallest chance, 1/6, is known to 0.4%; a weight of another block is off by half."""
    length, block, rows = 7, 3, 150_000
    noise = block_noise("any-order", rows, length, block, torch.Generator().manual_seed(5))
    hidden = noise.hidden.numpy()
    assert not hidden[:, 0].any()
    for free in ([1, 2], [3, 4, 5], [6]):
        for position in free:
            others = [one for one in free if one != position]
            for size in range(len(others) + 1):
                for with_it in combinations(others, size):
                    pattern = np.isin(others, with_it)
                    here = hidden[:, position] & (hidden[:, others] == pattern).all(1)
                    value = np.where(here, noise.weight.numpy()[:, position], 0) * 6 / 7
                    chance = factorial(size) * factorial(len(others) - size) / factorial(len(free))
                    error = value.std() / np.sqrt(rows)
                    assert abs(value.mean() - chance) < 5 * error + 1e-9, (position, with_it)


def test_blocks_have_levels_of_their_own():
    noise = block_noise("public", 64, 32, 8, torch.Generator().manual_seed(5))
    assert noise.weight.view(64, 4, 8).std(-1).max() == 0
    assert (noise.weight.view(64, 4, 8)[..., 0].std(1) > 0).all()
    apart = NOISES["public"](256, 8, torch.Generator().manual_seed(5))
    assert torch.allclose(noise.weight[:, ::8].flatten(), apart.weight * 32 / 31)


def test_a_run_loads_as_bd3lm_with_the_measured_loss_and_samples_in_its_blocks(corpus):
    rows = {"rows": "wrapped"}
    trained = train(corpus, "blocks", model={"family": "bd3lm", "block_size": 4}, data=rows)
    model = strop.load_denoiser(trained["checkpoint"], device="cpu")
    assert isinstance(model, BD3LM)
    assert (model.block_length, model.length, model.spec.family) == (4, 32, "bd3lm")

    def slow(ids: Tensor, noise: Noise | None) -> Tensor:
        assert noise is not None
        return one_block_at_a_time(model.network, ids, noise, 4)

    losses = held_out_losses(
        slow,
        Shards(corpus / "shards").held_out,
        count=32,
        form="any-order",
        seed=5,
        batch=8,
        block=4,
    )
    measured = trained["held_out"]["nats_per_token"].value
    assert losses.mean() == pytest.approx(measured, rel=1e-5)
    for form in ("fast", "dense"):
        spec = strop.SamplerSpec(name="bd3lm", steps=8, implementation=form)
        pool = strop.draw.sample(model, spec, n=2, seed=3, length=32)
        assert (pool.ids[:, 0] == model.start_id).all()
        assert (pool.ids != model.mask_id).all()
        assert (pool.nfe == 31).all()
    # Whole rows do not begin with blocks.
    with pytest.raises(UserError, match="its family is not the run's"):
        train(corpus, "back", data=rows, start=trained["checkpoint"])


def test_blocks_begin_with_the_weights_of_whole_rows(corpus):
    whole = train(corpus, "whole", data={"rows": "wrapped"}, steps=3)
    blocks = {"family": "bd3lm", "block_size": 8}
    still = {"lr": 1e-30, "warmup": 0, "steps": 2, "seed": 6}
    found = train(
        corpus, "b", model=blocks, data={"rows": "wrapped"}, start=whole["checkpoint"], **still
    )
    assert same(weights(found), weights(whole))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"family": "bd3lm"}, "block size and the family bd3lm"),
        ({"block_size": 4}, "block size and the family bd3lm"),
        ({"family": "bd3lm", "block_size": 0}, "out of range"),
        ({"family": "bd3lm", "block_size": 4, "time_conditioning": True}, "noise level"),
    ],
)
def test_blocks_that_cannot_be_are_refused(model, said):
    with pytest.raises(UserError, match=said):
        TrainSpec(**config(model=model))


def test_networks_without_blocks_keep_their_spelling():
    assert "block_size" not in ModelSpec().canonical()
    assert "block_size" in ModelSpec(family="bd3lm", block_size=4).canonical()
