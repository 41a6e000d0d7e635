"""A network of transformers, loaded by that library: files, options and what can go wrong.

Nothing from a checkpoint is run: only weights in safetensors and classes that transformers has.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from strop.checkpoints import hub
from strop.checkpoints.checkpoint import Located
from strop.checkpoints.keys import few
from strop.errors import UserError

CONFIG = "config.json"


def directory_of(found: Located) -> Path:
    """The directory that a model's files lie in."""
    return found.path if found.path.is_dir() else found.path.parent


def pinned(found: Located) -> str:
    """The source as the user wrote it, with the hub's commit where there is one."""
    if found.revision is None:
        return found.source
    return f"{found.source.partition('@')[0]}@{found.revision}"


def weight_files(directory: Path) -> list[Path]:
    """The weights in safetensors, all shards of them; a pickle would be code."""
    single, index = directory / hub.WEIGHTS, directory / hub.INDEX
    if single.is_file():
        return [single]
    if not index.is_file():
        raise UserError(
            "The model has no weights in safetensors format.",
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


def complete(load: Callable[[], Any], kind: str, directory: Path) -> Any:
    """The network that `load` makes with its loading report, if nothing is left at a random start.

    `kind` says in a message what the network is.
    """
    try:
        network, report = load()
    except (ValueError, KeyError, OSError, RuntimeError, ImportError, TypeError) as error:
        raise UserError(
            f"transformers cannot load this {kind}.",
            where=directory,
            got=first_line(error),
            expected="an architecture that transformers itself has, and weights that fit it",
            fix="check the directory and the options, or upgrade transformers",
        ) from error
    lacking = sorted(map(str, {*report["missing_keys"], *report.get("mismatched_keys", ())}))
    if lacking:
        raise UserError(
            f"The weights do not fit the {kind}.",
            where=directory,
            got=f"missing or misshapen: {few(lacking)}",
            fix="download the weights again, or correct config.json",
        )
    bad = [name for name, tensor in network.named_parameters() if not _finite(tensor)]
    if bad:
        raise UserError(
            "The checkpoint holds weights that are not finite numbers.",
            where=directory,
            got=few(bad),
            fix="download the weights again, or correct config.json",
        )
    return network


def _finite(tensor: torch.Tensor) -> bool:
    # Parts that were left on the disk have no values here, and packed ones are whole numbers.
    if tensor.is_meta or not tensor.is_floating_point() or tensor.element_size() < 2:
        return True
    return bool(tensor.isfinite().all())


def first_line(error: Exception) -> str:
    """What an error of another library says, short enough for a message."""
    text = str(error).strip()
    if not text or isinstance(error, KeyError):  # whose text is a bare word
        return f"{type(error).__name__} {text}".strip()[:200]
    return text.splitlines()[0][:200]


def hashed(content: Mapping[str, Any]) -> int:
    """48 bits of a hash of plain data, for the numbers of a checkpoint's shape."""
    text = json.dumps(content, sort_keys=True)
    return int(hashlib.sha256(text.encode()).hexdigest()[:12], 16)
