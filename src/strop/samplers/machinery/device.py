"""From the host to the device without waiting for it."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def upload(array: NDArray[Any], device: torch.device) -> Tensor:
    """The array on the device; the host goes on while it is copied.

    From ordinary memory the driver may wait for the device first, so a copy to CUDA goes through
    pinned memory. On the CPU the tensor is the array itself: do not write to it afterwards.
    """
    found = torch.from_numpy(array)
    if device.type == "cuda":
        found = found.pin_memory()
    return found.to(device, non_blocking=True)
