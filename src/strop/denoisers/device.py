"""Which device and dtype are meant, copies that do not wait, and how much the device holds.

The kernel tells how much the machine has free, also inside a container with less. Whoever takes
more than the container may is killed without a word, so its limits are read where the kernel keeps
them: in the control group of this process and in those above it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strop.engine.plan import WORKERS
from strop.errors import UserError, unknown_name

Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]
Truths = NDArray[np.bool_]
"""Arrays of the host."""

DTYPES = ("float32", "bfloat16", "float16")
PUBLIC = "public"
"""The casts of the family's public code."""
OTHERS = ("mps", "xpu", "hpu", "npu", "xla", "vulkan")
"""Devices that torch knows and this package does not."""
HEAD_ENTRIES = {"cpu": 2**20, "cuda": 2**26}
"""Scores computed at a time: the head's memory does not grow with the batch.

A GPU reads the head's matrix once for each of these pieces and is launched as often, so there they
are large. On the CPU they stay as they are: other pieces would have other last bits.
"""
ENTRY_BYTES = 28
"""Bytes that are alive at a time for each score, while its row is drawn from."""
HEAD_SHARE = 0.25
"""Of a GPU's free memory, what scores may take."""
ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
SECOND = ("memory.max", "memory.current", "inactive_file")
"""Version 2 of control groups: the limit, what is in use, and what of it are files that the kernel
drops when memory is wanted."""
FIRST = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
"""Version 1, whose folders lie below `memory`."""


def resolve_device(name: str) -> torch.device:
    """`auto`, `cpu`, `cuda` or `cuda:i`, if it is there; `meta` for GPUs of other processes."""
    if name == WORKERS:
        return torch.device("meta")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, number = name.partition(":")
    if kind in OTHERS:
        raise UserError(
            f"Models do not run on {kind}: the draws need float64, and it is untested.",
            where="`device`",
            got=name,
            expected="auto, cpu, cuda or cuda:i (a ROCm build of torch says cuda, too)",
            fix="use `device=cpu`",
        )
    if kind not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise unknown_name("device", name, ["auto", "cpu", "cuda", "cuda:0"], where="`device`")
    if kind == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "There is no CUDA device here.",
            where="`device`",
            got=name,
            expected="auto or cpu"
            if torch.version.cuda or torch.version.hip
            else "a CUDA or ROCm build of torch",
            fix="use `device=cpu`, or see `strop doctor`",
        )
    if kind == "cuda" and number and int(number) >= torch.cuda.device_count():
        raise UserError(
            "There is no CUDA device with that number.",
            where="`device`",
            got=name,
            expected=f"cuda:0 to cuda:{torch.cuda.device_count() - 1}",
        )
    return torch.device(name)


def resolve_dtype(name: str, device: torch.device, *, public: str | None = None) -> str:
    """Full precision unless asked otherwise: the sampler's law should not hang on the device.

    `public` is what that name means for a family; its casts are for GPUs, and on a CPU the public
    codes that have them compute in float32.
    """
    if name == "auto" or (name == PUBLIC == public and device.type == "cpu"):
        return "float32"
    if name == PUBLIC and public is not None:
        return public if public == PUBLIC else resolve_dtype(public, device)
    if name not in DTYPES:
        choices = ["auto", *DTYPES, *([PUBLIC] if public else [])]
        raise unknown_name("network dtype", name, choices, where="`dtype`")
    if name != "float32" and device.type == "cpu":
        # Seen: an eighth of float32's speed, and on one machine an illegal instruction.
        raise UserError(
            f"{name} is for GPUs: CPUs are slower with it, and some builds crash.",
            where="`dtype`",
            got=f"{name} on {device}",
            fix="use `dtype=float32`, or use `device=cuda`",
        )
    return name


def upload(array: NDArray[Any] | Tensor, device: torch.device) -> Tensor:
    """An array of the host on the device; the host goes on while it is copied.

    From ordinary memory, or where numbers do not lie one after the other, the driver may wait for
    the device first, so a copy to CUDA goes through pinned memory. On the CPU the tensor is the
    array itself: do not write to it afterwards.
    """
    tensor = array if isinstance(array, Tensor) else torch.from_numpy(array)
    if device.type == "cuda":
        tensor = tensor.contiguous().pin_memory()
    return tensor.to(device, non_blocking=True)


def brought(tensor: Tensor, device: torch.device) -> Tensor:
    """Numbers where they are needed, from wherever a generator has drawn them."""
    return upload(tensor, device) if tensor.device.type == "cpu" else tensor.to(device)


def upload_rows(device: torch.device, *columns: Numbers) -> tuple[Tensor, ...]:
    """Columns of one length in one copy; each tensor remembers its numbers for `on_host`."""
    tensors = upload(np.stack(columns), device).unbind()
    for tensor, column in zip(tensors, columns, strict=True):
        tensor.host = column  # type: ignore[attr-defined]
    return tensors


def on_host(tensor: Tensor) -> Numbers:
    """The numbers of a tensor; waits for the device, unless they came by `upload_rows`."""
    numbers = getattr(tensor, "host", None)
    return tensor.cpu().numpy() if numbers is None else numbers  # waits


def head_rows(vocab_size: int, device: torch.device) -> int:
    """How many rows of scores are computed at a time."""
    entries = HEAD_ENTRIES.get(device.type, HEAD_ENTRIES["cpu"])
    if device.type == "cuda":
        free = free_bytes(device) or 0
        while entries > HEAD_ENTRIES["cpu"] and entries * ENTRY_BYTES > HEAD_SHARE * free:
            entries //= 2
    return max(1, entries // max(1, vocab_size))


def free_bytes(device: torch.device) -> int | None:
    """Bytes that are free on a device; None where that is unknown.

    What torch keeps for later tensors of this process counts as free.
    """
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    limits = [free for free in (_free_here(), left_in_container()) if free is not None]
    return min(limits, default=None)


def _free_here() -> int | None:
    """Free bytes of this machine; a container may have fewer."""
    try:
        with open("/proc/meminfo") as lines:
            meminfo = dict(line.split(":", 1) for line in lines)
        return int(meminfo["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def left_in_container() -> int | None:
    """Bytes up to the nearest limit; None where there is none, or it is unknown."""
    limits = []
    try:
        for line in OWN.read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds == "":
                limits += _left(ROOT, path, SECOND)
            elif "memory" in kinds.split(","):
                limits += _left(ROOT / "memory", path, FIRST)
    except (OSError, ValueError):
        return None
    return min(limits, default=None)


def _left(root: Path, path: str, names: tuple[str, str, str]) -> Iterator[int]:
    """Of a group and of those above it; a container may see its own group as the root."""
    group = root / path.lstrip("/")
    for folder in (group, *group.parents):
        if not folder.is_relative_to(root):
            return
        try:
            most, used = ((folder / name).read_text().strip() for name in names[:2])
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        except OSError:  # not this one: the root has no limit
            continue
        if most != "max":
            yield max(0, int(most) - int(used) + int(stat.get(names[2], 0)))
