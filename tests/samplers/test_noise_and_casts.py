"""Where dense draws its random numbers, and what `dtype=public` casts: names and arithmetic.

No GPU is at hand: on a CPU, noise of the device is a CPU's, and casts are tried on a table.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import strop
from strop import SamplerSpec, TabularDenoiser, UserError
from strop.denoisers.device import resolve_dtype
from strop.denoisers.network import product_dtype
from strop.records import FAMILIES
from strop.samplers.machinery.dense import DenseRun
from strop.samplers.machinery.start import reveal_grid
from strop.verbs.cost import with_noise

LAW = np.random.default_rng(3).random((5, 5, 5)) + 0.05
DENSE = SamplerSpec(steps=4, implementation="dense", precision="float32")
THERE = DENSE.model_copy(update={"noise": "device"})


def test_noise_is_part_of_the_identity_only_where_it_is_the_devices() -> None:
    assert "noise" not in DENSE.canonical()
    assert SamplerSpec(steps=4, implementation="dense", precision="float32", noise="cpu") == DENSE
    assert THERE.id != DENSE.id
    assert SamplerSpec(**THERE.model_dump(mode="json")) == THERE
    with pytest.raises(UserError, match="dense form"):
        SamplerSpec(steps=4, noise="device")


def test_on_a_cpu_the_devices_generator_is_the_cpus() -> None:
    """Also of the samplers that start from noise; the generator is made where the network is."""
    denoiser = TabularDenoiser(LAW / LAW.sum())
    plain, there = (strop.draw.sample(denoiser, one, n=8, seed=4) for one in (DENSE, THERE))
    assert np.array_equal(plain.ids, there.ids)
    assert plain.spec.id != there.spec.id


def test_the_cost_study_draws_on_the_device_and_says_so() -> None:
    fast = SamplerSpec(steps=4)
    specs = [("standard", DENSE), ("standard", fast)]
    assert with_noise(specs, "cpu") == (specs, ())
    found, told = with_noise(specs, "cuda")
    assert [one for _, one in found] == [THERE, fast]
    assert "noise: device" in told[0]
    assert with_noise(specs[1:], "cuda") == (specs[1:], ())


@pytest.mark.parametrize(
    ("family", "cpu", "cuda"),
    [("mdlm", "float32", "public"), ("sedd", "float32", "public"), ("ar", "float32", "float32")],
)
def test_public_is_what_the_familys_code_does_on_a_device(family: str, cpu: str, cuda: str) -> None:
    public = FAMILIES[family].public_dtype
    assert resolve_dtype("public", torch.device("cpu"), public=public) == cpu
    assert resolve_dtype("public", torch.device("cuda"), public=public) == cuda
    assert resolve_dtype("auto", torch.device("cuda"), public=public) == "float32"
    with pytest.raises(UserError):  # nobody knows a plug-in's casts
        resolve_dtype("public", torch.device("cuda"), public=None)


def test_llada_is_bfloat16_in_public_and_so_is_the_network_of_the_others() -> None:
    assert resolve_dtype("public", torch.device("cuda"), public="bfloat16") == "bfloat16"
    assert product_dtype("public") == product_dtype("bfloat16") == torch.bfloat16


class Rounded(TabularDenoiser):
    """Scores as a network in bfloat16 leaves them."""

    def __init__(self, dtype: str) -> None:
        super().__init__(LAW / LAW.sum())
        self.spec = self.spec.model_copy(update={"network_dtype": dtype})

    def logits(self, *rows: torch.Tensor) -> torch.Tensor:
        return super().logits(*rows).bfloat16().float()


def test_public_normalises_in_bfloat16_as_the_public_code_does() -> None:
    """The public code's own lines: mask ruled out, logsumexp, exp, all in bfloat16."""
    ids = torch.full((2, 3), 5)
    runs = [
        DenseRun(
            Rounded(name), DENSE, reveal_grid(DENSE), np.arange(2), 3, generator=torch.Generator()
        )
        for name in ("public", "bfloat16")
    ]
    public, plain = (run.probabilities(run.log_probs(ids, torch.zeros(1))) for run in runs)
    scores = runs[0].logits(ids, torch.zeros(1)).bfloat16()
    scores[..., 5] += -1_000_000.0
    expected = (scores - scores.logsumexp(-1, keepdim=True)).exp()
    assert expected.dtype == torch.bfloat16
    assert torch.equal(public, expected.float())
    assert public.dtype == plain.dtype == torch.float32
    assert not torch.equal(public, plain)
    assert (plain.sum(-1) - 1).abs().max() < 1e-6
