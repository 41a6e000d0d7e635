"""What of this machine a sandbox shows: the interpreter, its shared libraries, its own modules.

A list of what is there, not of what is hidden: packages, homes and strop's own files, which hold
the tests and the solutions of tasks, lie elsewhere or in directories that are covered. A Python
where that cannot be had is refused.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from strop.errors import UserError
from strop.registry import one_line

FLAGS = ("-P", "-s", "-S", "-B")
"""No packages, no user's directory, no site, no files written."""
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
PACKAGES = ("site-packages", "dist-packages")
STROP = Path(__file__).parents[1]
SECONDS = 60

# Asks the interpreter itself, since nobody else knows: where it looks for its own modules, and
# which libraries the loader has mapped, by the names it found them under, once all are imported.
ASK = """
import ctypes, importlib, json, os, sys
needless = ("_test", "_ctypes_test", "_tkinter", "xx")
for folder in sys.path:
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        module, dot, ending = name.partition(".")
        if ending.endswith("so") and not module.startswith(needless):
            try:
                importlib.import_module(module)
            except BaseException:
                pass  # a library is missing on this machine, too
found = []
visit = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
class Info(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]
def see(info, size, data):
    found.append(os.fsdecode(Info.from_address(info).name or b""))
    return 0
ctypes.CDLL(None).dl_iterate_phdr(visit(see), None)
print(json.dumps({"path": sys.path, "libraries": found}), file=sys.__stdout__)
"""


@dataclass(frozen=True)
class Interpreter:
    """What is shown of a Python."""

    program: str
    """The interpreter, without symbolic links."""
    modules: tuple[str, ...]
    """Where the standard library lies: directories, or an archive."""
    covered: tuple[str, ...]
    """Directories of packages in these, which are shown empty."""
    libraries: tuple[str, ...]
    """Shared libraries, by the paths that the loader found them under."""

    @property
    def library_path(self) -> str:
        """Where the loader finds them, without the list of this machine."""
        return ":".join(dict.fromkeys(os.path.dirname(one) for one in self.libraries))

    def binds(self) -> list[str]:
        """What makes bubblewrap show it, read-only."""
        shown = [*self.modules, self.program, *self.libraries]
        found = [word for one in shown for word in ("--ro-bind", one, os.path.normpath(one))]
        for one in self.covered:
            found += ["--tmpfs", one, "--remount-ro", one]
        return found


@cache
def find_interpreter() -> Interpreter:
    """The Python that runs this, or why no sandbox can be made of it."""
    # In a virtual environment the base's: the environment itself is not shown.
    program = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    told = _asked(program)
    modules = list(_outermost(path for path in told["path"] if os.path.exists(path)))
    packages = [folder for one in modules for folder in _packages(one)]
    covered = [one for one in packages if not os.path.islink(one)]  # a link has nothing to cover
    libraries = [path for path in told["libraries"] if path.startswith("/")]
    kept = [one for one in dict.fromkeys(libraries) if not _below(os.path.realpath(one), modules)]
    found = Interpreter(program, tuple(modules), tuple(covered), tuple(kept))
    _refuse_leaks(found, packages)
    return found


def _asked(program: str) -> dict[str, list[str]]:
    command = [program, *FLAGS, "-c", ASK]
    try:
        told = subprocess.run(
            command,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=True,
            cwd="/",
        )
        return json.loads(told.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        printed = getattr(error, "stderr", None) or b""
        last = printed.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise _refused(program, last[0][:300] if last else one_line(error)) from error


def _outermost(paths: Iterable[str]) -> Iterator[str]:
    """The paths that lie in none of the others."""
    everything = list(dict.fromkeys(os.path.normpath(path) for path in paths))
    for path in everything:
        others = [one for one in everything if one != path]
        if not _below(os.path.realpath(path), others):
            yield path


def _below(path: str, folders: Iterable[str]) -> bool:
    return any(Path(path).is_relative_to(os.path.realpath(folder)) for folder in folders)


def _packages(folder: str) -> Iterator[str]:
    """Directories of packages in a directory of modules."""
    for place, names, _ in os.walk(folder):
        yield from (os.path.join(place, name) for name in names if name in PACKAGES)
        names[:] = [name for name in names if name not in PACKAGES]


def _refuse_leaks(found: Interpreter, packages: Iterable[str]) -> None:
    """No directory of modules may hold, or be, what a program must not see."""
    if not found.modules:
        raise _refused(found.program, "it has no directory of modules")
    unseen = [("strop", STROP), ("the home directory", Path.home())]
    unseen += [("a directory of packages", Path(one)) for one in packages]
    for name, place in unseen:
        hidden = os.path.realpath(place)
        if _below(hidden, found.modules) and not _below(hidden, found.covered):
            raise _refused(found.program, f"{name} lies among its own modules: {hidden}")


def _refused(program: str, reason: str) -> UserError:
    return UserError(
        "There is no sandbox for this Python: it cannot be shown without its packages.",
        where=program,
        got=reason,
        expected="a standard library in a directory of its own, apart from strop and the home",
        fix="install strop in a virtual environment: python -m venv ENV, "
        "or say `unsafe_run` where the programs are known to be harmless",
    )
