"""Runs that begin with a checkpoint's weights, and products in bfloat16 on the CPU."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import toy
from toy import same, train, weights

import strop
from strop.denoisers.files import sha256_of
from strop.errors import Incomplete, UserError
from strop.training import parallel
from strop.training.attention import plain_attention
from strop.training.loop import Silent
from strop.training.run import TrainingRun
from strop.training.spec import read_spec

STILL = {"lr": 1e-30, "warmup": 0, "steps": 2, "seed": 6}
"""A run that changes nothing, so that its end shows its beginning."""


@pytest.mark.parametrize("model", [{}, {"family": "ar", "init": "public"}])
def test_a_run_begins_with_a_checkpoints_weights(corpus, model):
    about = {"model": model} if not model else {"model": model, "objective": "causal"}
    first = train(corpus, "first", **about)
    second = train(corpus, "second", start=first["checkpoint"], **STILL, **about)
    assert same(weights(second), weights(first))
    assert second["start_sha256"] == sha256_of(Path(first["checkpoint"]) / "model.safetensors")
    assert first["start_sha256"] is None
    fresh = train(corpus, "fresh", **STILL, **about)  # the same seed without the weights
    assert second["held_out"]["nats_per_token"] < fresh["held_out"]["nats_per_token"]


def test_it_continues_although_the_checkpoint_is_gone(corpus):
    start = str(corpus / "start")
    shutil.copytree(train(corpus, "first")["checkpoint"], start)
    whole = train(corpus, "whole", start=start)

    class Stopper(Silent):
        def advance(self, step, *_others):
            if step == 5:
                os.kill(os.getpid(), signal.SIGTERM)

    where = {"out": corpus / "run", "data_root": corpus, "shards": corpus / "shards"}
    with pytest.raises(Incomplete):
        strop.train(toy.config(start=start), **where, device="cpu", progress=Stopper())
    shutil.rmtree(start)
    ended = train(corpus, "run", start=start)
    assert ended["start_sha256"] == whole["start_sha256"]
    assert same(weights(ended), weights(whole))


def test_a_checkpoint_that_does_not_fit_is_refused(corpus, tmp_path):
    first = train(corpus, "first", steps=2)["checkpoint"]
    with pytest.raises(UserError, match=r"its shape \(blocks.1") as caught:
        train(corpus, "a", start=first, model={"n_blocks": 1})
    assert caught.value.expected == "nothing"
    with pytest.raises(UserError, match="its shape"):
        train(corpus, "b", start=first, model={"hidden_dim": 64})
    # Other heads have weights of the same sizes.
    with pytest.raises(UserError, match="its shape") as caught:
        train(corpus, "heads", start=first, model={"n_heads": 4})
    assert (caught.value.got or "").startswith("n_heads=2")
    causal = {"family": "ar", "init": "public"}
    other = train(corpus, "causal", steps=2, model=causal, objective="causal")["checkpoint"]
    heads = {**causal, "n_heads": 4}
    with pytest.raises(UserError, match="its shape") as caught:
        train(corpus, "causal heads", start=other, model=heads, objective="causal")
    assert "num_attention_heads=2" in (caught.value.got or "")
    with pytest.raises(UserError, match="its family"):
        train(corpus, "c", start=first, model=causal, objective="causal")
    with pytest.raises(UserError, match="its tokenizer") as caught:
        train(corpus, "d", start="embedded:tales")
    assert "4,096 tokens" in caught.value.got
    with pytest.raises(UserError):
        train(corpus, "e", start=str(tmp_path / "nowhere"))
    bare = tmp_path / "bare"
    shutil.copytree(first, bare)
    (bare / "tokenizer.json").unlink()
    with pytest.raises(UserError, match="its tokenizer") as caught:
        train(corpus, "f", start=str(bare))
    assert caught.value.got == "none"


def test_a_run_from_before_there_was_a_start_continues(corpus):
    train(corpus, "run", steps=3)
    path = corpus / "run" / "train.json"
    document = json.loads(path.read_text())
    del document["spec"]["start"]
    path.write_text(json.dumps(document))
    assert TrainingRun.prepare(corpus / "run", read_spec(toy.config(steps=3)))
    with pytest.raises(UserError, match="another configuration") as caught:
        train(corpus, "run", steps=3, start="embedded:tales")
    assert caught.value.got == "start: None there, 'embedded:tales' now"


def test_plain_attention_is_attention():
    torch.manual_seed(0)
    query, key, value, gradient = (torch.randn(3, 2, 17, 8) for _ in range(4))
    inputs = [x.requires_grad_() for x in (query, key, value)]
    for x in inputs:
        x.data *= 3  # sharp weights as well
    plain, fused = plain_attention(*inputs), F.scaled_dot_product_attention(*inputs)
    assert torch.allclose(plain, fused, atol=1e-5)
    pairs = (torch.autograd.grad(out, inputs, gradient) for out in (plain, fused))
    for one, other in zip(*pairs, strict=True):
        assert torch.allclose(one, other, atol=2e-5)


def test_bfloat16_that_crashes_is_refused_in_words(corpus, monkeypatch):
    monkeypatch.setattr(parallel.sys, "executable", "/bin/false")
    with pytest.raises(UserError, match="bfloat16 crash") as caught:
        train(corpus, "run", precision="bfloat16")
    assert "precision: auto" in caught.value.fix
    assert not (corpus / "run" / "metrics.jsonl").exists()


def test_bfloat16_on_the_cpu_learns_the_same(corpus, monkeypatch):
    # In a process of its own, without the instructions that some machines report and refuse; what
    # the processor lacks, the library then computes in another way.
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    about = {"steps": 60, "save_every": None, "optimizer": "muon", "model": {"dropout": 0.0}}
    results = {}
    for precision in ("float32", "bfloat16"):
        config = toy.config(precision=precision, **about)
        (corpus / "config.json").write_text(json.dumps(config))
        process = toy.start(corpus, precision)
        _, told = process.communicate(timeout=200)
        assert process.returncode == 0, told
        results[precision] = TrainingRun(corpus / precision).result()
    losses = {name: result["held_out"]["nats_per_token"] for name, result in results.items()}
    assert losses["float32"] != losses["bfloat16"]
    assert losses["bfloat16"] == pytest.approx(losses["float32"], abs=0.03)
