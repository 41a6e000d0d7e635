"""A causal model small enough for every test: random weights, GPT-2's own tokenizer."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch

import strop
from strop.measure.evaluator import Evaluator
from strop.measure.spans import Passage

GPT2 = Path(strop.__file__).parent / "assets" / "gpt2"
END = "<|endoftext|>"
END_ID = 50256

# Written by hand: every way in which an end of text can stand, and what is hard to tokenise.
HAND_MADE = {
    "no end": "The cat sat on the mat , and slept .",
    "leading": f"{END}The cat sat on the mat.",
    "closed": f"{END}The cat sat.{END}A dog ran away from it.{END}",
    "not leading": f"The cat sat.{END}A dog ran.",
    "repeated": f"{END}{END}{END}The cat{END}{END}sat{END}",
    "empty document": f"{END}{END}The cat sat.",
    "empty": "",
    "only ends": f"{END}{END}",
    "one token": "The",
    "one end": END,
    "non-ASCII": f"{END}Größe, 漢字かな交じり文, naïve 🙂🙃.{END}Ещё один",
    "begins inside a character": "🙂 smiles",
    "long": "the quick brown fox jumps over the lazy dog again " * 9,
}


def write_gpt2(directory: Path, *, context: int = 32, seed: int = 0, **changes: Any) -> Path:
    """A GPT-2 of one block with weights large enough that tokens differ in probability."""
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        shape = {"n_layer": 1, "n_embd": 8, "n_head": 2, "n_positions": context, **changes}
        network = GPT2LMHeadModel(GPT2Config(initializer_range=0.5, **shape))
    network.save_pretrained(directory)
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(GPT2 / name, directory)
    return directory


def outputs_of(evaluator: Evaluator, texts: list[str]) -> list[Passage]:
    return [
        Passage(text, np.array(ids, np.int64))
        for text, ids in zip(texts, evaluator.encode(texts), strict=True)
    ]
