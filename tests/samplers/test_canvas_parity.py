"""BD3-LM's and DiffusionGemma's public samplers, replayed from tests/vectors."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from strop.denoisers.base import carry_over, subs
from strop.denoisers.bd3lm import training_sight
from strop.samplers.bd3lm import SemiAR, Try

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from canvas_replay import diffusion_gemma  # noqa: E402
from vector_replay import Folder  # noqa: E402

VECTORS = ROOT / "tests" / "vectors"
ATOL = 5e-4
"""The vectors' own tolerance for another float32 implementation."""
CHEAP = {"bd3lm": 60, "diffusion_gemma": 22}
"""Network calls of the runs that every test run replays; the others are marked slow."""
ALL = {"bd3lm": 29, "diffusion_gemma": 36}


@pytest.fixture(scope="module", params=sorted(ALL))
def folder(request) -> Folder:
    return Folder(VECTORS / request.param)


def replayed(folder: Folder, runs: list[dict]) -> list[str]:
    return [done.line for run in runs if not (done := folder.run(run)).identical]


def test_the_cheap_runs_are_identical(folder):
    runs = [run for run in folder.case["runs"] if run["calls"] <= CHEAP[folder.family]]
    assert len(runs) >= 6
    assert replayed(folder, runs) == []


@pytest.mark.slow
def test_every_run_is_identical(folder):
    assert len(folder.case["runs"]) == ALL[folder.family]
    assert replayed(folder, folder.case["runs"]) == []


@pytest.mark.parametrize(
    ("key", "change"),
    [("seed", 1), ("next_rand", 0.5), ("calls", 3), ("options", None)],
)
def test_another_seed_number_count_or_option_is_noticed(folder, key, change):
    name = {"bd3lm": "fh-b4-p.9", "diffusion_gemma": "t-cold"}[folder.family]
    other = {"bd3lm": {"nucleus_p": 0.8}, "diffusion_gemma": {"t_max": 0.05}}[folder.family]
    run = next(run for run in folder.case["runs"] if run["name"] == name)
    value = {**run["options"], **other} if key == "options" else change
    assert folder.run({**run, key: value}).identical is False


@pytest.mark.parametrize(
    "options",
    [
        {"t_max": 1.1, "t_min": 0.2, "entropy_bound": 0.3, "max_denoising_steps": 7},
        {"eos_token_id": [5, 9, 11], "pad_token_id": 4, "max_new_tokens": 30, "entropy_bound": 2.0},
        {"eos_token_id": 7, "max_new_tokens": 17, "stability_threshold": 2, "seed": 8},
        {"max_length": 40, "stability_threshold": 0, "confidence_threshold": 2.5},
    ],
)
def test_transformers_own_generate_agrees_at_settings_that_no_vector_has(options):
    """Ids, tokens per call and the generator's next number, of batches of prompts too."""
    from transformers.models.diffusion_gemma.generation_diffusion_gemma import (
        EntropyBoundSamplerConfig,
    )

    folder = Folder(VECTORS / "diffusion_gemma")
    most = 256 if "max_length" in options else 12
    ends = {"eos_token_id": 3, "pad_token_id": 0}  # else theirs come from the configuration
    options = {"max_new_tokens": most, "max_denoising_steps": 5, **ends, **options}
    run = {"options": options, "seed": options.pop("seed", 3), "prompt": "rows"}
    generator = torch.Generator().manual_seed(1)
    vocabulary = folder.denoiser.vocab_size
    folder.expected["rows"] = torch.randint(12, vocabulary, (3, 13), generator=generator)
    ours = diffusion_gemma(folder, run)
    theirs = {key: value for key, value in options.items() if key != "entropy_bound"}
    bound = EntropyBoundSamplerConfig(options.get("entropy_bound", 0.1))
    with torch.random.fork_rng():
        torch.manual_seed(run["seed"])
        found = folder.denoiser.network.generate(
            folder.expected["rows"], sampler_config=bound, **theirs
        )
        following = float(torch.rand(1, dtype=torch.float64))
    assert torch.equal(ours["ids"], found.sequences)
    assert ours["tokens_per_forward"] == found.tokens_per_forward.tolist()
    assert ours["next_rand"] == following


def test_the_public_code_of_bd3lm_gives_up_where_blocks_of_one_should_stop():
    """Of a text of varying length, whose tail is one token: blocks of two are cut, of one lost."""
    model = Folder(VECTORS / "bd3lm").denoiser
    for size, lost in ((1, True), (2, False)):
        ids = torch.full((1, 260), 5)
        ids[0, -1] = model.mask_id
        options = SemiAR(size, num_steps=4, var_length=True, eos_id=0)
        one = Try(ids, options, model, torch.Generator(), np.random.RandomState(0))
        text = one.run()
        assert one.given_up is lost
        assert (text is None) is lost
        assert lost or text.shape[1] < 8


def test_bd3lm_logits_and_both_views():
    folder = Folder(VECTORS / "bd3lm")
    model, expected = folder.denoiser, folder.expected
    for one in folder.case["logits"]:
        size, given = one["block_size"], one["input"]
        if isinstance(given, list):
            noisy, clean = (expected[name].long() for name in given)
            sight = training_sight(noisy.shape[1], size, noisy.device)
            both, still = torch.cat([noisy, clean], 1), torch.zeros(len(noisy))
            with torch.no_grad():
                states = model.network.features(both, still, model.dtype, sight)
            states = states[:, : noisy.shape[1]]
        else:
            ids = expected[given].long()
            states = model.advance(ids, None, block=size, keep=0)[0]
        rows, columns = states.shape[:2]
        where = torch.arange(rows).repeat_interleave(columns), torch.arange(columns).repeat(rows)
        found = model.logits(states, *where).view(rows, columns, -1)
        if one["expected"].startswith("logp"):
            found = carry_over(subs(found, model.mask_id), expected[given].long(), model.mask_id)
        assert (found - expected[one["expected"]]).abs().max() < ATOL, one["expected"]


def test_diffusion_gemma_logits():
    folder = Folder(VECTORS / "diffusion_gemma")
    model, expected = folder.denoiser, folder.expected
    for one in folder.case["logits"]:
        mask = one.get("mask")
        seen = None if mask is None else expected[mask].bool()
        memory = model.encode(expected[one["prompt"]].long(), None, seen)
        if "encoded_canvas" in one:
            memory = model.encode(expected[one["encoded_canvas"]].long(), memory)
        if one["expected"].startswith("encoder"):
            found = memory.states
        else:
            before = one["self_conditioning"]
            before = None if before is None else expected[before]
            found = model.denoise(expected[one["canvas"]].long(), memory, before)
        assert (found - expected[one["expected"]]).abs().max() < ATOL, one["expected"]
