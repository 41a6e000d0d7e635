"""Where and with what something was drawn or measured: provenance, never identity."""

from __future__ import annotations

import datetime
import platform
import subprocess
import uuid
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from strop.version import __version__

if TYPE_CHECKING:
    from strop.denoisers import Model

__all__ = ["new_session"]

PACKAGES = ("strop", "torch", "transformers", "numpy", "tokenizers", "safetensors", "pyarrow")


def new_session(denoiser: Model) -> dict[str, Any]:
    """Where and with what the outputs of this session are drawn."""
    device = denoiser.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()
    return {
        "session": uuid.uuid4().hex[:12],
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "checkpoint": denoiser.source,
        "host": platform.node(),
        "device": str(device),
        "device_name": name or platform.machine(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "code": _commit(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str:
    """The version, and the commit (with `-dirty` after changes) where it runs from a checkout."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return __version__
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return __version__
    return f"{__version__}+{answer.stdout.strip()}"
