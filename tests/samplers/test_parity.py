"""Bit for bit what the public codes return, from the vectors in tests/vectors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import strop
from strop.training.objective import loss_per_token

VECTORS = Path(__file__).parents[1] / "vectors"
NAMES = {
    "ddpm": "ancestral-uncached",
    "ddpm_cache": "ancestral",
    "analytic": "analytic",
    "ancestral_cache": "ancestral-duo",
}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # stable sums
    yield
    torch.set_num_threads(threads)


def load(folder: str):
    with pytest.warns(UserWarning, match="how long"):
        denoiser = strop.load_denoiser(VECTORS / folder / "weights.safetensors", device="cpu")
    expected = load_file(VECTORS / folder / "expected.safetensors")
    return denoiser, expected, json.loads((VECTORS / folder / "case.json").read_text())


def runs(folder: str) -> list:
    case = json.loads((VECTORS / folder / "case.json").read_text())
    return [pytest.param(run, id=f"{folder}-{run['name']}") for run in case["runs"]]


def test_logits_and_log_probs():
    denoiser, expected, _ = load("mdlm")
    network, ids = denoiser.network, expected["ids"]
    for key, sigma in (("logits", 0.0), ("logits_sigma_0.7", 0.7)):
        with torch.no_grad():
            logits = network.head(network.features(ids, torch.full((len(ids),), sigma)))
        assert (logits - expected[key]).abs().max() < 1e-5
    log_probs = denoiser.log_probs(ids)
    assert (log_probs - expected["log_p_subs"]).abs().max() < 1e-5
    assert log_probs.device.type == "cpu"
    assert not log_probs.requires_grad


def test_training_loss():
    denoiser, expected, case = load("mdlm")
    generator = torch.Generator().manual_seed(case["nll_seed"])
    loss = loss_per_token(denoiser, expected["nll_x0"], generator)
    assert (loss - expected["nll_per_token"]).abs().max() < 1e-5
    assert (loss > 0).any()


@pytest.mark.parametrize("run", runs("mdlm"))
def test_mdlm_ids(run):
    denoiser, expected, _ = load("mdlm")
    spec = strop.SamplerSpec(
        name=NAMES[run["predictor"]],
        steps=run["steps"],
        precision="float32",
        implementation="dense",
    )
    wanted = expected[run["expected"]].numpy()
    pool = strop.sample(denoiser, spec, n=3, seed=run["seed"], batch_size=3, length=16)
    assert (pool.ids == wanted).all()
    assert (pool.nfe == run["calls"]).all()


@pytest.mark.parametrize("run", runs("duo_mdlm"))
def test_duo_ids(run):
    denoiser, expected, _ = load("duo_mdlm")
    name = NAMES[run["options"]["predictor"]].removesuffix("-duo") + "-duo"
    finish = {"greedy": "greedy"}.get(run["options"].get("noise_removal", ""), "draw")
    spec = strop.SamplerSpec(
        name=name, steps=run["steps"], precision="float64", implementation="dense", finish=finish
    )
    wanted = expected[run["expected"]].numpy()
    pool = strop.sample(denoiser, spec, n=3, seed=run["seed"], batch_size=3, length=16)
    assert (pool.ids == wanted).all()
    assert (pool.nfe == run["calls"]).all()


def test_another_precision_seed_or_cache_rule_is_noticed():
    denoiser, expected, _ = load("mdlm")
    wanted = expected["ids/ddpm_cache-64"].numpy()
    spec = strop.SamplerSpec(steps=64, precision="float32", implementation="dense")
    same = {"n": 3, "seed": 123, "batch_size": 3, "length": 16}
    assert (strop.sample(denoiser, spec, **same).ids == wanted).all()
    assert not (strop.sample(denoiser, spec, **{**same, "seed": 124}).ids == wanted).all()
    double = spec.model_copy(update={"precision": "float64"})
    assert not (strop.sample(denoiser, double, **same).ids == wanted).all()
    uncached = spec.model_copy(update={"name": "ancestral-uncached"})
    assert (strop.sample(denoiser, uncached, **same).nfe == 65).all()  # 33 with the cache


def test_later_batches_have_streams_of_their_own():
    denoiser, _, _ = load("mdlm")
    spec = strop.SamplerSpec(steps=4, precision="float32", implementation="dense")
    pool = strop.sample(denoiser, spec, n=6, seed=123, batch_size=3, length=16)
    first = strop.sample(denoiser, spec, n=3, seed=123, batch_size=3, length=16)
    assert (pool.ids[:3] == first.ids).all()
    assert not (pool.ids[3:] == first.ids).all()
    assert len(np.unique(pool.ids, axis=0)) == 6
