"""strop models random for LLaDA and Dream: the public files, down to the chat template."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jinja2
import pytest
import torch
from large_models import FAMILIES, load

from strop import records
from strop.checkpoints.config import SHAPES
from strop.cli.main import run
from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError
from strop.registry import resolve

SMALL = ["--width", "32", "--blocks", "2", "--heads", "4", "--length", "64"]
KNOWN = {"llada": 4101, "dream": 4100}
"""What the tokenizer with its special tokens needs."""
TURNS = {
    "llada": "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nTell me.<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "dream": "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\n Tell me.\n<|im_end|>\n<|im_start|>assistant\n",
}


def made(*arguments: object) -> None:
    assert run(["models", "random", *map(str, arguments)]) == 0


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def directory(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("random") / family
    made(path, "--family", family, *SMALL, "--vocab-size", KNOWN[family])
    return path


def test_it_loads_and_reads_prompts(family: str, directory: Path) -> None:
    model = load(family, directory)
    assert (model.length, model.eos_id) == (64, 0)
    assert model.codec is not None
    template = json.loads((directory / "tokenizer_config.json").read_text())["chat_template"]
    messages = [{"role": "user", "content": " Tell me.\n"}]
    text = jinja2.Template(template).render(messages=messages, add_generation_prompt=True)
    assert text == TURNS[family]
    ids = model.codec.encode(text)
    assert model.codec.decode(ids) == text
    assert max(ids) >= 4096  # special tokens are tokens, not their letters
    assert model.codec.decode([model.mask_id]) in ("<|mdm_mask|>", "<|mask|>")
    masks = [model.mask_id] * 8
    scores = model.logits(
        model.hidden(torch.tensor([ids + masks]), None),
        torch.zeros(8, dtype=torch.long),
        torch.arange(len(ids), len(ids) + 8),
    )
    assert scores.std(dim=-1).min() > 0.1
    assert model.mask_id not in scores.argmax(dim=-1)


def test_a_small_vocabulary_has_no_texts(tmp_path: Path) -> None:
    made(tmp_path / "ids", "--family", "dream", *SMALL, "--vocab-size", 40)
    model = load("dream", tmp_path / "ids")
    assert (model.vocab_size, model.mask_id, model.codec) == (40, 39, None)


def test_dreams_own_tokenizer_files_run_no_code(tmp_path: Path) -> None:
    made(tmp_path / "model", "--family", "dream", *SMALL)
    path = tmp_path / "model" / "tokenizer_config.json"
    before = load("dream", tmp_path / "model").codec
    said = json.loads(path.read_text())
    auto = {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]}
    path.write_text(json.dumps(said | {"tokenizer_class": "DreamTokenizer", "auto_map": auto}))
    (tmp_path / "model" / "tokenization_dream.py").write_text("raise SystemExit('code was run')\n")
    after = load("dream", tmp_path / "model").codec
    assert before is not None
    assert after is not None
    text = "<|im_start|>It's 12 o'clock.<|im_end|><|mask|>"
    assert after.encode(text) == before.encode(text)
    # Not GPT-2's reading of the same pairs: there digits stay together, and the tokens are text.
    plain = TextCodec.from_directory(tmp_path / "model")
    assert plain.encode(text) != after.encode(text)


def test_a_tokenizer_that_does_not_fit(directory: Path, family: str, tmp_path: Path) -> None:
    copy = shutil.copytree(directory, tmp_path / "model")
    if family == "llada":
        content = json.loads((copy / "tokenizer.json").read_text())
        content["added_tokens"].append(
            content["added_tokens"][-1] | {"id": 4101, "content": "<|another|>"}
        )
        (copy / "tokenizer.json").write_text(json.dumps(content))
    else:
        said = json.loads((copy / "tokenizer_config.json").read_text())
        token = said["added_tokens_decoder"]["4099"] | {"content": "<|another|>"}
        said["added_tokens_decoder"]["4100"] = token
        (copy / "tokenizer_config.json").write_text(json.dumps(said))
    with pytest.raises(UserError, match="larger than the model's vocabulary"):
        load(family, copy)


def test_a_damaged_tokenizer(tmp_path: Path) -> None:
    made(tmp_path / "model", "--family", "dream", *SMALL)
    (tmp_path / "model" / "vocab.json").write_text("[]")
    with pytest.raises(UserError, match="tokenizer cannot be read"):
        load("dream", tmp_path / "model")


@pytest.mark.parametrize(
    ("family", "model_type", "architecture"),
    [
        ("llada", "llada", "LLaDAModelLM"),
        ("dream", "Dream", "DreamModel"),
        ("sdar", "sdar", "SDARForCausalLM"),
        ("llada2", "llada2_moe", "LLaDA2MoeModelLM"),
        ("fast-dllm-v2", "Fast_dLLM_Qwen", "Fast_dLLM_QwenForCausalLM"),
    ],
)
def test_a_configuration_names_its_model_as_the_release_does(
    family: str, model_type: str, architecture: str
) -> None:
    make = records.FAMILIES[family].layout
    assert make is not None
    layout = resolve(make)(SHAPES["tiny"])
    head = "model.transformer.ff_out.weight" if family == "llada" else "lm_head.weight"
    assert list(layout.silent) == [head]  # no trained model predicts the mask
    config = layout.config
    assert list(config)[:2] == ["architectures", "model_type"]
    assert (config["architectures"], config["model_type"]) == ([architecture], model_type)
