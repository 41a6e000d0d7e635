"""Pythons with strop installed in different ways, made of links in a directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import strop
from strop.tasks.sandbox import find_interpreter

__all__ = ["LAYOUTS", "MARKER", "Layout", "in_prefix", "links"]

NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"
STANDARD = Path(os.__file__).parent
MARKER = "marker-of-a-private-file"
NEEDLESS = ("site-packages", "test", "idlelib", "lib2to3", "tkinter", "ensurepip", "pydoc_data")


@dataclass(frozen=True)
class Layout:
    """A Python that imports strop."""

    python: Path
    home: Path
    strop: Path
    """Where strop is installed."""

    def run(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a script with nothing of this process but the search path."""
        return subprocess.run(
            [str(self.python), "-c", script, *arguments],
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8"},
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=120,
        )


def links(source: Path, target: Path, *without: str) -> None:
    """A tree of real directories, with the files linked where the disk allows for it."""

    def link(one: str, other: str) -> None:
        try:
            os.link(one, other)
        except OSError:
            shutil.copy2(one, other)

    unwanted = shutil.ignore_patterns(*without)
    shutil.copytree(source, target, copy_function=link, ignore=unwanted)


def _python(prefix: Path) -> Path:
    """An interpreter with its standard library and no packages."""
    program = prefix / "bin" / NAME
    program.parent.mkdir(parents=True)
    shutil.copy2(find_interpreter().program, program)
    links(STANDARD, prefix / "lib" / NAME, *NEEDLESS)
    (prefix / "lib" / NAME / "site-packages").mkdir()
    return program


def _install(packages: Path) -> Path:
    """Put strop into a directory of packages; what it needs is found where it is."""
    packages.mkdir(parents=True, exist_ok=True)
    links(Path(strop.__file__).parent, packages / "strop", "models", "gpt2", "*.safetensors")
    (packages / "needs.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (packages / MARKER).write_text("")
    return packages / "strop"


def _home(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text("")
    return folder


def in_prefix(folder: Path) -> Layout:
    """Installed in the Python itself, as in most containers."""
    python = _python(folder / "prefix")
    installed = _install(folder / "prefix" / "lib" / NAME / "site-packages")
    return Layout(python, _home(folder / "home"), installed)


def in_environment(folder: Path) -> Layout:
    """Installed in a virtual environment."""
    python, environment = _python(folder / "prefix"), folder / "environment"
    (environment / "bin").mkdir(parents=True)
    (environment / "pyvenv.cfg").write_text(f"home = {python.parent}\n")
    (environment / "bin" / NAME).symlink_to(python)
    installed = _install(environment / "lib" / NAME / "site-packages")
    return Layout(environment / "bin" / NAME, _home(folder / "home"), installed)


def for_user(folder: Path) -> Layout:
    """Installed for one user, whose home is also where Python lies."""
    home = _home(folder / "home")
    python = _python(home)
    return Layout(python, home, _install(home / ".local" / "lib" / NAME / "site-packages"))


LAYOUTS: dict[str, Callable[[Path], Layout]] = {
    "environment": in_environment,
    "prefix": in_prefix,
    "user": for_user,
}
