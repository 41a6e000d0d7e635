"""Peak memory of a piece of work: on CUDA what torch allocated, on Linux what was resident."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

STATUS, FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class PeakMemory:
    """Start it after the weights are loaded; `extra` is what was needed on top of them since.

    On the CPU the process must be one of its own: memory that earlier work freed may still be
    resident, and would hide what the measured work takes.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._before: int | None = None
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            self._before = torch.cuda.memory_allocated(device)
        elif _release() and _forget_peak():
            self._before = _status("VmRSS")

    @property
    def method(self) -> str:
        """What the number is."""
        if self.device.type == "cuda":
            return "cuda: max_memory_allocated"
        return "resident: VmHWM" if self._before is not None else "not measured on this system"

    def extra(self) -> int | None:
        """Bytes at the peak, less what was there at the start; None where it cannot be known."""
        if self._before is None:
            return None
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) - self._before
        return _status("VmHWM") - self._before


def _release() -> bool:
    """Give freed memory back to the system, so that it does not count as already there."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        return False
    return True


def _forget_peak() -> bool:
    try:
        FORGET.write_text("5")
    except OSError:
        return False
    return True


def _status(field: str) -> int:
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))
