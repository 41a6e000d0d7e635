"""A LLaDA that nobody trained, with the tokenizer of the sums."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from strop.checkpoints.config import SHAPES
from strop.checkpoints.layout import write_random
from strop.records import FAMILIES
from strop.registry import resolve
from sums_words import tokenizer


@pytest.fixture(scope="session")
def llada(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models") / "random-llada"
    size = {"hidden_dim": 32, "n_blocks": 1, "n_heads": 2, "length": 96}
    shape = replace(SHAPES["tiny"], **size, vocab_size=158, mask_id=157)
    layout = FAMILIES["llada"].layout
    assert layout is not None
    write_random(place, resolve(layout)(shape), 0)
    for file in place.glob("*token*"):
        file.unlink()
    (place / "tokenizer.json").write_text(json.dumps(tokenizer()))
    return place
