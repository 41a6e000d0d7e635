"""Block models: the public codes to the bit, the loop for users by enumeration and by company."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from laws import chi_square, counts

import strop
from strop.denoisers import TabularDenoiser
from strop.samplers.machinery.block_loop import BlockReader
from strop.samplers.public_blocks import FastV2Options, PublicText, fast_dllm_v2

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from vector_replay import Folder  # noqa: E402

RUNS = {"sdar": 20, "llada2": 53, "fast_dllm_v2": 12}
FEW = {"sdar": 5, "llada2": 9, "fast_dllm_v2": 5}
"""Every so many runs are replayed where time counts."""
FORMS = {
    "sdar": ("sdar", {"top_k": 1, "threshold": 0.3}),
    "llada2": ("llada2", {"threshold": 0.5}),
    "llada2-edit": ("llada2-edit", {"threshold": 0.3, "editing_threshold": 0.3}),
    "fast-dllm-v2": ("fast-dllm-v2", {"threshold": 0.4, "small_block": 4}),
}


def _folder(family: str) -> Folder:
    name = {"llada2-edit": "llada2"}.get(family, family).replace("-", "_")
    if name not in _OPEN:
        _OPEN[name] = Folder(ROOT / "tests" / "vectors" / name)
    return _OPEN[name]


_OPEN: dict[str, Folder] = {}


@pytest.mark.parametrize("family", RUNS)
def test_some_runs_of_the_public_code_are_identical(family):
    folder = _folder(family)
    runs = [run for run in folder.case["runs"] if "prompt_changed" not in run][:: FEW[family]]
    runs += [run for run in folder.case["runs"] if "overwritten" in run["name"]]
    runs += [run for run in folder.case["runs"] if "padded" in run["name"]]
    runs = runs or folder.case["runs"][:: FEW[family]]
    assert [line for run in runs if (line := _said(folder, run))] == []


@pytest.mark.slow
@pytest.mark.parametrize("family", RUNS)
def test_every_run_of_the_public_code_is_identical(family):
    folder = _folder(family)
    assert len(folder.case["runs"]) == RUNS[family]
    assert [line for run in folder.case["runs"] if (line := _said(folder, run))] == []


def _said(folder: Folder, run: dict) -> str:
    done = folder.run(run)
    return "" if done.identical else done.line


@pytest.mark.parametrize("family", RUNS)
def test_another_seed_or_count_is_noticed(family):
    folder = _folder(family)
    run = next(run for run in folder.case["runs"] if "T" in run["name"] and run["calls"] < 30)
    assert folder.run({**run, "calls": 0}).identical is False
    assert folder.run({**run, "next_rand": 0.5}).differs == ("next_rand",)


@pytest.mark.parametrize(
    ("family", "name", "block"),
    [
        ("sdar", "logits/block4", 4),
        ("llada2", "logits/block_causal", 8),
        ("llada2", "logits/full", 64),
        ("fast_dllm_v2", "logits/block8", 8),
    ],
)
def test_logits_are_the_public_networks_with_and_without_a_memory(family, name, block):
    folder = _folder(family)
    model, ids = folder.denoiser, folder.expected["input/canvas"].long()
    head = model.network.get_output_embeddings()  # raw: Fast-dLLM v2's are not shifted here
    whole = head(BlockReader(model, block).read(ids, ids.shape[1], keep=0))
    tolerance = folder.case["logits_tolerance"]["use_atol"]
    assert (whole - folder.expected[name]).abs().max() < tolerance
    reader = BlockReader(model, block)
    for start in range(0, ids.shape[1], block):
        end = min(start + block, ids.shape[1])
        reader.read(ids, end, keep=start)  # a look that leaves nothing behind
        part = head(reader.read(ids, end, keep=end))
        assert (part - folder.expected[name][:, start:end]).abs().max() < tolerance


def _spec(form: str, implementation: str, **changes) -> strop.SamplerSpec:
    name, settings = FORMS[form]
    fields = {
        "name": name,
        "steps": 4,
        "temperature": 1.0 if name == "sdar" else 0.0,
        "implementation": implementation,
        "settings": {"block_length": 8, **settings},
        **changes,
    }
    return strop.SamplerSpec(**fields)


@pytest.mark.filterwarnings("ignore:.*trained in blocks")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("prompt", [8, 16, 21])
def test_where_nothing_is_random_both_forms_write_the_same(form, prompt):
    """The public loop and the users' loop share no code but the reader."""
    folder = _folder(form)
    model = folder.denoiser
    ids = (
        folder.expected[f"prompt/{min(prompt, 13) if form == 'sdar' else prompt}"]
        if (form != "sdar" or prompt == 21)
        else folder.expected["prompt/4"]
    )
    if form == "fast-dllm-v2" and prompt == 8:
        pytest.skip("the public code does not see a prompt of one block")
    prompts = [{"ids": ids[0].tolist()}]
    pools = [
        strop.draw.sample(model, _spec(form, one), n=1, prompts=prompts, length=24)
        for one in ("dense", "fast")
    ]
    known = pools[0].ids != model.mask_id  # Fast-dLLM v2 rounds the length down
    assert known.sum() >= 16
    assert (pools[0].ids == pools[1].ids)[known].all()


ODD = [
    ("llada2", 17, 7, {"block_length": 8, "threshold": 0.9}, 8),  # more steps than tokens
    ("llada2", 5, 13, {"block_length": 16, "threshold": 1.0}, 19),
    ("llada2", 3, 1, {"block_length": 3, "threshold": 0.0, "stop": "early"}, 1),
    ("llada2-edit", 9, 13, {"block_length": 5, "num_to_transfer": 4, "max_post_steps": 0}, 1),
    ("llada2-edit", 1, 24, {"block_length": 12, "editing_threshold": 0.0, "stop": "block"}, 1),
    ("sdar", 10, 7, {"block_length": 5, "remasking": "sequential"}, 2),
    ("fast-dllm-v2", 5, 27, {"block_length": 16, "small_block": 2, "stop": "never"}, 1),
]
"""Prompts, lengths and blocks that do not divide each other, ends inside a block."""


@pytest.mark.filterwarnings("ignore:.*trained in blocks")
@pytest.mark.parametrize(("form", "prompt", "length", "settings", "steps"), ODD)
def test_both_forms_write_the_same_at_odd_lengths(form, prompt, length, settings, steps):
    model, rng = _folder(form).denoiser, np.random.default_rng(prompt)
    prompts = [{"ids": rng.integers(60, size=prompt).tolist()} for _ in range(3)]
    settings = {**FORMS[form][1], **settings}
    model.stop_ids, kept = (int(rng.integers(60)),), model.stop_ids
    try:
        public, ours = (
            strop.draw.sample(model, spec, n=3, prompts=prompts, length=length)
            for one in ("dense", "fast")
            for spec in [_spec(form, one, steps=steps, settings=settings)]
        )
    finally:
        model.stop_ids = kept
    known = public.ids != model.mask_id
    assert known.any()
    assert (public.ids == ours.ids)[known].all()


def test_a_public_code_that_commits_masks_ends_with_a_message(monkeypatch):
    """At temperature 0 the same call would come back for ever."""
    model = _folder("fast_dllm_v2").denoiser
    monkeypatch.setattr(model, "mask_id", 30)
    told = []
    text = PublicText(model, torch.full((1, 3), 5), torch.Generator(), on_call=told.append)
    monkeypatch.setattr("strop.samplers.public_blocks.ROUNDS", 40)
    monkeypatch.setattr(text, "race", lambda probs: torch.full((len(probs),), model.mask_id))
    asked = FastV2Options(max_new_tokens=8, block_size=8, small_block_size=4, temperature=1.0)
    with pytest.raises(strop.UserError, match="commits masks"):
        fast_dllm_v2(text, asked)
    assert len(told) == 40


@pytest.mark.filterwarnings("ignore:.*trained in blocks")
@pytest.mark.parametrize("form", FORMS)
def test_an_output_does_not_depend_on_its_company(form):
    model = _folder(form).denoiser
    spec = _spec(form, "fast", temperature=1.0, settings={"block_length": 4, **FORMS[form][1]})
    together = strop.draw.sample(model, spec, n=5, seed=3, length=14, batch_size=5)
    apart = strop.draw.sample(model, spec, n=5, seed=3, length=14, batch_size=2)
    assert (together.ids == apart.ids).all()
    assert (together.nfe == apart.nfe).all()
    assert len({row.tobytes() for row in together.ids}) > 1 or form == "sdar"
    assert not (together.ids == model.mask_id).any()


def _law(settings: dict, **fields) -> tuple[float, np.ndarray]:
    """The p-value of 6,000 outputs against the target, and their calls."""
    rng = np.random.default_rng(5)
    target = rng.dirichlet(np.full(81, 0.5)).reshape(3, 3, 3, 3)
    spec = strop.SamplerSpec(temperature=1.0, settings=settings, **fields)
    pool = strop.draw.sample(TabularDenoiser(target), spec, n=6000, seed=2, batch_size=3000)
    return chi_square(counts(pool.ids, 3)[:3, :3, :3, :3], target), pool.nfe


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("sdar", {"remasking": "sequential", "block_length": 2}),
        ("sdar", {"remasking": "random", "block_length": 4}),
        ("llada2", {"order": "random", "block_length": 2}),
        ("llada2", {"order": "random", "block_length": 8}),  # more than there are tokens
    ],
)
def test_one_position_a_call_chosen_blindly_is_exact_whatever_the_block(name, settings):
    """A perfect denoiser's law; at this n a law that is off by 5 % in total is seen."""
    p, calls = _law(settings, name=name, steps=settings["block_length"])
    assert p > 1e-3
    assert (calls == 4).all()


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"remasking": "sequential", "block_length": 2}, 1),
        ({"remasking": "low_confidence_static", "block_length": 2}, 2),
    ],
)
def test_two_at_a_time_or_by_the_drawn_token_is_not(settings, steps):
    p, _ = _law(settings, name="sdar", steps=steps)
    assert p < 1e-6


def test_given_tokens_inside_the_open_block_stay():
    model = _folder("sdar").denoiser
    prompts = [{"ids": [5, None, None, 7, None, 9, None, None]}]
    spec = strop.SamplerSpec(name="sdar", steps=1, settings={"block_length": 8})
    with pytest.warns(UserWarning, match="trained in blocks of 4"):
        pool = strop.draw.sample(model, spec, n=3, prompts=prompts)
    assert pool.ids.shape == (3, 5)
    assert (pool.ids != model.mask_id).all()


def test_a_text_ends_behind_its_block_and_the_end_is_repeated():
    model = _folder("sdar").denoiser
    model.stop_ids, kept = tuple(range(60)), model.stop_ids
    try:
        spec = strop.SamplerSpec(name="sdar", steps=4, settings={"block_length": 4})
        pool = strop.draw.sample(model, spec, n=2, length=32)
    finally:
        model.stop_ids = kept
    assert pool.nfe.max() <= 12
    assert (pool.ids[:, -20:] == pool.ids[:, -1:]).all()


@pytest.mark.parametrize(
    ("spec", "length", "said"),
    [
        ({"name": "sdar", "settings": {"block_length": 100}}, 210, "beyond the positions"),
        ({"name": "sdar", "temperature": 0.0, "implementation": "dense"}, 8, "divides by"),
        ({"name": "sdar", "settings": {"remasking": "entropy_bounded"}}, 8, "out of range"),
    ],
)
def test_what_cannot_be_is_said_in_one_message(spec, length, said):
    with pytest.raises(strop.UserError, match=said), torch.no_grad():
        strop.draw.sample(
            _folder("sdar").denoiser, strop.SamplerSpec(**{"steps": 2, **spec}), n=1, length=length
        )


def test_public_names_are_accepted():
    spec = strop.SamplerSpec(
        name="sdar", denoising_steps=4, remasking_strategy="sequential", confidence_threshold=0.5
    )
    assert (spec.steps, spec.settings["remasking"], spec.settings["threshold"]) == (
        4,
        "sequential",
        0.5,
    )
    edit = strop.SamplerSpec(name="llada2-edit", eos_early_stop=True, block_size=16)
    assert (edit.settings["stop"], edit.settings["block_length"]) == ("block", 16)


@pytest.mark.parametrize(
    ("name", "sibling"),
    [
        ("sdar", {"remasking": "random"}),
        ("llada2", {"order": "random"}),
        ("llada2-edit", {"editing_threshold": 1.0}),
        ("llada2-pipeline", {"editing_threshold": 1.0}),
        ("fast-dllm-v2", {"threshold": 1.0, "first": "draw"}),
    ],
)
def test_the_plain_sibling_differs_in_what_sharpens_alone(name, sibling):
    form = "dense" if name == "llada2-pipeline" else "fast"
    settings = {"threshold": 0.6, "block_length": 16}
    spec = strop.SamplerSpec(name=name, steps=5, implementation=form, settings=settings)
    plain = strop.spec.plain_baseline(spec)
    assert plain is not None
    assert plain.settings == {**spec.settings, **sibling}
    assert (plain.name, plain.steps, plain.temperature) == (name, 5, spec.temperature)
    assert strop.spec.plain_baseline(plain) is None
