"""The decoders for users on tiny LLaDA and Dream networks: caches, prompts, greedy agreement."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from strop.records.decoders import SETTINGS
from strop.samplers.decoders import RECIPES, fill, recipe
from strop.spec import SamplerSpec

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from vector_replay import Folder, played  # noqa: E402


@pytest.fixture(scope="module", params=["llada", "dream"])
def folder(request) -> Folder:
    return Folder(ROOT / "tests" / "vectors" / request.param)


def filled(
    folder: Folder, name: str, ids, outputs, *, steps: int = 8, given=None, draw=None, **more
):
    settings = {key: setting.default for key, setting in SETTINGS[name].items()}
    settings |= {"block_length": 8} if "block_length" in settings else {}
    found = recipe(name, {**settings, **(given or {})})
    spec = SamplerSpec(name="blockwise", steps=steps, **(draw or {}))
    return fill(folder.denoiser, found, ids, spec, seed=2, outputs=outputs, **more)


def canvases(folder: Folder) -> torch.Tensor:
    """Three prompts, the second with a text after its gap."""
    prompt = folder.expected["prompt_batch"].long()
    ids = torch.nn.functional.pad(prompt, (0, 16), value=folder.denoiser.mask_id)
    ids[1, 17:20] = 5
    return ids


CACHES = [(name, cache) for name in RECIPES for cache in ("none", "prefix", "dual")]
CACHES = [(n, c) for n, c in CACHES if c == "none" or "cache" in SETTINGS[n]]


@pytest.mark.parametrize(("name", "cache"), CACHES)
def test_every_decoder_fills_keeps_what_is_given_and_heeds_no_neighbour(folder, name, cache):
    ids = canvases(folder)
    given = {"cache": cache} if "cache" in SETTINGS[name] else {}
    done = filled(folder, name, ids, [4, 5, 6], given=given)
    mask = folder.denoiser.mask_id
    assert not (done.ids == mask).any()
    assert torch.equal(done.ids[ids != mask], ids[ids != mask])
    assert ((done.order > 0) == (ids == mask).numpy()).all()
    assert (done.order.max(1) <= done.calls).all()
    alone = filled(folder, name, ids[1:2], [5], given=given)
    assert torch.equal(alone.ids[0], done.ids[1])
    assert alone.calls[0] == done.calls[1]


def greedy_runs(folder: Folder) -> list[dict]:
    """Runs of one sequence without chance, whose public code leaves no mask."""
    taken = []
    for run in folder.case["runs"]:
        options = run["options"]
        chance = options["temperature"] > 0 or bool(options.get("alg_temp"))
        chance |= options.get("remasking") == "random" or options.get("alg") == "origin"
        older = run["code"].endswith(("@june", "@july"))
        if not chance and not older and run["prompt"] == "prompt" and not run.get("masks_left"):
            taken.append(run)
    return taken


TIED = {"own/eosconf-T0-full", "hub/entropy-T0-topp"}
"""Runs with equal scores (0 for hushed tokens; no entropy): torch's `topk` and we choose others."""


def own_settings(run: dict) -> tuple[str, dict]:
    """A run's options in our words."""
    options, sampler = run["options"], run["sampler"]
    given = {k: v for k, v in options.items() if k in ("remasking", "alg", "threshold", "factor")}
    given |= {k: v for k, v in options.items() if k in ("block_length", "cfg_scale", "top_k")}
    code = run["code"].partition("@")[0]
    if code == "llada":
        end = {"logits_eos_inf": "never", "confidence_eos_eot_inf": "last"}
        return "llada", given | next(({"end": end[k]} for k in end if k in options), {})
    if code == "dream":
        return "dream", given
    if code == "fast-dllm-dream":
        cache = "none"
        if sampler == "diffusion_generate_block":
            cache = "dual" if options["dual_cache"] else "prefix"
        return "fast-dllm-dream", given | {"cache": cache}
    cache = {"generate": "none", "generate_with_prefix_cache": "prefix"}.get(sampler, "dual")
    commit = "factor" if "factor" in options else "threshold" if "threshold" in options else "quota"
    return "fast-dllm", given | {"cache": cache, "commit": commit}


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_without_chance_both_forms_give_the_same_ids(folder, every):
    """Two implementations, one answer, once the public form may not draw the mask either.

    (It has a share in the public codes' laws, and so in their scores, though it is never drawn in
    the vectors.) Calls that commit nothing are saved.
    """
    runs, public = greedy_runs(folder), folder.denoiser.spec
    assert len(runs) >= 15
    for run in runs[::every]:
        if run["name"] in TIED:
            continue
        name, given = own_settings(run)
        prompt = folder.expected[run["prompt"]].long()
        ids = torch.nn.functional.pad(prompt, (0, run["gen_length"]), value=folder.denoiser.mask_id)
        done = filled(
            folder,
            name,
            ids,
            [0],
            steps=run["options"]["steps"],
            given=given,
            draw={"temperature": 0.0, "top_p": run["options"].get("top_p") or 1.0},
            stops=(300, 301),
        )
        folder.denoiser.spec = public.model_copy(update={"family": "mdlm"})
        literal = played(folder, run)
        folder.denoiser.spec = public
        assert torch.equal(done.ids, literal.ids), run["name"]
        assert int(done.calls[0]) <= run["calls"], run["name"]


def test_rows_of_different_lengths_share_a_batch(folder):
    prompt, mask = folder.expected["prompt_batch"].long(), folder.expected["prompt_batch_mask"]
    starts = (mask == 0).sum(1)
    ids = torch.nn.functional.pad(prompt, (0, 8), value=folder.denoiser.mask_id)
    row = int(starts.argmax())
    assert starts[row] > 0
    batch = filled(folder, "blockwise", ids, [0, 1, 2], starts=starts, draw={"temperature": 0.0})
    short = ids[row : row + 1, int(starts[row]) :]
    alone = filled(folder, "blockwise", short, [row], draw={"temperature": 0.0})
    assert torch.equal(batch.ids[row, starts[row] :], alone.ids[0])
