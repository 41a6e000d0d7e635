"""Where and with what something was drawn or measured: provenance, never identity."""

from __future__ import annotations

import contextlib
import datetime
import functools
import platform
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.engine.plan import spelled
from strop.version import __version__

if TYPE_CHECKING:
    import torch

    from strop.denoisers import Model
    from strop.pool import Output

PACKAGES = ("strop", "torch", "transformers", "numpy", "tokenizers", "safetensors", "pyarrow")


def new_session(denoiser: Model, device: torch.device | None = None) -> dict[str, Any]:
    """Where and with what the outputs of this session are drawn; `device`: not the model's."""
    import torch

    device = denoiser.device if device is None else device
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
        "packages": dict(_versions()),
        "code": _commit(),
    }


class WorkerSession:
    """What one worker did for one cell: provenance that grows with its outputs."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self._said = {**facts, "session": uuid.uuid4().hex[:12], "started": now}
        self._indices: set[int] = set()
        self._seconds = 0.0

    def add(self, outputs: Sequence[Output]) -> None:
        """These were drawn in it."""
        self._indices |= {one.index for one in outputs}
        self._seconds += sum(one.seconds for one in outputs)

    def document(self) -> dict[str, Any]:
        """For `cost.json`."""
        return {
            **self._said,
            "outputs": len(self._indices),
            "seconds": self._seconds,
            "indices": spelled(self._indices),
        }


@functools.cache
def _versions() -> Mapping[str, str | None]:
    """Asked once: a process goes on with what it has loaded."""
    installed: dict[str, str | None] = dict.fromkeys(PACKAGES)
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[package] = metadata.version(package)
    return installed


@functools.cache
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
