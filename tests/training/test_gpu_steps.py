"""A micro-batch on the pretend device: the CPU's loss and gradients, and the host goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from strop.checkpoints.config import DiTShape
from strop.denoisers.device import upload
from strop.denoisers.dit import DiT
from strop.instruments.gpu import exact
from strop.instruments.pretend import pretended
from strop.training.model import BothWays, Diffusion, Trainable
from strop.training.objective import Noise, llada_noise, placed, public_noise

CUDA = torch.device("cuda:0")
B, L, V = 4, 12, 23


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def diffusion() -> Trainable:
    shape = DiTShape(V, L, 32, 16, 2, 4, 0.0, True, V - 1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = DiT(shape)
        for one in network.parameters():
            torch.nn.init.normal_(one, std=0.1)
    return Diffusion(network, torch.float32)


def both_ways() -> Trainable:
    sizes: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    sizes |= {"vocab_size": V, "num_attention_heads": 2, "is_causal": False}
    config = LlamaConfig(**sizes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return BothWays(LlamaForCausalLM(config), V - 1, torch.float32)


def of_part() -> Noise:
    """Every second row of a batch, as a micro-batch is."""
    return public_noise(2 * B, L, generator()).part(slice(1, None, 2))


def of_responses() -> Noise:
    return placed(llada_noise(B, 5, generator()), torch.tensor([1, 4, 2, 3]), L)


def step(module: Trainable, ids: torch.Tensor, noise: Noise) -> tuple[torch.Tensor, torch.Tensor]:
    losses = module(ids, *noise.tensors())
    losses.mean().backward()
    head = list(module.parameters())[-1].grad
    assert head is not None
    return losses.detach(), head


@pytest.mark.parametrize(
    ("module", "noise", "kinds"),
    [
        (diffusion, of_part, set()),
        (both_ways, lambda: llada_noise(B, L, generator()), set()),
        # Transformers looks whether a mask hides anything.
        (both_ways, of_responses, {"_local_scalar_dense"}),
    ],
)
def test_a_micro_batch_makes_the_host_wait_for_nothing(module, noise, kinds) -> None:
    ids = torch.randint(0, V - 1, (2 * B, L), generator=generator())[::2]
    here, there = module(), module()
    with exact():
        want = step(here, ids, noise())
    with pretended() as watched:
        there.to(CUDA)
        watched.clear()
        found = step(there, upload(ids, CUDA), noise().to(CUDA))
        assert {kind for kind, _ in watched.waits} == kinds, watched.waits
        for a, b in zip(found, want, strict=True):
            assert torch.allclose(a.cpu(), b, rtol=1e-5, atol=1e-7)


def test_cells_are_those_of_the_mask_and_texts_end_where_the_longest_does() -> None:
    noise = of_responses()
    there = noise.to(torch.device("cpu"))
    assert noise.cells is None
    assert there.cells is not None
    assert there.text is not None
    assert np.array_equal(there.cells.numpy(), np.stack(np.nonzero(noise.hidden.numpy())))
    assert there.text.shape == (B, 9)  # a prompt of 4 and a response of 5
    part = there.part(slice(2, 3))
    assert part.cells is None  # rows have other numbers there
    assert torch.equal(part.where()[1], noise.hidden[2].nonzero()[:, 0])
