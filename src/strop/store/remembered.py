"""What was found out about files on this disk, kept by their paths and their looks.

A file's looks are its size, its inode, and the times of its last change of content and of status.
The system sets the last one, so a file that was replaced or changed in place looks different even
if its size and its modification time were kept. Whoever only needs to know what a model is called,
or what a file holds (a finished run, called again), asks here instead of reading it. Nothing is
computed from what is remembered: the loaders hash what they read. It lies in the user's cache;
losing it costs a load.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from strop.disk import write
from strop.errors import UserError
from strop.version import __version__

SETTLED = 2.0
"""Seconds after which a file's time tells a later change from this one, on any file system."""
MOST = 1024
"""Entries that are kept, the latest."""
Looks = tuple[int, int, int, int]
"""Size, number on the disk, time of the content, time of the file."""


def cache_folder() -> Path:
    """Where what can be made again lies: STROP_CACHE, else the user's cache folder."""
    named = os.environ.get("STROP_CACHE")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "strop"


class FileMemory:
    """What is known of some files, read under some settings."""

    def __init__(self, files: Sequence[Path], settings: Mapping[str, Any]) -> None:
        seen = [(str(file.resolve()), looks(file)) for file in files]
        newest = max((max(look[2:]) for _, look in seen), default=0)
        self._settled = newest < time.time_ns() - SETTLED * 1e9
        key = {"strop": __version__, "files": seen, **settings}
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        self._path = cache_folder() / "identities" / f"{digest[:32]}.json"

    def recall(self) -> dict[str, Any] | None:
        """What was kept; None where nothing was, or it cannot be read."""
        with suppress(OSError, ValueError):
            facts = json.loads(self._path.read_bytes())
            return facts if isinstance(facts, dict) else None
        return None

    def keep(self, facts: Mapping[str, Any]) -> None:
        """Keep it, if the files are old enough and the cache can be written."""
        if self._settled:
            with suppress(OSError, UserError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                write(self._path, (json.dumps(dict(facts)) + "\n").encode())
                memories = list(self._path.parent.glob("*.json"))
                if len(memories) > MOST:
                    for old in sorted(memories, key=lambda file: file.stat().st_mtime)[:-MOST]:
                        old.unlink(missing_ok=True)


def looks(file: Path) -> Looks:
    """What changes whenever a file does."""
    status = file.stat()
    return status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def files_at(path: Path) -> list[Path]:
    """The files of a folder, or those beside a file: what is read together with it."""
    folder = path if path.is_dir() else path.parent
    return [file for file in sorted(folder.iterdir()) if file.is_file()]


def contents(path: Path) -> list[list[str]]:
    """Every file at a place, by its path from there, with the hash of what it holds.

    A file is read once, and again when it looks different.
    """
    if not path.exists():
        return []
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    files = [file for file in files if file.is_file()]
    return [[str(file.relative_to(path)), _sha256(file)] for file in files]


def _sha256(file: Path) -> str:
    memory = FileMemory([file], {"kind": "content"})
    stored = (memory.recall() or {}).get("sha256")
    if isinstance(stored, str):
        return stored
    with open(file, "rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    memory.keep({"sha256": digest})
    return digest
