"""A device that is not there: tensors on the CPU that say where a real device would be waited for.

They call themselves `meta`, so that nothing reads them by accident, and hold their numbers inside.
Under `Watch` every operation on them goes through one place, which writes down the ones for which
CUDA makes the host wait.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("meta")
LOOKS = (
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "equal",
    "is_nonzero",
    "unique",
    "_unique2",
)
"""Operations whose result, or its size, the host has to know."""


class Remote(torch.Tensor):
    """Numbers on the device."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Remote:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
        )
        made.held = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} on the device, and nobody watches")


class Watch(TorchDispatchMode):
    """Runs what happens on the device, and lists the waits."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = func.overloadpacket.__name__
        flat = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
        there = any(isinstance(x, Remote) for x in flat)
        target = kwargs.get("device")
        if target is not None and torch.device(target) == DEVICE and not there:
            kwargs["device"] = "cpu"
            if flat and not kwargs.get("non_blocking"):
                self.waits.append("upload")
            found = func(*args, **kwargs)
            return Remote(found.clone() if flat else found)
        if not there:
            return func(*args, **kwargs)
        self._look(name, args, flat)
        if name in ("_to_copy", "copy_") and self._comes_back(name, target, args):
            self.waits.append("download")
            there = False
        elif target is not None:
            kwargs["device"] = "cpu"
        inner = tree_map(lambda x: x.held if isinstance(x, Remote) else x, (args, kwargs))
        found = func(*inner[0], **inner[1])
        if name.endswith("_"):
            return args[0]
        if not there:
            return found
        return tree_map(lambda x: Remote(x) if isinstance(x, torch.Tensor) else x, found)

    def _look(self, name: str, args: Any, flat: list[torch.Tensor]) -> None:
        if name in LOOKS:
            self.waits.append(name)
        if name in ("index", "index_put", "index_put_"):
            by = [x for x in args[1] if x is not None]
            if any(x.dtype == torch.bool for x in by):
                self.waits.append("boolean index")
            if any(not isinstance(x, Remote) for x in by):
                self.waits.append("upload")
        elif name not in ("copy_", "_to_copy"):
            strangers = [x for x in flat if not isinstance(x, Remote) and x.ndim]
            assert not strangers, f"{name} mixes host and device"

    def _comes_back(self, name: str, target: Any, args: Any) -> bool:
        if name == "copy_":
            if isinstance(args[0], Remote) and not isinstance(args[1], Remote) and args[1].ndim:
                self.waits.append("upload")
            return not isinstance(args[0], Remote)
        return target is not None and torch.device(target) != DEVICE
