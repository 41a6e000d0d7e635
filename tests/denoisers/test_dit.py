"""The two ways through the network agree: all blocks everywhere, and the last one where asked."""

from __future__ import annotations

import pytest
import torch

from strop.checkpoints.config import DiTShape, expected_tensors
from strop.denoisers.dit import DiT

SHAPE = DiTShape(
    vocab_size=37,
    length=12,
    hidden_dim=24,
    cond_dim=10,
    n_blocks=3,
    n_heads=3,
    dropout=0.1,
    time_conditioning=True,
    mask_id=36,
)


@pytest.fixture(scope="module")
def network() -> DiT:
    torch.manual_seed(3)
    network = DiT(SHAPE).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return network


def test_parameters_are_the_public_ones_in_their_order(network):
    found = {name: tuple(p.shape) for name, p in network.named_parameters()}
    assert list(found.items()) == list(expected_tensors(SHAPE).items())


@pytest.mark.parametrize("rows", [1, 5, 60])
def test_scores_at_some_rows(network, rows):
    """Any rows, in any order and as often as one likes, with a noise level for each sequence."""
    generator = torch.Generator().manual_seed(rows)
    ids = torch.randint(0, 37, (6, 12), generator=generator)
    sigma = torch.rand(6, generator=generator) * 5
    sequence = torch.randint(0, 6, (rows,), generator=generator)
    position = torch.randint(0, 12, (rows,), generator=generator)
    with torch.no_grad():
        everywhere = network.head(network.features(ids, sigma))
        some = network.scores(network.state(ids, sigma), sequence, position)
    assert (some - everywhere[sequence, position]).abs().max() < 1e-4
    assert everywhere.std() > 0.1


def test_noise_level_and_position_matter(network):
    """What the test above compares is not constant."""
    ids = torch.full((2, 12), 36)
    with torch.no_grad():
        scores = network.head(network.features(ids, torch.tensor([0.0, 3.0])))
    assert (scores[0] - scores[1]).abs().max() > 1e-3
    ids[1, 0] = 5
    with torch.no_grad():
        scores = network.head(network.features(ids, torch.zeros(2)))
    assert (scores[0, -1] - scores[1, -1]).abs().max() > 1e-4
