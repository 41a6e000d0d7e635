"""LLaDA and Dream against what their public codes computed, and what loading them refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from large_models import (
    FAMILIES,
    TOLERANCE,
    VECTORS,
    aligned,
    distance,
    expected,
    load,
    rows,
    write,
)
from safetensors.torch import load_file, save_file
from torch import Tensor

from strop.checkpoints.checkpoint import locate
from strop.denoisers.base import (
    CachingDenoiser,
    Denoiser,
    PaddingDenoiser,
    all_logits,
    usable_length,
)
from strop.denoisers.bidirectional import Bidirectional
from strop.denoisers.load import family_at
from strop.errors import UserError


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def model(family: str, tmp_path_factory: pytest.TempPathFactory) -> Bidirectional:
    return load(family, write(family, tmp_path_factory.mktemp("large") / family))


def _case(model: Bidirectional, case: dict[str, Any], given: dict[str, Tensor]) -> Tensor:
    """Our scores for one case of the vectors."""
    ids = given[case["input"]]
    if case["kind"] == "plain":
        return all_logits(model, ids, None)
    if case["kind"] in ("key_mask", "pair_mask"):
        return rows(model, model.padded(ids, (given[case["mask"]] == 0).sum(dim=1)))
    _, memory = model.remember(given[case["cache_input"]])
    start, end = case["block"]
    end = ids.shape[1] if case["kind"] == "prefix" else end
    return rows(model, model.window(ids[:, start:end], start, memory, case["kind"]))


def test_every_logit_of_the_public_code(family: str, model: Bidirectional) -> None:
    given = expected(family)
    cases = json.loads((VECTORS / family / "case.json").read_text())["logits"]
    assert {case["kind"] for case in cases} >= {"plain", "prefix", "dual"}
    for case in cases:
        found, wanted = _case(model, case, given), aligned(family, given[case["expected"]])
        assert found.dtype == torch.float32
        if "mask" not in case or case.get("rows") != "attended":
            assert distance(found, wanted) < TOLERANCE, case
            continue
        raw = given[case["expected"]]
        for row, seen in enumerate(given[case["mask"]] == 1):
            first = int(seen.long().argmax())
            # The first token has nothing but padding before it and reads its own state.
            assert distance(found[row, first], raw[row, first]) < TOLERANCE, case
            assert distance(found[row, first + 1 :], wanted[row, first + 1 :]) < TOLERANCE, case


def test_it_keeps_the_contracts(family: str, model: Bidirectional) -> None:
    assert isinstance(model, Denoiser)
    assert isinstance(model, PaddingDenoiser)
    assert isinstance(model, CachingDenoiser)
    assert (model.mask_id, model.vocab_size, model.length) == (310, 320, 512)
    assert model.eos_id == 300
    assert not model.time_conditioned
    assert model.spec.family == family
    assert "load" not in model.spec.shape
    assert usable_length(model, None) == 256  # not the whole context
    ids = torch.tensor([[3, 310, 310, 5]])
    table = model.log_probs(ids)
    assert torch.allclose(table.exp().sum(-1), torch.ones(1, 4))
    assert table[0, 1, 310] < -1e5
    assert table[0, 3, 5] == 0


def test_only_the_rows_asked_for(family: str, model: Bidirectional) -> None:
    ids = expected(family)["input/ids"]
    everything = all_logits(model, ids, None)
    sequence, position = torch.tensor([1, 0, 1]), torch.tensor([0, 7, 23])
    some = model.logits(model.hidden(ids, torch.ones(2)), sequence, position)
    assert distance(some, everything[sequence, position]) < TOLERANCE
    kept = model.hidden(ids, None)
    model.logits(kept, sequence, position).zero_()  # the caller may overwrite it
    assert distance(model.logits(kept, sequence, position), some) < TOLERANCE


def test_shards_are_one_model(family: str, model: Bidirectional, tmp_path: Path) -> None:
    ids = expected(family)["input/ids"]
    parts = load(family, write(family, tmp_path / "parts", shards=3))
    assert distance(parts.hidden(ids, None), model.hidden(ids, None)) == 0
    assert parts.spec.sha256 != model.spec.sha256
    (tmp_path / "parts" / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(UserError, match="part of the weights is missing"):
        load(family, tmp_path / "parts")


def test_it_is_recognised_by_its_configuration(family: str, tmp_path: Path) -> None:
    directory = write(family, tmp_path / "model")
    found = locate(str(directory), None)
    assert family_at(found) == family
    (directory / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    assert family_at(found) == "ar"


def _edited(tensors: dict[str, Tensor], key: str, how: str) -> dict[str, Tensor]:
    changed = {"missing": None, "reshaped": tensors[key][:-1].clone(), "nan": tensors[key] / 0}
    others = {name: tensor for name, tensor in tensors.items() if name != key}
    return others if changed[how] is None else {**others, key: changed[how]}


KEYS = {
    "llada": "model.transformer.blocks.1.ff_out.weight",
    "dream": "model.layers.1.mlp.down_proj.weight",
}


@pytest.mark.parametrize(
    ("how", "message"),
    [("missing", "missing: "), ("reshaped", "wrong shape: "), ("nan", "not finite numbers")],
)
def test_wrong_tensors_are_refused(family: str, how: str, message: str, tmp_path: Path) -> None:
    file = write(family, tmp_path / "model") / "model.safetensors"
    save_file(_edited(load_file(file), KEYS[family], how), file)
    with pytest.raises(UserError) as error:
        load(family, file.parent)
    assert message in str(error.value)


def test_damaged_weights_are_refused(family: str, tmp_path: Path) -> None:
    directory = write(family, tmp_path / "model")
    file = directory / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(UserError, match="truncated"):
        load(family, directory)


WRONG = {
    "llada": {
        "d_model": [None, "64", -64, 10**15, 63],
        "n_layers": [0, True, 10**9],
        "n_heads": [None, 3, 64],
        "n_kv_heads": [3],
        "rope_theta": [None, 0, -1, "1e4", float("inf")],
        "rms_norm_eps": ["small", -1.0],
        "mask_token_id": [None, 320, -1, "310"],
        "max_sequence_length": [None, 0],
        "block_type": ["sequential"],
        "include_bias": [True],
        "rope": [False],
        "weight_tying": ["no", True],
        "embedding_size": [321],
    },
    "dream": {
        "hidden_size": [None, [], 2.5, 128],
        "num_hidden_layers": [0, 4],
        "num_attention_heads": [5],
        "num_key_value_heads": [3, 4],
        "rope_scaling": [{"rope_type": "yarn", "factor": 4.0}],
        "use_sliding_window": [True],
        "hidden_act": ["gelu"],
        "mask_token_id": [None, 10**9],
        "vocab_size": [319],
        "tie_word_embeddings": [1],
    },
}


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [(f, k, v) for f, fields in WRONG.items() for k, vs in fields.items() for v in vs],
)
def test_wrong_configurations_are_refused(
    name: str, field: str, value: Any, tmp_path: Path
) -> None:
    directory = write(name, tmp_path / "model", **{field: value})
    with pytest.raises(UserError):
        load(name, directory)


def test_a_transformers_that_ignores_is_causal_is_found_out(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    name = {"llada": "LlamaConfig", "dream": "Qwen2Config"}[family]
    kind = getattr(transformers, name)

    def older(**fields: Any) -> Any:
        del fields["is_causal"]
        return kind(**fields)

    monkeypatch.setattr(transformers, name, older)
    with pytest.raises(UserError) as error:
        load(family, write(family, tmp_path / "model"))
    assert "a late token moves no early score" in str(error.value)
    assert "5.2" in str(error.value)


def test_a_tied_head_is_the_embedding(family: str, tmp_path: Path) -> None:
    word = {"llada": "weight_tying", "dream": "tie_word_embeddings"}[family]
    names = {"llada": ("transformer.ff_out", "transformer.wte"), "dream": ("lm_head", "embed")}
    file = write(family, tmp_path / "model", **{word: True}) / "model.safetensors"
    head, embedding = names[family]
    tensors = {k: v for k, v in load_file(file).items() if head not in k}
    save_file(tensors, file)
    model = load(family, file.parent)
    hidden = model.hidden(torch.tensor([[1, 2, 3]]), None)
    matrix = next(tensor for key, tensor in tensors.items() if embedding in key)
    assert distance(rows(model, hidden), aligned(family, hidden @ matrix.T)) < TOLERANCE


def test_weights_cannot_be_chosen(family: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing to choose"):
        load(family, write(family, tmp_path / "model"), weights="ema")
