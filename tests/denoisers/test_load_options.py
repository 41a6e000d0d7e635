"""What is handed on to transformers, and what of it belongs to a checkpoint's identity."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from large_models import FAMILIES, TOLERANCE, distance, expected, load, rows, write

from strop.denoisers.pretrained import load_options
from strop.errors import UserError


@pytest.mark.parametrize("family", FAMILIES)
def test_another_attention_kernel_is_another_checkpoint_of_the_same_law(
    family: str, tmp_path: Path
) -> None:
    directory, given = write(family, tmp_path / "model"), expected(family)
    plain = load(family, directory)
    eager = load(family, directory, load={"attn_implementation": "eager"})
    assert eager.network.config._attn_implementation == "eager"
    assert eager.spec.id != plain.spec.id
    assert load(family, directory, load={"attn_implementation": "sdpa"}).spec.id == plain.spec.id
    ids, canvas = given["input/ids"], given["input/canvas"]
    assert distance(rows(eager, eager.hidden(ids, None)), rows(plain, plain.hidden(ids, None))) < (
        TOLERANCE
    )
    found = []
    for model in (plain, eager):
        _, memory = model.remember(canvas)
        revealed = given["input/canvas_revealed"]
        found.append(rows(model, model.window(revealed[:, 7:15], 7, memory, "dual")))
    assert distance(*found) < TOLERANCE


def test_the_dtype_is_the_networks(tmp_path: Path) -> None:
    model = load("dream", write("dream", tmp_path / "model"), load={"dtype": "bfloat16"})
    assert model.spec.network_dtype == "bfloat16"
    assert "load" not in model.spec.shape
    scores = rows(model, model.hidden(expected("dream")["input/ids"], None))
    assert scores.dtype.is_floating_point
    assert str(scores.dtype) == "torch.float32"


def test_where_the_network_lies_is_no_part_of_its_identity(tmp_path: Path) -> None:
    directory = write("llada", tmp_path / "model")
    plain = load("llada", directory)
    placed = load("llada", directory, load={"device_map": "cpu"})
    assert placed.spec.id == plain.spec.id
    assert str(placed.device) == "cpu"
    ids = expected("llada")["input/ids"]
    assert distance(placed.hidden(ids, None), plain.hidden(ids, None)) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trust_remote_code": True}, "The loader sets 'trust_remote_code'"),
        ({"is_causal": True}, "The loader sets 'is_causal'"),
        ({"dtype": "float8"}, "no network dtype called 'float8'"),
        ({"attn_implementation": "fastest"}, "cannot load this llada checkpoint"),
        ({"no_such_option": 3}, "cannot load this llada checkpoint"),
        ({"quantization_config": object()}, "cannot be written as JSON"),
        ({"quantization_config": {"quant_method": "magic"}}, "cannot load this llada checkpoint"),
        ({"adapter": "nowhere"}, "no adapter in this directory"),
    ],
)
def test_options_that_cannot_be_followed(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as error:
        load("llada", write("llada", tmp_path / "model"), load=options)
    assert message in str(error.value)


def test_two_dtypes_are_refused() -> None:
    with pytest.raises(UserError, match="Two dtypes"):
        load_options({"dtype": "bfloat16"}, "float16")


@pytest.mark.skipif(importlib.util.find_spec("peft") is not None, reason="peft is installed")
def test_an_adapter_without_peft_says_what_is_missing(tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 1}')
    (adapter / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match="cannot add this adapter") as error:
        load("llada", write("llada", tmp_path / "model"), load={"adapter": str(adapter)})
    assert "pip install peft" in str(error.value)
