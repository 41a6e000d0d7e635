"""Learning responses to prompts: rows, noise, LLaDA's network and layout, the causal control."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import strop
from packing import measure, pack
from strop.errors import UserError
from strop.tasks.sums import RESPONSE as R
from strop.tasks.sums import problems
from strop.training.data import Batches
from strop.training.documents import Shards
from strop.training.loop import train
from strop.training.model import build
from strop.training.objective import llada_noise, placed
from strop.training.spec import DataSpec, config_names, read_spec
from sums_words import tokenizer
from training.dense_loss import loss_per_token

SMALL = {
    "model.hidden_dim": 32,
    "model.n_blocks": 2,
    "steps": 8,
    "batch": 8,
    "eval_every": 4,
    "final_rows": 16,
    "warmup": 2,
    "keep_every": None,
    "data.held_out": {"every": 10},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("sums")
    lines = [
        json.dumps({"prompt": p.prompt, "response": p.response}) for p in problems("train", 200)
    ]
    (root / "train.jsonl").write_text("\n".join(lines) + "\n")
    (root / "tokenizer").mkdir()
    (root / "tokenizer" / "tokenizer.json").write_text(json.dumps(tokenizer()))
    return root


def spec_of(name, **changes):
    source = {"name": "sums", "path": "train.jsonl", "licence": "-", "separator": "\n"}
    return read_spec(name, {**SMALL, "data.sources": [source], **changes})


def trained(data, name):
    spec = spec_of(name)
    result = train(
        spec, out=data / f"run-{name}", data_root=data, shards=data / "shards", device="cpu"
    )
    return Path(result["checkpoint"]), Shards(data / "shards"), result


@pytest.fixture(scope="module")
def both_ways(data):
    return trained(data, "sums")


@pytest.fixture(scope="module")
def causal(data):
    return trained(data, "sums-ar")


def test_rows_are_prompt_response_and_ends(data, both_ways):
    shards = both_ways[1]
    codec = strop.denoisers.tokenizer.TextCodec.from_directory(shards.directory)
    texts = [json.loads(line) for line in (data / "train.jsonl").read_text().splitlines()]
    kept = [text for number, text in enumerate(texts) if number % 10]
    assert len(shards.train) == len(kept)
    numbers = np.arange(len(kept))
    for row, prompt, text in zip(
        shards.train[numbers], shards.train.prompts(numbers), kept, strict=True
    ):
        assert codec.decode(row[:prompt]) == text["prompt"]
        answer = codec.encode(text["response"])
        assert row[prompt:].tolist() == [*answer] + [shards.end_of_text] * (
            96 - prompt - len(answer)
        )


def test_prompts_are_never_masked_and_responses_are(both_ways):
    rows = both_ways[1].train
    batches = Batches(rows, batch=16, seed=1, objective="llada")
    masked = torch.zeros(R)
    for step in range(40):
        numbers, noise = batches.numbers(step), batches.noise(step)
        assert noise is not None
        for hidden, prompt in zip(noise.hidden, rows.prompts(numbers).tolist(), strict=True):
            assert not hidden[:prompt].any()
            assert not hidden[prompt + R :].any()
            masked += hidden[prompt : prompt + R]
    # 640 rows, a half on average: 320, with a standard deviation of about 9 by strata.
    assert (masked / 640 - 0.5).abs().max() < 0.1


def test_the_run_loads_as_llada_and_has_the_loss_of_the_dense_formula(both_ways):
    path, shards, result = both_ways
    model = strop.load_denoiser(path, device="cpu")
    assert model.spec.family == "llada"
    assert (model.mask_id, model.eos_id) == (shards.vocabulary, shards.end_of_text)
    module = build(spec_of("sums"), shards.vocabulary, 0, torch.float32, lambda: np.zeros(0))
    module.network.load_state_dict(model.network.state_dict())
    numbers = np.arange(6)
    ids, prompts = torch.from_numpy(shards.train[numbers]), shards.train.prompts(numbers)
    noise = llada_noise(6, R, torch.Generator().manual_seed(2))
    in_rows = placed(noise, torch.from_numpy(prompts), 96)
    losses = module(ids, *in_rows.tensors()).detach()
    for row, prompt in enumerate(prompts.tolist()):  # each alone and without filling
        alone = placed(noise.part(slice(row, row + 1)), torch.tensor([prompt]), prompt + R)
        dense = loss_per_token(model, ids[row : row + 1, : prompt + R], noise=alone)
        assert float(losses[row]) == pytest.approx(float(dense.mean()), rel=1e-4)
    assert in_rows.text is not None
    again = module(torch.where(in_rows.text, ids, 5), *in_rows.tensors())
    assert torch.allclose(losses, again, rtol=1e-5)
    assert measure(path, shards, seed=1, rows=16).nats_per_token.value == pytest.approx(
        result["held_out"]["nats_per_token"].value, rel=1e-5
    )


def test_a_causal_model_predicts_the_response_only(causal):
    path, shards, _ = causal
    model = strop.denoisers.load.load_model(path, device="cpu")
    module = build(spec_of("sums-ar"), shards.vocabulary, 0, torch.float32, lambda: np.zeros(0))
    module.network.load_state_dict(model.network.state_dict())
    batches = Batches(shards.train, batch=4, seed=1, objective="causal")
    numbers, noise = batches.numbers(0), batches.noise(0)
    assert noise is not None
    losses = module(batches.ids(numbers), *noise.tensors()).detach()
    for number, loss in zip(numbers, losses, strict=True):
        ids = torch.from_numpy(shards.train[np.array([number])])
        prompt = int(shards.train.prompts(np.array([number]))[0])
        logits = model.network(input_ids=ids[:, : prompt + R]).logits[0, prompt - 1 : -1]
        exact = F.cross_entropy(logits, ids[0, prompt : prompt + R])
        assert float(loss) == pytest.approx(float(exact), rel=1e-5)


@pytest.mark.parametrize("which", ["both_ways", "causal"])
def test_both_are_packed(which, request, tmp_path):
    path, shards, _ = request.getfixturevalue(which)
    packed = pack(path, tmp_path / "small", shards, seed=1, rows=16)
    assert abs(packed.change) < 5e-4
    assert packed.after.nats_per_character is None
    strop.denoisers.load.load_model(tmp_path / "small", device="cpu")


def test_a_run_goes_on_from_its_weights(both_ways, data, tmp_path):
    path, _, first = both_ways
    result = train(
        spec_of("sums", start=str(path), steps=1, seed=9),
        out=tmp_path / "more",
        data_root=data,
        shards=data / "shards",
        device="cpu",
    )
    assert result["start_sha256"] == strop.load_denoiser(path, device="cpu").spec.sha256
    assert (
        result["held_out"]["nats_per_token"].value < first["held_out"]["nats_per_token"].value + 0.5
    )


def test_what_does_not_fit_is_refused(data, tmp_path):
    with pytest.raises(UserError, match="does not fit its row"):
        train(
            spec_of("sums", **{"data.length": 64}), out=tmp_path / "a", data_root=data, device="cpu"
        )
    (tmp_path / "train.jsonl").write_text("no pair\n" * 20)
    (tmp_path / "tokenizer").symlink_to(data / "tokenizer")
    with pytest.raises(UserError, match="not a pair of a prompt"):
        train(spec_of("sums"), out=tmp_path / "b", data_root=tmp_path, device="cpu")
    with pytest.raises(UserError, match="without prompts"):
        spec_of("sums", **{"model.family": "mdlm"})
    with pytest.raises(UserError, match="rows of pairs must be set together"):
        DataSpec(response=8)


def test_corpora_without_responses_keep_their_spelling():
    assert "response" not in DataSpec().canonical()
    assert DataSpec(rows="pairs", response=8, length=16).model_dump()["response"] == 8
    assert {"sums", "sums-ar"} <= set(config_names())


@pytest.mark.slow
def test_the_script_makes_trains_scores_and_packs(tmp_path):
    root = Path(__file__).parents[2]
    small = {**SMALL, "steps": 2, "model.hidden_dim": 16, "data.held_out": "{every: 10}"}
    flags = [part for key, value in small.items() for part in ("--set", f"{key}={value or 'null'}")]
    environment = {
        **os.environ,
        "PYTHON": sys.executable,
        "RUNS": str(tmp_path / "runs"),
        "MODELS": str(tmp_path / "models"),
        "COUNT": "100",
        "TESTS": "3",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [str(root / "scripts" / "train-sums.sh"), *flags],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    for name, family in (("sums", "llada"), ("sums-ar", "ar")):
        model = strop.denoisers.load.load_model(tmp_path / "models" / name, device="cpu")
        assert model.spec.family == family
        card = (tmp_path / "models" / name / "README.md").read_text()
        assert "of 3 test problems right" in card
        assert str(tmp_path) not in card
