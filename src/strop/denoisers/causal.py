"""A causal language model of transformers as a generator: its own classes, its weights, our draw.

Nothing from the checkpoint is run: only weights in safetensors and classes that transformers itself
has. What it starts from is its beginning-of-text token; a model that has none starts from its
end-of-text token, which for GPT-2 and the models here is the same token.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from strop.checkpoints import hub
from strop.checkpoints.checkpoint import Located, has_tokenizer
from strop.checkpoints.files import read_json_object, sha256_of_all
from strop.checkpoints.keys import few
from strop.denoisers.loading import Loading
from strop.denoisers.tokenizer import TextCodec
from strop.errors import UserError, missing_package
from strop.spec import CheckpointSpec

__all__ = ["CausalLM", "load_causal"]

DEFAULT_LENGTH = 1024
"""Tokens per output when none are asked for: what the comparisons use, not a long context's end."""
UNLIMITED = 2**20
"""The longest output of a model whose architecture knows no longest."""

_GPT2_VOCABULARY = 50257
_CONFIG = "config.json"
# Fields of a configuration that have no part in what a trained model computes.
_BOOKKEEPING = ("dropout", "pdrop", "transformers_version", "dtype", "use_cache", "_name_or_path")


class CausalLM:
    """A causal language model as a `CausalModel`."""

    mask_id = None

    def __init__(
        self,
        network: Any,
        spec: CheckpointSpec,
        *,
        source: str,
        start_id: int,
        codec: TextCodec | None,
        device: torch.device,
    ) -> None:
        self.network = network.to(device).eval().requires_grad_(False)
        self.spec, self.source, self.codec, self.device = spec, source, codec, device
        self.start_id = start_id
        self.vocab_size = int(spec.shape["vocab_size"])
        self.length = int(spec.shape["length"])
        self.default_length = min(self.length, DEFAULT_LENGTH)

    @torch.no_grad()
    def read(self, ids: Tensor, memory: Any) -> tuple[Tensor, Any]:
        """One call of the network, with its keys and values kept."""
        out = self.network(input_ids=ids, past_key_values=memory, use_cache=True)
        return out.logits[:, -1].float().clone(), out.past_key_values


def load_causal(found: Located, loading: Loading) -> CausalLM:
    """Load the model that lies at `found`."""
    weights, device, dtype = loading.weights, loading.device, loading.dtype
    if weights is not None:
        raise UserError(
            "A causal language model has one set of weights; there is nothing to choose.",
            where=found.source,
            got=f"weights={weights!r}",
            fix="leave weights out",
        )
    directory = _directory(found)
    files = _weight_files(directory)
    network = _network(directory, dtype)
    config = network.config.get_text_config()
    shape: dict[str, int | float | bool] = {
        "vocab_size": config.vocab_size,
        "length": getattr(config, "max_position_embeddings", None) or UNLIMITED,
        "start_id": _start(directory, config),
        "config": _fingerprint(read_json_object(directory / _CONFIG)),
    }
    spec = CheckpointSpec(
        family="ar", sha256=sha256_of_all(files), shape=shape, network_dtype=dtype
    )
    source = found.source
    if found.revision is not None:
        source = f"{source.partition('@')[0]}@{found.revision}"
    tokenizer = directory if has_tokenizer(directory) else None
    codec = TextCodec.beside(tokenizer, config.vocab_size, _GPT2_VOCABULARY)
    start_id = int(shape["start_id"])
    return CausalLM(network, spec, source=source, start_id=start_id, codec=codec, device=device)


def _directory(found: Located) -> Path:
    return found.path if found.path.is_dir() else found.path.parent


def _weight_files(directory: Path) -> list[Path]:
    """The weights in safetensors; a pickle would be code."""
    single, index = directory / hub.WEIGHTS, directory / hub.INDEX
    if single.is_file():
        return [single]
    if not index.is_file():
        raise UserError(
            "The causal language model has no weights in safetensors format.",
            where=directory,
            expected=f"{hub.WEIGHTS} or {hub.INDEX}",
            fix="save it with `model.save_pretrained(DIRECTORY)`",
        )
    files = [directory / name for name in hub.shard_names(index)]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise UserError(
            "A part of the weights is missing.",
            where=directory,
            got=f"no {few(missing)}",
            expected=f"every file that {hub.INDEX} names",
            fix="finish the download",
        )
    return files


def _network(directory: Path, dtype: str) -> Any:
    """The network of transformers, complete: nothing may be left at its random start."""
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise (missing_package(error) or error) from None
    word = "dtype" if int(transformers.__version__.split(".")[0]) >= 5 else "torch_dtype"
    options = {word: getattr(torch, dtype), "use_safetensors": True, "local_files_only": True}
    try:
        with _quiet():
            loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
                str(directory), trust_remote_code=False, output_loading_info=True, **options
            )
    except (ValueError, KeyError, OSError, RuntimeError, ImportError) as error:
        raise UserError(
            "transformers cannot load this causal language model.",
            where=directory,
            got=str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error),
            expected="an architecture that transformers itself has, and weights that fit it",
            fix="check the directory, or upgrade transformers",
        ) from error
    network, report = loaded
    lacking = sorted(map(str, {*report["missing_keys"], *report.get("mismatched_keys", ())}))
    bad = [name for name, tensor in network.named_parameters() if not tensor.isfinite().all()]
    if lacking or bad:
        raise UserError(
            "The weights do not fit the causal language model."
            if lacking
            else "The checkpoint holds weights that are not finite numbers.",
            where=directory,
            got=f"missing or misshapen: {few(lacking)}" if lacking else few(bad),
            fix="download the weights again, or correct config.json",
        )
    return network


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bar and no warnings of transformers: what matters is checked here."""
    from transformers.utils import logging

    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


def _start(directory: Path, config: Any) -> int:
    """The beginning-of-text token, else the end-of-text token."""
    for name in ("bos_token_id", "eos_token_id"):
        found = getattr(config, name, None)
        found = found[0] if isinstance(found, (list, tuple)) and found else found
        if isinstance(found, int) and 0 <= found < config.vocab_size:
            return found
    raise UserError(
        "Nothing says which token a text begins with.",
        where=directory / _CONFIG,
        expected="bos_token_id or eos_token_id, an id of the vocabulary",
        fix="write it into config.json",
    )


def _fingerprint(config: dict[str, Any]) -> int:
    """48 bits of a hash of what the configuration says beyond the tensors' shapes."""
    kept = {k: v for k, v in config.items() if not k.endswith(_BOOKKEEPING)}
    text = json.dumps(kept, sort_keys=True)
    return int(hashlib.sha256(text.encode()).hexdigest()[:12], 16)
