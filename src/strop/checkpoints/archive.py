"""The storages of a torch zip archive, and tensors cut from them after checking every number."""

from __future__ import annotations

import math
import os
import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch


class Refused(pickle.UnpicklingError):
    """The program asks for something that this machine does not do."""


@dataclass(frozen=True, slots=True)
class StorageKind:
    """A global such as torch.FloatStorage: here no more than its dtype."""

    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Stored:
    """The bytes of one storage in the archive."""

    data: torch.UntypedStorage
    dtype: torch.dtype

    @property
    def numel(self) -> int:
        """How many elements of the dtype the bytes hold."""
        return self.data.nbytes() // self.dtype.itemsize


STORAGES = {
    f"{name}Storage": StorageKind(dtype)
    for name, dtype in {
        "Float": torch.float32,
        "Double": torch.float64,
        "Half": torch.float16,
        "BFloat16": torch.bfloat16,
        "Long": torch.int64,
        "Int": torch.int32,
        "Short": torch.int16,
        "Char": torch.int8,
        "Byte": torch.uint8,
        "Bool": torch.bool,
    }.items()
}


def rebuild_tensor(stored: Any, offset: Any, size: Any, stride: Any, *_ignored: Any) -> Any:
    """A strided view of a storage, within its bounds; gradients and hooks are ignored."""
    if not isinstance(stored, Stored):
        raise Refused("a tensor is built from something that is not a storage")
    if not (isinstance(size, tuple) and isinstance(stride, tuple) and len(size) == len(stride)):
        raise Refused("a tensor's size and stride are not two tuples of one length")
    numbers = (offset, *size, *stride)
    if len(size) > 16 or any(type(n) is not int or not 0 <= n < 2**48 for n in numbers):
        raise Refused("a tensor's offset, size or stride is not a list of sane whole numbers")
    count = math.prod(size)
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    # More elements than bytes behind them (stride 0) would be a small file that fills the memory.
    if count and (last >= stored.numel or count > stored.numel):
        raise Refused("a tensor reaches beyond its storage")
    empty = torch.empty(0, dtype=stored.dtype)
    return empty.set_(stored.data, offset, size, stride)  # pyright: ignore[reportCallIssue, reportArgumentType]


def rebuild_parameter(data: Any, *_ignored: Any) -> Any:
    """A parameter is its tensor."""
    if not isinstance(data, torch.Tensor):
        raise Refused("a parameter is built from something that is not a tensor")
    return data


class Records:
    """The members of a torch zip: one program, and one storage per key."""

    def __init__(self, file: Path, stream: BinaryIO, archive: zipfile.ZipFile) -> None:
        """Find the program and refuse archives that are not torch's plain kind."""
        self._file = file
        self._stream = stream
        self._archive = archive
        self._size = os.fstat(stream.fileno()).st_size
        self._mapped: torch.UntypedStorage | None = None
        self._members: dict[str, torch.UntypedStorage] = {}
        names = archive.namelist()
        programs = [n for n in names if n.count("/") <= 1 and n.rsplit("/", 1)[-1] == "data.pkl"]
        if len(programs) != 1:
            raise Refused(f"a zip archive with {len(programs)} members data.pkl instead of one")
        self._root = programs[0].removesuffix("data.pkl")
        if f"{self._root}constants.pkl" in names:
            raise Refused("a TorchScript archive, which holds code")
        if f"{self._root}byteorder" in names and self._read("byteorder") != b"little":
            raise Refused("numbers in big-endian order")

    def program(self) -> bytes:
        """The pickle itself."""
        return self._read("data.pkl")

    def storage(self, dtype: torch.dtype, key: Any) -> Stored:
        """The bytes of one storage, mapped; each key once, so that shared tensors stay shared."""
        if not isinstance(key, str):
            raise Refused("a storage whose key is not text")
        if key not in self._members:
            self._members[key] = self._slice(self._info(f"data/{key}"))
        return Stored(_aligned(self._members[key], dtype.itemsize), dtype)

    def _info(self, member: str) -> zipfile.ZipInfo:
        try:
            info = self._archive.getinfo(self._root + member)
        except KeyError:
            raise Refused(f"an archive without its member {member[:80]!r}") from None
        # torch.save never compresses; a compressed member could be a small file that grows huge.
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise Refused(f"a compressed or encrypted member {member[:80]!r}")
        return info

    def _read(self, member: str) -> bytes:
        return self._archive.read(self._info(member))

    def _slice(self, info: zipfile.ZipInfo) -> torch.UntypedStorage:
        # Where the bytes start is known only from the member's own header.
        self._stream.seek(info.header_offset)
        header = self._stream.read(30)
        if len(header) < 30 or header[:4] != b"PK\x03\x04":
            raise zipfile.BadZipFile(f"no header for {info.filename[:80]!r}")
        skip = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        start = info.header_offset + 30 + skip
        if start + info.file_size > self._size:
            raise zipfile.BadZipFile(f"{info.filename[:80]!r} ends beyond the file")
        if self._mapped is None:
            mapped = torch.UntypedStorage.from_file(str(self._file), False, self._size)
            self._mapped = cast(torch.UntypedStorage, mapped)
        return self._mapped[start : start + info.file_size]  # pyright: ignore[reportReturnType]


def _aligned(data: torch.UntypedStorage, itemsize: int) -> torch.UntypedStorage:
    """The same bytes where the type may lie: torch.save aligns, other writers may not."""
    return data.clone() if data.data_ptr() % itemsize else data
