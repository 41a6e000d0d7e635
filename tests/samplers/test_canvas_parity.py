"""BD3-LM's and DiffusionGemma's public samplers, replayed from tests/vectors."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from strop.denoisers.base import carry_over, subs

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

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


def test_bd3lm_logits_and_both_views():
    folder = Folder(VECTORS / "bd3lm")
    model, expected = folder.denoiser, folder.expected
    for one in folder.case["logits"]:
        size, given = one["block_size"], one["input"]
        if isinstance(given, list):
            states = model.beside_clean(*(expected[name].long() for name in given), size)
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
