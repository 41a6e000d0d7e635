"""Tiny random block models by command: from sample to report, and files that are wrong."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import strop
from strop import verbs
from strop.cli.main import run
from strop.records import SAMPLERS
from strop.samplers.public_blocks import LLaDA2EditOptions, PublicText, llada2_edit
from strop.tasks import results
from strop.verbs import decoders

SIZE = ["--vocab-size", "4200", "--width", "16", "--blocks", "2", "--heads", "4", "--length", "96"]
FAMILIES = ("sdar", "llada2", "fast-dllm-v2")
CANVASES = ("bd3lm", "diffusion-gemma")
COUNTED = {"bd3lm": "redraws", "diffusion-gemma": "canvases"}
"""What a sampler counts beside calls; the others count blocks."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("blocks")
    for family in (*FAMILIES, *CANVASES):
        # BD3-LM's files hold no tokenizer; of GPT-2's size it is GPT-2's.
        size = ["--vocab-size", "50258", *SIZE[2:]] if family == "bd3lm" else SIZE
        assert run(["models", "random", str(place / family), "--family", family, *size]) == 0
    return place


def _prompts(tmp_path: Path) -> str:
    file = tmp_path / "prompts.jsonl"
    texts = ["Once upon a time there was", "The king said,"]
    file.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    return str(file)


@pytest.mark.slow
@pytest.mark.parametrize("family", [*FAMILIES, *CANVASES])
def test_a_family_goes_from_sample_to_report(root: Path, tmp_path: Path, family: str, capsys):
    """BD3-LM has no chat template and no prompts of its own; everyone else answers."""
    model, out = str(root / family), tmp_path / "run"
    warmth = "linear/0.8/0.4,linear/1/1" if family == "diffusion-gemma" else "0.7,1"
    words = ["sample", model, "--steps", "4", "--temperature", warmth, "--length", "12"]
    asked = ["-n", "2"] if family == "bd3lm" else ["--prompts", _prompts(tmp_path), "--chat"]
    assert run([*words, *asked, "-o", str(out)]) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert "tokens per call" in said
    assert COUNTED.get(family, "blocks") in said
    cells = strop.Run.open(out).cells()
    assert len(cells) == 2
    pools = [cell.pool() for cell in cells]
    assert all(pool.ids.shape == (2, 12) and pool.nfe.min() >= 3 for pool in pools)
    few = ["--evaluator", "embedded:tales-ar", "-n", "8", "--length", "8", "--quiet"]
    axis = warmth.replace("0.7", "0.5")
    audit = ["audit", model, "--steps", "2,4", "--axis", f"temperature={axis}", *few]
    assert run([*audit, "-o", str(tmp_path / "audit")]) == 0, capsys.readouterr().err
    prompted = [*audit, "--prompts", _prompts(tmp_path), "-o", str(tmp_path / "prompted")]
    assert run(prompted) == 0, capsys.readouterr().err
    assert "answer prompts" in capsys.readouterr().out
    pair = ["compare", model, model, "--b", f"temperature={axis.split(',')[0]}", "--steps", "2"]
    assert run([*pair, *few, "-o", str(tmp_path / "pair")]) == 0, capsys.readouterr().err
    graded = ["task", "run", "sums", model, "--limit", "1", "--length", "8", "--quiet"]
    assert run([*graded, "-o", str(tmp_path / "task")]) == 0, capsys.readouterr().err
    assert run(["report", str(out), "-o", str(tmp_path / "report.html")]) == 0
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_four_implementations_of_diffusion_gemma_are_settings_of_one_decoder(
    root: Path, tmp_path: Path, capsys
):
    words = ["study", "implementations", str(root / "diffusion-gemma"), "--smoke", "--quiet"]
    assert run([*words, "-o", str(tmp_path / "study")]) == 0, capsys.readouterr().err
    result = json.loads((tmp_path / "study" / "result.json").read_text())
    table = json.dumps(result)
    for code in ("transformers 5.22.2", "diffusers 0.42.1", "vLLM", "SGLang", "another seed"):
        assert code in table


@pytest.mark.parametrize("family", ["sdar", "diffusion-gemma"])
def test_models_of_blocks_answer_a_task_by_their_own_decoders(
    root: Path, tmp_path: Path, monkeypatch, family: str
):
    """A canvas has one decoder, at its public schedule; a block model has all of the others."""
    curves = (decoders.CURVES[0], *decoders.NATIVE)
    first = tuple(replace(one, values=one.values[:1]) for one in curves)
    monkeypatch.setattr(decoders, "CURVES", first[:1])
    monkeypatch.setattr(decoders, "NATIVE", first[1:])
    model = str(root / family)
    study = verbs.run("decoders", out=tmp_path / "run", sources=[model], n=1, length=8)
    told = {row["decoder"]: row["calls"] for row in study.table.rows if row.get("dial")}
    assert set(told) == {one.title for one in first if fits(one.sampler, family)}
    assert all(calls >= 1 for calls in told.values())
    assert len(told) == {"sdar": 6, "diffusion-gemma": 1}[family]
    answered = results(tmp_path / "run" / "task").of_label(family)
    steps = {one.sampler.name: one.sampler.steps for one in answered}
    assert steps.get("bd3lm", 4) == 4  # all of a block
    heats = {str(one.sampler.temperature) for one in answered}
    assert heats == {"linear/0.8/0.4" if family == "diffusion-gemma" else "0.0"}


def fits(sampler: str, family: str) -> bool:
    """Whether a sampler can read a family's predictions."""
    return (SAMPLERS[sampler].family == "diffusion-gemma") == (family == "diffusion-gemma")


def _changed(source: Path, place: Path, **fields) -> Path:
    shutil.copytree(source, place)
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps({**config, **fields}))
    return place


def test_a_missing_shard_is_named(root: Path, tmp_path: Path):
    place = _changed(root / "sdar", tmp_path / "sdar")
    (place / "model.safetensors").unlink()
    index = {"weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}}
    (place / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(strop.UserError, match=r"part of the weights is missing"):
        strop.load_denoiser(place, device="cpu")


def test_a_file_that_was_cut_off_is_said(root: Path, tmp_path: Path):
    place = _changed(root / "diffusion-gemma", tmp_path / "gemma")
    weights = place / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    with pytest.raises(strop.UserError, match="cannot load") as caught:
        strop.load_denoiser(place, device="cpu")
    assert "header" in str(caught.value.got)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_that_is_absent_and_not_tied_is_named(root: Path, tmp_path: Path, family: str):
    place = _changed(root / family, tmp_path / family)
    tensors = load_file(place / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, place / "model.safetensors")
    with pytest.raises(strop.UserError, match=r"missing: lm_head\.weight"):
        strop.load_denoiser(place, device="cpu")
    tied = _changed(place, tmp_path / f"{family}-tied", tie_word_embeddings=True)
    model = strop.load_denoiser(tied, device="cpu")
    network = model.network  # type: ignore[union-attr]
    assert network.lm_head.weight is network.get_input_embeddings().weight


def test_a_missing_chat_template_is_said(root: Path, tmp_path: Path, capsys):
    place = _changed(root / "llada2", tmp_path / "llada2")
    said = json.loads((place / "tokenizer_config.json").read_text())
    del said["chat_template"]
    (place / "tokenizer_config.json").write_text(json.dumps(said))
    words = ["sample", str(place), "--prompts", _prompts(tmp_path), "--chat", "--length", "4"]
    assert run([*words, "-o", str(tmp_path / "run")]) != 0
    assert "template" in capsys.readouterr().err


def test_llada_2_2_is_refused_by_name(root: Path, tmp_path: Path):
    place = _changed(root / "llada2", tmp_path / "LLaDA2.2-flash")
    with pytest.raises(strop.UserError, match="inserting and deleting"):
        strop.load_denoiser(place, device="cpu")


def test_sdars_mixture_of_experts_is_transformers_own(root: Path, tmp_path: Path):
    """Written by transformers, read by us: the same scores under a causal mask of blocks of 1."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    sizes = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "head_dim": 8}
    layers = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
    torch.manual_seed(0)
    network = Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes, **layers, **experts)).eval()
    network.save_pretrained(tmp_path / "moe")
    file = tmp_path / "moe" / "config.json"
    said = json.loads(file.read_text())
    theta = said.pop("rope_parameters")["rope_theta"]
    ours = {"architectures": ["SDARMoeForCausalLM"], "model_type": "sdar_moe", "rope_theta": theta}
    file.write_text(json.dumps({**said, **ours, "mask_token_id": 39}))
    model = strop.load_denoiser(tmp_path / "moe", device="cpu")
    ids = torch.randint(0, 39, (1, 9))
    states, _ = model.advance(ids, None, block=1, keep=0)  # type: ignore[union-attr]
    with torch.no_grad():
        wanted = network(ids).logits[0]
        assert (network.lm_head(states)[0] - wanted).abs().max() < 1e-5


def test_canvases_beyond_the_positions_are_refused(root: Path):
    model = strop.load_denoiser(root / "diffusion-gemma", device="cpu")
    spec = strop.SamplerSpec(name="diffusion-gemma", steps=1)
    assert model.length == 96
    with pytest.raises(strop.UserError, match="beyond the positions") as caught:
        strop.draw.sample(model, spec, n=1, length=90)  # one given, six canvases of 16
    assert caught.value.got == "1 given and 6 canvases of 16"
    assert strop.draw.sample(model, spec, n=1, length=80).ids.shape == (1, 80)


def test_a_transformers_without_diffusion_gemma_is_refused_by_its_version(root: Path, monkeypatch):
    monkeypatch.setattr("strop.denoisers.diffusion_gemma.CLASS", "NotYetForBlockDiffusion")
    with pytest.raises(strop.UserError, match="no DiffusionGemma") as caught:
        strop.load_denoiser(root / "diffusion-gemma", device="cpu")
    assert caught.value.expected == "transformers of at least 5.22"


def test_bd3lm_without_its_block_size_is_told(root: Path, tmp_path: Path):
    place = _changed(root / "bd3lm", tmp_path / "bd3lm", block_size=None)
    with pytest.raises(strop.UserError, match="block size that the network was trained with"):
        strop.load_denoiser(place, device="cpu")


@pytest.mark.parametrize("family", ["bd3lm", "sdar"])
def test_another_block_length_than_trained_is_allowed_and_warned_about(root: Path, family: str):
    model = strop.load_denoiser(root / family, device="cpu")
    spec = strop.SamplerSpec(name=family, steps=2, settings={"block_length": 8})
    with pytest.warns(UserWarning, match=r"trained (in|with) blocks of 4"):
        assert strop.draw.sample(model, spec, n=1, length=8).ids.shape == (1, 8)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"temperature": 0.7}, "accepts a temperature and ignores it"),
        ({"top_k": 5}, "accepts `top_k` and ignores it"),
        ({"do_sample": True}, "accepts `do_sample` and ignores it"),
    ],
)
def test_options_that_diffusion_gemma_ignores_are_refused(option, said):
    with pytest.raises(strop.UserError, match=said):
        strop.SamplerSpec(name="diffusion-gemma", **option)


def test_edits_are_counted_by_both_forms():
    """Of the public form against what it tells after every call: tokens that stood and changed."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
    from vector_replay import Folder

    folder = Folder(Path(__file__).parents[1] / "vectors" / "llada2")
    model = folder.denoiser
    text = PublicText(model, folder.expected["prompt/16"].long(), torch.Generator().manual_seed(1))
    seen = []
    text.on_call = lambda x: seen.append(x.clone())
    asked = {"block_length": 8, "threshold": 0.05, "editing_threshold": 0.0, "max_post_steps": 2}
    llada2_edit(text, LLaDA2EditOptions(gen_length=24, temperature=1.2, **asked))
    changed = sum(int(((old != new) & (old != model.mask_id)).sum()) for old, new in pairwise(seen))
    assert int(text.edits) == changed > 0
    assert len(text.opened) == 3
    for level, some in ((0.0, True), (1.0, False)):
        spec = strop.SamplerSpec(
            name="llada2-edit", temperature=1.2, settings={**asked, "editing_threshold": level}
        )
        with pytest.warns(UserWarning, match="trained in blocks of 32"):
            pool = strop.draw.sample(model, spec, n=2, length=24)
        assert (pool.counts["edits"] > 0).all() == some
        assert (pool.counts["edits"] == 0).all() != some
        assert (pool.counts["blocks"] == 3).all()


def test_the_plain_siblings_command_has_their_settings(root: Path, tmp_path: Path, capsys):
    words = ["sample", str(root / "bd3lm"), "--steps", "1", "--length", "4", "-n", "1"]
    assert run([*words, "-o", str(tmp_path / "run")]) == 0
    said = capsys.readouterr()
    assert "--settings redraw=never" in said.out + said.err
