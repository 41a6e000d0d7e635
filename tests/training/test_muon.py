"""Muon: what an update is, which parameters get it, and that runs with it resume."""

import os
import signal

import pytest
import torch
import toy
from safetensors.torch import load_file
from torch import nn

from strop.checkpoints.config import DiTShape
from strop.denoisers.dit import DiT
from strop.errors import Incomplete
from strop.training.loop import SilentTraining, train
from strop.training.model import Diffusion
from strop.training.optimizers import Muon, matrices, orthogonal


@pytest.mark.parametrize("shape", [(24, 24), (16, 64), (64, 16), (3, 24, 24)])
def test_singular_values_become_about_one(shape):
    update = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    before, after = torch.linalg.svdvals(update), torch.linalg.svdvals(orthogonal(update))
    assert before.max() / before.min() > 1.5
    # The quintic leaves values around one, not at it; tiny ones of a square matrix lag behind.
    assert float(after.max()) < 1.25
    assert float(after.median()) > 0.65
    # The directions stay: U^T X V of the original is close to diagonal.
    u, _, vh = torch.linalg.svd(update, full_matrices=False)
    turned = u.mT @ orthogonal(update) @ vh.mT
    off = turned - torch.diag_embed(turned.diagonal(dim1=-2, dim2=-1))
    assert off.abs().max() < 1e-3


def test_an_update_by_hand():
    start = torch.randn(12, 4, generator=torch.Generator().manual_seed(1))  # query, key, value
    gradients = torch.randn(2, 12, 4, generator=torch.Generator().manual_seed(2))
    matrix = nn.Parameter(start.clone())
    optimizer = Muon([matrix], lr=0.1, momentum=0.9)
    momentum, expected = torch.zeros(12, 4), start.clone()
    for gradient in gradients:
        matrix.grad = gradient.clone()
        optimizer.step()
        momentum = 0.9 * momentum + 0.1 * gradient
        update = 0.1 * gradient + 0.9 * momentum
        for part in range(3):
            rows = slice(4 * part, 4 * part + 4)
            expected[rows] -= 0.1 * orthogonal(update[rows])
    assert torch.allclose(matrix, expected, atol=1e-5)


def test_it_is_for_the_blocks_matrices():
    module = Diffusion(DiT(DiTShape(20, 8, 16, 8, 2, 2, 0.0, False, 19)), torch.float32)
    chosen = {id(parameter) for parameter in matrices(module)}
    names = [name for name, parameter in module.named_parameters() if id(parameter) in chosen]
    expected = ["attn_qkv.weight", "attn_out.weight", "mlp.0.weight", "mlp.2.weight"]
    assert names == [f"network.blocks.{i}.{part}" for i in range(2) for part in expected]


def test_runs_with_muon_resume_bit_for_bit(corpus):
    class Stopper(SilentTraining):
        def advance(self, step, *_others):
            if step == 5:
                os.kill(os.getpid(), signal.SIGTERM)

    def run(name, progress=None):
        return train(
            toy.config(optimizer="muon", steps=10, save_every=None),
            out=corpus / name,
            data_root=corpus,
            shards=corpus / "shards",
            device="cpu",
            progress=progress,
        )

    whole = run("whole")
    with pytest.raises(Incomplete):
        run("stopped", Stopper())
    stopped = run("stopped")
    one, two = (load_file(f"{r['checkpoint']}/model.safetensors") for r in (whole, stopped))
    assert all(torch.equal(one[key], two[key]) for key in one)
