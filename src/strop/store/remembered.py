"""What was once found out about files on this disk, kept under their paths, sizes and times.

Whoever only needs to know what a model is called (a finished run, called again) asks here instead
of loading it. Nothing is computed from what is remembered: the loaders hash what they read. It lies
in the user's cache; losing it costs a load.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from strop.disk import write
from strop.errors import UserError
from strop.version import __version__

SETTLED = 2.0
"""Seconds after which a file's time tells a later change from this one, on any file system."""
MOST = 256
"""Entries that are kept, the latest."""


def cache_folder() -> Path:
    """Where what can be made again lies: STROP_CACHE, else the user's cache folder."""
    named = os.environ.get("STROP_CACHE")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "strop"


class FileMemory:
    """What is known of the files at one place, read under some settings."""

    def __init__(self, place: Path, settings: Mapping[str, Any]) -> None:
        folder = place if place.is_dir() else place.parent
        stamps = [(file.name, file.stat()) for file in sorted(folder.iterdir()) if file.is_file()]
        newest = max((one.st_mtime for _, one in stamps), default=0.0)
        self._settled = newest < time.time() - SETTLED
        key = {
            "strop": __version__,
            "place": str(place.resolve()),
            "files": [(name, one.st_size, one.st_mtime_ns) for name, one in stamps],
            **settings,
        }
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        self._path = cache_folder() / "identities" / f"{digest[:32]}.json"

    def recall(self) -> dict[str, Any] | None:
        """What was kept; None where nothing was, or it cannot be read."""
        with suppress(OSError, ValueError):
            found = json.loads(self._path.read_bytes())
            return found if isinstance(found, dict) else None
        return None

    def keep(self, facts: Mapping[str, Any]) -> None:
        """Keep it, if the files are old enough and the cache can be written."""
        if self._settled:
            with suppress(OSError, UserError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                write(self._path, (json.dumps(dict(facts)) + "\n").encode())
                kept = self._path.parent.glob("*.json")
                for old in sorted(kept, key=lambda file: file.stat().st_mtime)[:-MOST]:
                    old.unlink(missing_ok=True)
