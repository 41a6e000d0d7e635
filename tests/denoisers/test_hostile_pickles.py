"""Hostile checkpoints: whatever the file asks for, nothing of it runs.

Each program would create a sentinel file if any part of it were executed by an ordinary
unpickler. The negative control shows that the ordinary one does execute it.
"""

from __future__ import annotations

import copyreg
import os
import pickle
import subprocess
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from strop.checkpoints.pickles import Inert, load_pickle
from strop.errors import UserError


class Call:
    """Pickles as the call of a function."""

    def __init__(self, function: Any, *args: Any, state: Any = None) -> None:
        self.parts = (function, args) if state is None else (function, args, state)

    def __reduce__(self) -> Any:
        return self.parts


class Holder:
    """An object with a state."""


class Setter:
    """Pickles with a state setter, the sixth part of a reduction."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return dict, (), self.command, None, None, _setter


def _setter(obj: Any, command: str) -> None:
    os.system(command)


def text(value: str) -> bytes:
    """Opcodes that push a string."""
    return pickle.BINUNICODE + len(value.encode()).to_bytes(4, "little") + value.encode()


def glob(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def stack_global(module: str, name: str) -> bytes:
    return text(module) + text(name) + pickle.STACK_GLOBAL


def program(body: bytes) -> bytes:
    return b"\x80\x04" + body + b"."


def archive(
    path: Path, data: bytes, members: dict[str, bytes] | None = None, **kwargs: Any
) -> Path:
    """A torch zip around a program."""
    with zipfile.ZipFile(path, "w", **kwargs) as zipped:
        zipped.writestr("archive/data.pkl", data)
        zipped.writestr("archive/byteorder", b"little")
        for name, content in (members or {}).items():
            zipped.writestr(f"archive/{name}", content)
    return path


def _calls(sentinel: Path) -> dict[str, Any]:
    """Objects that run something when an ordinary unpickler meets them."""
    path, command = str(sentinel), f"touch {sentinel}"
    return {
        "os.system": Call(os.system, command),
        "subprocess": Call(subprocess.call, ["touch", path]),
        "eval": Call(eval, f"open({path!r}, 'w').close()"),
        "exec": Call(exec, f"open({path!r}, 'w').close()"),
        "open": Call(open, path, "w"),
        "map": Call(list, Call(map, os.system, [command])),
        "torch.save": Call(torch.save, {}, path),
        "nested pickle": Call(pickle.loads, pickle.dumps(Call(os.system, command))),
        "in an OrderedDict": OrderedDict(a=[Call(os.system, command)]),
        "as a key": {Call(os.system, command): 1},
        "in a state": Call(Holder, state={"x": Call(os.system, command)}),
        "state setter": Setter(command),
    }


@pytest.mark.parametrize("case", sorted(_calls(Path())))
def test_calls_become_records(case: str, tmp_path: Path) -> None:
    sentinel, file = tmp_path / "ran", tmp_path / "x.ckpt"
    torch.save({"state_dict": _calls(sentinel)[case]}, file)
    before = set(sys.modules)
    assert list(load_pickle(file)) == ["state_dict"]
    assert not sentinel.exists()
    assert all(name.startswith("encodings") for name in set(sys.modules) - before)


@pytest.mark.parametrize("case", sorted(_calls(Path())))
@pytest.mark.filterwarnings("ignore")
def test_the_ordinary_unpickler_does_run_them(case: str, tmp_path: Path) -> None:
    sentinel, file = tmp_path / "ran", tmp_path / "x.ckpt"
    torch.save({"state_dict": _calls(sentinel)[case]}, file)
    torch.load(file, weights_only=False)
    assert sentinel.exists()


def _chains(command: str) -> dict[str, bytes]:
    """Programs that call what a call returned."""
    module = glob("builtins", "__import__") + text("os") + b"\x85R"
    run = text(command) + b"\x85R"
    return {
        "getattr": glob("builtins", "getattr") + module + text("system") + b"\x86R" + run,
        "attrgetter": glob("operator", "attrgetter")
        + text("system")
        + b"\x85R"
        + module
        + b"\x85R"
        + run,
        "methodcaller": glob("operator", "methodcaller")
        + text("system")
        + text(command)
        + b"\x86R"
        + module
        + b"\x85R",
        "partial": glob("functools", "partial")
        + glob("os", "system")
        + text(command)
        + b"\x86R"
        + b")R",
        "partial filled by its state": glob("functools", "partial")
        + glob("os", "system")
        + b"\x85\x81"
        + b"("
        + glob("os", "system")
        + text(command)
        + b"\x85}Ntb"
        + b")R",
        "new object": glob("functools", "partial")
        + glob("os", "system")
        + text(command)
        + b"\x86\x81"
        + b")R",
    }


@pytest.mark.parametrize("case", sorted(_chains("")))
def test_chains_of_calls_become_records(case: str, tmp_path: Path) -> None:
    sentinel = tmp_path / "ran"
    data = program(_chains(f"touch {sentinel}")[case])
    loaded = load_pickle(archive(tmp_path / "x.ckpt", data))
    assert type(loaded) is Inert
    assert not sentinel.exists()
    pickle.loads(data)  # the control: the standard machine does run it
    assert sentinel.exists()


def _programs(command: str) -> dict[str, bytes]:
    """Hand-written programs, beyond what `pickle.dumps` writes."""
    run = text(command) + b"\x85R"
    return {
        "posix": glob("posix", "system") + run,
        "dotted name": stack_global("posix", "os.system") + run,
        "attribute chain": stack_global("collections", "OrderedDict.__init__.__globals__") + run,
        "dotted under torch": stack_global("torch", "serialization.os.system") + run,
        "storage in a name": stack_global("os", "systemStorage") + run,
        "builtins through set": stack_global("builtins", "set.__class__") + run,
        "torch.jit": glob("torch.jit", "load") + run,
        "torch.package": glob("torch.package", "PackageImporter") + run,
        "numpy": glob("numpy.f2py.crackfortran", "myeval") + run,
    }


@pytest.mark.parametrize("case", sorted(_programs("")))
def test_names_are_never_resolved(case: str, tmp_path: Path) -> None:
    sentinel = tmp_path / "ran"
    data = program(_programs(f"touch {sentinel}")[case])
    loaded = load_pickle(archive(tmp_path / "x.ckpt", data))
    assert isinstance(loaded, Inert)
    assert loaded.args == (f"touch {sentinel}",)
    assert not sentinel.exists()


def _refused(command: str) -> dict[str, bytes]:
    ordered = glob("collections", "OrderedDict")
    rebuild = glob("torch._utils", "_rebuild_tensor_v2")
    storage = (
        b"("
        + text("storage")
        + glob("torch", "FloatStorage")
        + text("0")
        + text("cpu")
        + b"K\x04tQ"
    )
    state = b"}" + text("__class__") + text("x") + b"s"

    def tensor(offset: bytes, size: bytes, stride: bytes, source: bytes = storage) -> bytes:
        return rebuild + b"(" + source + offset + size + stride + b"\x89" + b"}" + b"tR"

    return {
        "INST": b"(" + text(command) + b"iposix\nsystem\n",
        "OBJ": b"(" + glob("posix", "system") + text(command) + b"o",
        "EXT1": b"\x82\x01",
        "EXT2": b"\x83\x01\x00",
        "EXT4": b"\x84\x01\x00\x00\x00",
        "PERSID": b"P0\n",
        "bytearray of any size": b"\x96" + (2**40).to_bytes(8, "little"),
        "out-of-band buffer": b"\x97",
        "BUILD on an allowed function": rebuild + state + b"b",
        "BUILD on an allowed class": ordered + state + b"b",
        "BUILD on a set": b"\x8f" + state + b"b",
        "BUILD on a tensor": tensor(b"K\x00", b"K\x04\x85", b"K\x01\x85") + state + b"b",
        "BUILD on a storage kind": glob("torch", "FloatStorage") + state + b"b",
        "SETITEM on an allowed function": rebuild + text("a") + text("b") + b"s",
        "SETITEM on a tensor": tensor(b"K\x00", b"K\x04\x85", b"K\x01\x85") + b"K\x00K\x01s",
        "APPEND to a dict": b"}" + text("a") + b"a",
        "call of a string": text("a") + b")R",
        "call of a tensor": tensor(b"K\x00", b"K\x04\x85", b"K\x01\x85") + b")R",
        "call of a storage kind": glob("torch", "FloatStorage") + b"K\x04\x85R",
        "call without a tuple": ordered + text("ab") + b"R",
        "OrderedDict of a string": ordered + text("ab") + b"\x85R",
        "set of a dict": glob("builtins", "set") + b"}" + b"\x85R",
        "codec by name": glob("_codecs", "encode") + text("a") + text("rot13") + b"\x86R",
        "tensor from a placeholder": tensor(
            b"K\x00", b"K\x04\x85", b"K\x01\x85", glob("os", "system")
        ),
        "tensor beyond its storage": tensor(b"K\x01", b"K\x04\x85", b"K\x01\x85"),
        "negative offset": tensor(b"J\xff\xff\xff\xff", b"K\x04\x85", b"K\x01\x85"),
        "negative stride": tensor(b"K\x03", b"K\x04\x85", b"J\xff\xff\xff\xff\x85"),
        "stride zero, huge size": tensor(b"K\x00", b"J\xff\xff\xff\x7f\x85", b"K\x00\x85"),
        "size overflow": tensor(b"K\x00", b"\x8a\x09" + b"\xff" * 8 + b"\x00\x85", b"K\x01\x85"),
        "ranks differ": tensor(b"K\x00", b"K\x02K\x02\x86", b"K\x01\x85"),
        "size is a string": tensor(b"K\x00", text("4"), text("1")),
        "a storage that is not there": tensor(
            b"K\x00", b"K\x04\x85", b"K\x01\x85", storage.replace(text("0"), text("../0"))
        ),
        "unknown external object": text("module") + b"\x85Q",
        "tensor by a foreign builder": glob("torch._tensor", "_rebuild_from_type_v2")
        + b"("
        + glob("os", "system")
        + b"N"
        + text(command)
        + b"\x85NtR",
        "deep tuple as a key": b"}" + b")" + b"\x85" * 300_000 + b"Ns",
        "deep tuple in a set": b"\x8f(" + b")" + b"\x85" * 300_000 + b"\x90",
        "memo that is not there": b"h\x07",
        "empty stack": b"R",
        "no end": text("a") * 3 + b"(",
    }


@pytest.mark.parametrize("case", sorted(_refused("")))
def test_refused_programs(case: str, tmp_path: Path) -> None:
    sentinel = tmp_path / "ran"
    data = program(_refused(f"touch {sentinel}")[case])
    file = archive(tmp_path / "x.ckpt", data, {"data/0": b"\0" * 16})
    with pytest.raises(UserError, match="cannot be read safely") as caught:
        load_pickle(file)
    assert caught.value.where == str(file)
    assert caught.value.fix
    assert not sentinel.exists()


def test_the_tensor_those_programs_twist_is_fine_untwisted(tmp_path: Path) -> None:
    torch.save({"a": torch.arange(4.0)}, tmp_path / "x.ckpt")
    assert torch.equal(load_pickle(tmp_path / "x.ckpt")["a"], torch.arange(4.0))


def test_an_extension_code_that_is_registered_and_cached_is_not_answered(tmp_path: Path) -> None:
    copyreg.add_extension("posix", "system", 240)
    sentinel = tmp_path / "ran"
    try:
        pickle.loads(program(b"\x82\xf0"))  # now the cache holds the function itself
        data = program(b"\x82\xf0" + text(f"touch {sentinel}") + b"\x85R")
        with pytest.raises(UserError):
            load_pickle(archive(tmp_path / "x.ckpt", data))
    finally:
        copyreg.remove_extension("posix", "system", 240)
    assert not sentinel.exists()


def test_placeholders_keep_state_apart_from_attributes(tmp_path: Path) -> None:
    body = (
        glob("a.b", "C")
        + b")\x81"
        + b"}"
        + text("append")
        + text("gone")
        + b"s"
        + text("__class__")
        + b"Ns"
        + b"b"
    )
    loaded = load_pickle(archive(tmp_path / "x.ckpt", program(body)))
    assert type(loaded) is Inert
    assert loaded.name == "a.b.C"
    assert loaded.state == {"append": "gone", "__class__": None}
    assert Inert("x").append is not None


@pytest.mark.parametrize(
    ("make", "got"),
    [
        (lambda p: archive(p, program(b"N"), compression=zipfile.ZIP_DEFLATED), "compressed"),
        (lambda p: archive(p, program(b"N"), {"constants.pkl": b"N."}), "TorchScript"),
        (lambda p: archive(p, program(b"N"), {"x/data.pkl": b"N."}), None),
    ],
)
def test_other_archives(make: Callable[[Path], Path], got: str | None, tmp_path: Path) -> None:
    file = make(tmp_path / "x.ckpt")
    if got is None:
        assert load_pickle(file) is None
        return
    with pytest.raises(UserError) as caught:
        load_pickle(file)
    assert got in str(caught.value)
