"""A pretend CUDA device: what can be known of a program on a GPU without one.

Tensors on it hold their numbers on the CPU and say that they are on `cuda:i`. Operations that mix
devices are refused as CUDA refuses them, and every operation that makes the host wait for the
device is listed with its place in the code. Values are real, so whole samplers run and their ids
can be compared with the CPU's. No CUDA kernel, autocast, allocator or stream is part of this.
"""

from __future__ import annotations

import linecache
import math
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

FREE, WHOLE = 60 << 30, 80 << 30
"""Bytes of memory that the device says it has."""
LOOKS = (
    "_local_scalar_dense",
    "_unique2",
    "bincount",
    "equal",
    "is_nonzero",
    "masked_select",
    "multinomial",
    "nonzero",
    "repeat_interleave",
    "unique_consecutive",
    "unique_dim",
)
"""Operations whose result, or the size of it, the host has to know."""
INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")
TOGETHER = ("cat", "stack", "mm", "addmm", "bmm", "gather", "index_select", "searchsorted")
"""Operations that refuse even a single number of the CPU."""
NOTE = "# waits"
"""What a line says that makes the host wait on purpose."""
_TORCH, _STROP = str(Path(torch.__file__).parent), str(Path(__file__).parents[1])
_WATCHING = str(Path(__file__).parent)


class MixedDevices(RuntimeError):
    """An operation on several devices, which CUDA would refuse."""


class Pretended(torch.Tensor):
    """A tensor on the device."""

    inner: torch.Tensor  # pyright: ignore[reportIncompatibleMethodOverride]
    home: torch.device

    @staticmethod
    def __new__(cls, inner: torch.Tensor, device: torch.device) -> Pretended:
        """Wrap a tensor of the CPU."""
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=torch.device("meta"),  # a build without CUDA takes no other that is not the CPU
        )
        tensor.inner, tensor.home = inner, device
        return tensor

    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        return _run(func, args, kwargs or {})

    @property
    def device(self) -> torch.device:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The device that it claims to be on."""
        return self.home

    @property
    def is_cuda(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True: it claims to be on a CUDA device."""
        return True

    @property
    def is_meta(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """False: it has numbers."""
        return False

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(_tensors(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, (bool, int, float)):
            value = torch.tensor(value, dtype=self.dtype)
        super().__setitem__(_tensors(index), value)

    def tolist(self) -> Any:
        """The numbers; the host waits for them."""
        _wait("tolist")
        return self.inner.tolist()


class DeviceWatch(TorchDispatchMode):
    """Catches what has no tensor of the device yet, and counts what happened on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[tuple[str, str]] = Counter()
        """How often the host waited, by what it did and where."""
        self.unsaid: Counter[str] = Counter()
        """Of these, the ones at lines without a note that they wait."""
        self.operations = 0
        self.warns = False

    def clear(self) -> None:
        """Set all counts to zero."""
        self.waits.clear()
        self.unsaid.clear()
        self.operations = 0

    def debug(self, mode: str) -> None:
        """Warn of every wait, as torch does."""
        self.warns = mode == "warn"
        if self.warns:
            warnings.warn("This does not yet detect all synchronizing operations.", stacklevel=2)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        return _run(func, args, kwargs or {})


_MODES: list[DeviceWatch] = []


@contextmanager
def pretended(count: int = 1) -> Iterator[DeviceWatch]:
    """Let `cuda:0` to `cuda:count-1` be there, and watch them."""
    mode = DeviceWatch()
    torch._C._ensureCUDADeviceGuardSet()  # else a build without CUDA knows no such device at all
    with ExitStack() as stack:
        stack.enter_context(claimed_cuda(count))
        for name in ("tensor", "as_tensor"):
            stack.enter_context(patch.object(torch, name, _factory_on_device(getattr(torch, name))))
        stack.enter_context(patch.object(torch.Tensor, "pin_memory", _pinned))
        stack.enter_context(patch.object(torch.cuda, "set_sync_debug_mode", mode.debug))
        stack.enter_context(mode)
        _MODES.append(mode)
        try:
            yield mode
        finally:
            _MODES.remove(mode)


@contextmanager
def claimed_cuda(count: int) -> Iterator[None]:
    """Let torch claim to have CUDA devices, without any further pretence."""
    answers: dict[str, Any] = {
        "is_available": count > 0,
        "device_count": count,
        "current_device": 0,
        "get_device_name": "a pretend device",
        "is_bf16_supported": True,
        "mem_get_info": (FREE, WHOLE),
        "memory_allocated": 0,
        "memory_reserved": 0,
        "max_memory_allocated": 0,
    }
    answers |= dict.fromkeys(("_lazy_init", "synchronize", "reset_peak_memory_stats"))
    answers |= dict.fromkeys(("empty_cache", "set_device", "set_sync_debug_mode"))
    with ExitStack() as stack:
        for name, value in answers.items():
            stack.enter_context(patch.object(torch.cuda, name, _always(value)))
        yield


def _always(value: Any) -> Any:
    """A function of its own for each name: torch's compiler refuses one under two names."""
    return lambda *_, **__: value


def _factory_on_device(factory: Any) -> Any:
    """Make a factory build its tensor on the CPU, then move it: its own code never reaches us."""

    def make(data: Any, *args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        if isinstance(data, Pretended):
            return data if device is None else data.to(device)
        tensor = factory(data, *args, **kwargs)
        return tensor if device is None or torch.device(device).type == "cpu" else tensor.to(device)

    return make


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)
    copy.pinned = True  # type: ignore[attr-defined]
    return copy


def _tensors(index: Any) -> Any:
    """An index whose lists are tensors of the CPU, which is what torch makes of them."""
    if isinstance(index, tuple):
        return tuple(_tensors(part) for part in index)
    if isinstance(index, list):
        return torch.tensor(index, dtype=None if index else torch.long)
    return index


def _wait(kind: str) -> None:
    if not _MODES:
        return
    site, declared = waiting_line()
    _MODES[-1].waits[kind, site] += 1
    if not declared:
        _MODES[-1].unsaid[site] += 1
    if _MODES[-1].warns:
        warnings.warn("called a synchronizing CUDA operation", stacklevel=2)


def waiting_line() -> tuple[str, bool]:
    """The line of the program that waits now, and whether the package's own line says so.

    Inside another library (transformers) the line of the package is the one that called it.
    """
    first, frame = "?", sys._getframe(1)
    while frame is not None:
        name, line = frame.f_code.co_filename, frame.f_lineno
        if first == "?" and not name.startswith((_TORCH, _WATCHING)) and not _warning(frame):
            first = f"{Path(name).parent.name}/{Path(name).name}:{line}"
        if name.startswith(_STROP) and not name.startswith(_WATCHING):
            return first, NOTE in linecache.getline(name, line)
        frame = frame.f_back
    return first, False


def _warning(frame: FrameType) -> bool:
    """Whether this is Python's own code, on the way to a listener of warnings."""
    return frame.f_globals.get("__name__") in ("warnings", "_py_warnings")


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    name = func.overloadpacket.__name__
    flat, spec = tree_flatten((args, kwargs))
    on_gpu = [x for x in flat if isinstance(x, Pretended)]
    on_cpu = [x for x in flat if isinstance(x, torch.Tensor) and not isinstance(x, Pretended)]
    requested = kwargs.get("device")
    requested = None if requested is None else _numbered(torch.device(requested), on_gpu, name)
    if name == "_fused_sdp_choice":
        return 0  # the kernel that is made of plain operations
    if name == "empty" and requested is not None and math.prod(args[0]) > WHOLE:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate what is not there.")
    _check(name, args, kwargs, on_gpu, on_cpu, requested)
    target = on_gpu[0].home if on_gpu else torch.device("cpu")
    if requested is not None:
        target, kwargs = requested, {**kwargs, "device": torch.device("cpu")}
    elif name == "copy_":
        target = args[0].device
    if target.type == "cuda" and _MODES:
        _MODES[-1].operations += 1
    args, kwargs = tree_unflatten(
        [x.inner if isinstance(x, Pretended) else x for x in tree_flatten((args, kwargs))[0]], spec
    )
    kwargs.pop("pin_memory", None)
    wrappers = {id(x.inner): x for x in on_gpu}
    result = func(*args, **kwargs)
    if name == "_to_copy" and target.type == "cuda" and any(result is x for x in on_cpu):
        result = result.clone()

    def back(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or isinstance(x, Pretended):
            return x
        if id(x) in wrappers:  # an operation in place
            return wrappers[id(x)]
        return Pretended(x, target) if target.type == "cuda" else x

    return tree_map(back, result)


def _numbered(requested: torch.device, on_gpu: list[Pretended], name: str) -> torch.device:
    """Inside torch a tensor of the device is one of `meta`, so that may be asked for."""
    if requested.type == "meta":
        if name == "scalar_tensor":
            return torch.device("cpu")
        return on_gpu[0].home if on_gpu else torch.device("cuda:0")
    return (
        torch.device("cuda:0")
        if requested.type == "cuda" and requested.index is None
        else requested
    )


def _check(
    name: str, args: Any, kwargs: Any, on_gpu: list[Any], on_cpu: list[Any], requested: Any
) -> None:
    """Refuse what CUDA refuses, and list what it waits for."""
    if name in ("_to_copy", "copy_"):
        _check_copy(name, args, kwargs, requested)
        return
    if not on_gpu:
        return
    if name in INDEXING:
        _check_index(name, args)
        return
    places = {x.home for x in on_gpu}
    if len(places) > 1:
        raise MixedDevices(f"{name}: tensors on {sorted(map(str, places))}")
    strangers = [x for x in on_cpu if x.ndim or name in TOGETHER]
    if strangers:
        raise MixedDevices(f"{name}: a tensor of the CPU, {tuple(strangers[0].shape)}, with others")
    if name in LOOKS and not (name == "repeat_interleave" and kwargs.get("output_size")):
        _wait(name)


def _check_copy(name: str, args: Any, kwargs: Any, requested: Any) -> None:
    if name == "copy_":
        target, source = args[0].device, args[1]
        calm = args[2] if len(args) > 2 else kwargs.get("non_blocking")
        if source.device.type == "cpu" and not source.ndim:
            return  # a number: torch fills
    else:
        source = args[0]
        target, calm = source.device if requested is None else requested, kwargs.get("non_blocking")
    if source.device.type == target.type or not source.numel():
        return
    if target.type != "cuda":
        _wait("download")
    elif not (calm and getattr(source, "pinned", False) and source.is_contiguous()):
        _wait("upload")


def _check_index(name: str, args: Any) -> None:
    table, indices = args[0], [x for x in args[1] if x is not None]
    if not isinstance(table, Pretended):
        raise MixedDevices(f"{name}: a tensor of the CPU by an index on the device")
    for index in indices:
        if not isinstance(index, Pretended):
            _wait("index from the CPU")
        elif index.home != table.home:
            raise MixedDevices(f"{name}: an index on {index.home}, a table on {table.home}")
    value = args[2] if name != "index" and len(args) > 2 else None
    number = value is not None and not isinstance(value, Pretended)
    if value is not None and number and value.ndim:
        raise MixedDevices(f"{name}: a value of the CPU, {tuple(value.shape)}")
    truths = [x for x in indices if x.dtype in (torch.bool, torch.uint8)]
    if truths and number and len(indices) == 1:
        return  # torch fills where it is true
    for _ in truths:
        _wait("boolean index")
    if number:
        _wait("value from the CPU")


def moved(model: Any, device: str = "cuda:0") -> Any:
    """A model with its networks on the device; inside `pretended`, after it was loaded."""
    for part in ("network", "_discriminator"):
        if getattr(model, part, None) is not None:
            getattr(model, part).to(device)
    if getattr(model, "base", None) is not None:
        moved(model.base, device)
    model.device = torch.device(device)
    return model
