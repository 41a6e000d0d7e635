"""From a finished run to a small model that ships, and the script that makes all four."""

import gzip
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import toy
from safetensors.torch import load_file, save_file

import strop
from packing import measure, pack
from strop import assets
from strop.errors import CheckFailed
from strop.training.documents import Shards
from strop.training.loop import train

ROOT = Path(__file__).parents[2]


@pytest.fixture
def trained(corpus):
    result = train(
        toy.config(steps=40, model={"dropout": 0.0}),
        out=corpus / "run",
        data_root=corpus,
        shards=corpus / "shards",
        device="cpu",
    )
    return Path(result["checkpoint"]), Shards(corpus / "shards"), result


def test_half_precision_storage_keeps_the_loss(trained, tmp_path):
    path, shards, result = trained
    packed = pack(path, tmp_path / "small", shards, seed=5, rows=32)
    assert packed.before.nats_per_token.value == pytest.approx(
        result["held_out"]["nats_per_token"].value, rel=1e-6
    )
    # Not zero: something was rounded. `pack` refuses from 5e-4; twelve seeds give 5e-5 (root mean
    # square), at most 8e-5.
    assert 0 < abs(packed.change) < 5e-4
    stored = load_file(tmp_path / "small" / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    whole = (path / "model.safetensors").stat().st_size
    assert packed.bytes < 0.6 * whole
    again = measure(tmp_path / "small", shards, seed=5, rows=32)
    assert again == packed.after


def test_a_loss_that_moves_is_refused(trained, tmp_path):
    path, shards, _ = trained
    tensors = load_file(path / "model.safetensors")
    # The same function, but float16 cannot hold it: near 1,000 its numbers are half a nat apart.
    tensors["backbone.output_layer.linear.bias"] += 1000
    save_file(tensors, path / "model.safetensors")
    with pytest.raises(CheckFailed, match="float16 storage changes"):
        pack(path, tmp_path / "small", shards, seed=5, rows=32)


@pytest.mark.slow
def test_the_script_makes_four_models_that_load(tmp_path, monkeypatch):
    names = ("fairytaleqa_stories", "nltk_gutenberg_17", "english_novels_100")
    for seed, name in enumerate(names):
        with gzip.open(tmp_path / f"{name}.txt.gz", "wt") as file:
            file.write("<|endoftext|>\n".join(toy.documents(20, seed, sentences=60)))
    small = {
        "data.bpe_size": 320, "data.length": 32, "batch": 8, "micro_batch": 8, "warmup": 2,
        "eval_rows": 16,
        "model.hidden_dim": 32, "model.n_blocks": 1, "model.n_heads": 2, "log_every": 2,
        "compile": "false",  # compiling would take longer than the run
    }  # fmt: skip
    environment = {
        **os.environ,
        "PYTHON": sys.executable,
        "RUNS": str(tmp_path / "runs"),
        "MODELS": str(tmp_path / "models"),
        "HELD_OUT": str(tmp_path / "held.jsonl"),
        "MINUTES_TALES": "0.01",
        "MINUTES_LONGER": "0.01",
        "MINUTES_AR": "0.005",
        "ROWS": "32",
        "MORE": " ".join(f"--set {key}={value}" for key, value in small.items()),
        "OMP_NUM_THREADS": "1",
    }
    script = ROOT / "scripts" / "train-embedded.sh"
    done = subprocess.run(
        [str(script), str(tmp_path)], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    monkeypatch.setattr(assets, "MODELS", tmp_path / "models")
    assert assets.embedded_names() == ["tales", "tales-ar", "tales-early", "tales-tiny"]
    loaded = {}
    for name in ("tales", "tales-early", "tales-tiny"):
        loaded[name] = strop.load_denoiser(f"embedded:{name}", device="cpu")
        card = (tmp_path / "models" / name / "README.md").read_text()
        for word in ("Held out:", "Apache-2.0", "public domain", "Seed", "unselected", "Limits"):
            assert word in card, (name, word)
    fingerprints = {denoiser.codec.fingerprint for denoiser in loaded.values()}
    assert len(fingerprints) == 1  # one tokenizer for all
    assert loaded["tales"].spec.sha256 != loaded["tales-early"].spec.sha256
    results = {
        name: json.loads((tmp_path / "runs" / name / "result.json").read_text())
        for name in ("tales", "tales-longer", "tales-tiny", "tales-tiny-longer", "tales-ar")
    }
    card = (tmp_path / "models" / "tales" / "README.md").read_text()
    assert str(tmp_path) not in card  # nothing of the machine
    for name in ("tales", "tales-tiny"):
        first, second = results[name], results[f"{name}-longer"]
        handed = Path(first["checkpoint"]) / "model.safetensors"
        assert second["start_sha256"] == hashlib.sha256(handed.read_bytes()).hexdigest()
    assert second["start_sha256"][:16] not in card  # that is tiny's
    assert results["tales-longer"]["start_sha256"][:16] in card
    for kind in ("", "-longer"):
        assert results[f"tales-tiny{kind}"]["steps"] == results[f"tales{kind}"]["steps"]
    held = [json.loads(line) for line in (tmp_path / "held.jsonl").read_text().splitlines()]
    assert all(len(row["ids"]) == 32 and row["text"] for row in held)

    from transformers import AutoModelForCausalLM

    evaluator = AutoModelForCausalLM.from_pretrained(tmp_path / "models" / "tales-ar")
    assert evaluator.dtype == torch.float32
