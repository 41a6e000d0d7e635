"""Reading a torch checkpoint without trusting it.

A pickle is a program. This module runs it on a machine that knows how to make tensors, numbers,
strings and plain containers, and nothing else: no name in the file is ever imported. Whatever else
it asks for becomes an `Inert` record, so that the configuration and tokenizer objects of public
checkpoints neither need their packages nor run. Four rules ensure this:

- a global is looked up in the tables `_MAKERS` and `STORAGES`, never in a module;
- only entries of `_MAKERS` and `Inert` records can be called, and `BUILD`, which normally sets
  attributes, reaches `Inert` records only;
- opcodes that `torch.save` does not write (extension codes, old-style instances, buffers) are
  refused;
- tensors are cut from the storages of the zip archive by our own code, after checking every number.
"""

from __future__ import annotations

import collections
import io
import math
import os
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch

from strop.checkpoints.family import Inert, described
from strop.checkpoints.files import opening
from strop.errors import UserError


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
        """The bytes of the pickle."""
        return self._read("data.pkl")

    def storage(self, dtype: torch.dtype, key: Any) -> Stored:
        """The bytes of one storage, mapped; each key once, so that shared tensors stay shared."""
        if not isinstance(key, str):
            raise Refused("a storage whose key is not text")
        if key not in self._members:
            self._members[key] = self._slice(self._info(f"data/{key}"))
        data = self._members[key]
        # Bytes where the type may lie: torch.save aligns, other writers may not.
        return Stored(data.clone() if data.data_ptr() % dtype.itemsize else data, dtype)

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


def load_pickle(path: str | os.PathLike[str]) -> Any:
    """The object in a file written by `torch.save`: tensors, containers and `Inert` records.

    Tensors are on the CPU and are views of the file mapped into memory: nothing is read until it
    is used, so the optimiser state of a training checkpoint costs nothing. Copy what you keep.
    """
    file = Path(path)
    with opening(file), file.open("rb") as stream:
        return _load_open(file, stream)


def _load_open(file: Path, stream: BinaryIO) -> Any:
    head = stream.read(4)
    if head[:2] != b"PK":
        raise _not_a_torch_zip(file, head)
    try:
        with zipfile.ZipFile(stream) as archive:
            records = Records(file, stream, archive)
            return _Machine(io.BytesIO(records.program()), records).load()
    except OSError:
        raise
    except zipfile.BadZipFile as error:
        raise UserError(
            "The checkpoint is truncated or damaged.",
            where=file,
            got=f"{file.stat().st_size:,} bytes: {error}",
            expected="a complete file written by torch.save",
            fix="copy or download the file again and compare its size or SHA-256 with the source",
        ) from error
    except Exception as error:  # whatever a hostile or damaged program provokes is its own fault
        raise UserError(
            "The checkpoint cannot be read safely.",
            where=file,
            got=f"{'' if isinstance(error, Refused) else type(error).__name__ + ': '}{error}"[:200],
            expected="a file written by torch.save that holds tensors in plain containers",
            fix="get the file again from a source you trust, or convert it to safetensors",
        ) from error


def _not_a_torch_zip(file: Path, head: bytes) -> UserError:
    if not head:
        return UserError("The checkpoint is an empty file.", where=file, fix="download it again")
    if head[:1] == b"\x80":
        return UserError(
            "The checkpoint is in torch's old format, or a bare pickle; strop reads zip files.",
            where=file,
            fix="where you trust the file, save it again with torch 1.6 or later, "
            "or convert it to safetensors",
        )
    return UserError(
        "The file is not a torch checkpoint.",
        where=file,
        got=f"first bytes {head!r}",
        expected="a zip archive written by torch.save",
        fix="check the path; a download page or a Git LFS pointer may have been saved instead",
    )


# Containers ------------------------------------------------------------------------------------


def _as_key(key: Any) -> Any:
    """A key that is safe to hash: hashing deeply nested tuples would overflow the C stack."""
    flat = key if type(key) is tuple else (key,)
    if any(isinstance(part, (tuple, frozenset)) for part in flat):
        raise Refused("a container is used as a key")
    return key


def _ordered_dict(pairs: Any = ()) -> Any:
    if not isinstance(pairs, (list, tuple)):
        raise Refused("an OrderedDict is built from something that is not a list")
    return collections.OrderedDict((_as_key(key), value) for key, value in pairs)


def _set_of(kind: type) -> Callable[..., Any]:
    def build(members: Any = ()) -> Any:
        if not isinstance(members, (list, tuple)):
            raise Refused("a set is built from something that is not a list")
        return kind(_as_key(member) for member in members)

    return build


def _encode(text: Any, codec: Any = None) -> bytes:
    """Protocol 2 writes bytes as latin-1 text; no other codec is looked up."""
    if not isinstance(text, str) or codec not in ("latin1", "latin-1"):
        raise Refused("bytes are written in an unusual encoding")
    return text.encode("latin-1")


def _rebuild_from_type(maker: Any, _kind: Any, args: Any, _state: Any = None) -> Any:
    """A tensor that carried attributes: the tensor without them."""
    if not (isinstance(maker, _Maker) and maker.makes_tensor and isinstance(args, tuple)):
        raise Refused("a tensor is built by something that does not build tensors")
    return maker.function(*args)


@dataclass(frozen=True, slots=True)
class _Maker:
    """A global that may be called. A record of ours, so that nothing can be set on it."""

    function: Callable[..., Any]
    makes_tensor: bool = False


_MAKERS = {
    ("torch._utils", "_rebuild_tensor"): _Maker(rebuild_tensor, makes_tensor=True),
    ("torch._utils", "_rebuild_tensor_v2"): _Maker(rebuild_tensor, makes_tensor=True),
    ("torch._utils", "_rebuild_parameter"): _Maker(rebuild_parameter, makes_tensor=True),
    ("torch._utils", "_rebuild_parameter_with_state"): _Maker(rebuild_parameter, True),
    ("torch._tensor", "_rebuild_from_type_v2"): _Maker(_rebuild_from_type),
    ("collections", "OrderedDict"): _Maker(_ordered_dict),
    # Read as the dict it is; its factory is a callable and stays out.
    ("collections", "defaultdict"): _Maker(lambda _factory=None: {}),
    ("_codecs", "encode"): _Maker(_encode),
} | {
    (module, kind.__name__): _Maker(_set_of(kind))
    for module in ("builtins", "__builtin__")
    for kind in (set, frozenset)
}


# The machine -----------------------------------------------------------------------------------

# Opcodes that build numbers, text, tuples and fresh containers, or move them about.
_HARMLESS = """
    PROTO FRAME STOP POP POP_MARK MARK DUP NONE NEWTRUE NEWFALSE
    INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT
    STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8
    UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8
    EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST LIST EMPTY_DICT EMPTY_SET
    GET BINGET LONG_BINGET PUT BINPUT LONG_BINPUT MEMOIZE
    GLOBAL STACK_GLOBAL BINPERSID
"""


class _Machine(pickle._Unpickler):
    """The standard library's pickle machine in Python, with a short list of opcodes.

    Not the one in C: its extension-code cache answers without asking `find_class`, and its memo
    allocates as much as the file tells it to.
    """

    # Set by the base class while it loads.
    stack: list[Any]
    append: Callable[[Any], None]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, program: BinaryIO, records: Records) -> None:
        """Run `program` over the storages in `records`."""
        super().__init__(program, encoding="utf-8")
        self._records = records

    def find_class(self, module: str, name: str) -> Any:
        """A global by table; what is not there is a name, not an object."""
        maker = _MAKERS.get((module, name))
        if maker is not None:
            return maker
        if module in ("torch", "torch.cuda") and name in STORAGES:
            return STORAGES[name]
        return Inert(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        """A storage of the archive."""
        if not (isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage"):
            raise Refused("an unknown kind of external object")
        kind, key = pid[1], pid[2]
        if not isinstance(kind, StorageKind):
            return Inert("storage", pid)  # a kind we do not read; using it in a tensor refuses
        return self._records.storage(kind.dtype, key)

    def _refuse(self) -> None:
        raise Refused("an instruction that torch.save does not write")

    def _call(self, target: Any, args: Any, kwargs: Any = None) -> Any:
        if not isinstance(args, tuple) or not isinstance(kwargs or {}, dict):
            raise Refused("a call without a list of arguments")
        if isinstance(target, _Maker) and not kwargs:
            return target.function(*args)
        if isinstance(target, Inert):
            return Inert(target.name, args, kwargs)
        raise Refused(f"a call of {described(target)}, which is not a constructor")

    def _load_reduce(self) -> None:
        args = self.stack.pop()
        self.stack[-1] = self._call(self.stack[-1], args)

    def _load_newobj_ex(self) -> None:
        kwargs = self.stack.pop()
        args = self.stack.pop()
        self.stack[-1] = self._call(self.stack[-1], args, kwargs)

    def _load_build(self) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        if isinstance(target, Inert):
            target.state = state
        elif not isinstance(target, collections.OrderedDict):
            # A state dict carries a `_metadata` attribute, which no one needs: dropped.
            raise Refused(f"attributes are set on {described(target)}")

    def _load_append(self) -> None:
        value = self.stack.pop()
        self._extend([value])

    def _load_appends(self) -> None:
        self._extend(self.pop_mark())

    def _extend(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not list and not isinstance(target, Inert):
            raise Refused(f"items are appended to {described(target)}")
        target.extend(values)

    def _load_setitem(self) -> None:
        value = self.stack.pop()
        key = self.stack.pop()
        self._assign([key, value])

    def _load_setitems(self) -> None:
        self._assign(self.pop_mark())

    def _assign(self, flat: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, (dict, Inert)):
            raise Refused(f"entries are set on {described(target)}")
        for key, value in zip(flat[::2], flat[1::2], strict=True):
            target[_as_key(key)] = value

    def _load_additems(self) -> None:
        members = self.pop_mark()
        target = self.stack[-1]
        if type(target) is not set and not isinstance(target, Inert):
            raise Refused(f"members are added to {described(target)}")
        target.update(_as_key(member) for member in members)

    def _load_frozenset(self) -> None:
        members = self.pop_mark()
        self.append(frozenset(_as_key(member) for member in members))

    # Default deny: every byte refuses, then the known opcodes are put in.
    dispatch = (  # pyright: ignore[reportAssignmentType]
        dict.fromkeys(range(256), _refuse)
        | {
            code: pickle._Unpickler.dispatch[code]
            for code in (getattr(pickle, name)[0] for name in _HARMLESS.split())
        }
        | {
            pickle.REDUCE[0]: _load_reduce,
            pickle.NEWOBJ[0]: _load_reduce,  # class and arguments: the same two things
            pickle.NEWOBJ_EX[0]: _load_newobj_ex,
            pickle.BUILD[0]: _load_build,
            pickle.APPEND[0]: _load_append,
            pickle.APPENDS[0]: _load_appends,
            pickle.SETITEM[0]: _load_setitem,
            pickle.SETITEMS[0]: _load_setitems,
            pickle.ADDITEMS[0]: _load_additems,
            pickle.FROZENSET[0]: _load_frozenset,
        }
    )
