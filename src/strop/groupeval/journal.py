"""The journal of a judge: one JSON object a line, appended, synced, never changed.

A process that is killed in the middle of a line leaves a torn one at the end. Readers pass over
it; the next writer takes it away before it appends.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from strop.disk import disk, reading
from strop.errors import UserError
from strop.groupeval.profile import sha256

__all__ = ["Journal"]


class Journal:
    """An append-only file of entries."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read_to = 0
        self._entries: list[dict[str, Any]] = []

    def entries(self) -> list[dict[str, Any]]:
        """Every whole entry, oldest first; only what is new since the last call is read."""
        try:
            with reading(self.path), open(self.path, "rb") as file:
                file.seek(self._read_to)
                content = file.read()
        except FileNotFoundError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        for line in whole.splitlines():
            self._entries.append(self._entry(line, len(self._entries) + 1))
        self._read_to += len(whole)
        return self._entries

    def append(self, entry: dict[str, Any]) -> None:
        """One line, on the disk when this returns."""
        line = json.dumps(entry, allow_nan=False).encode() + b"\n"
        with disk(self.path):
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                while line:
                    line = line[os.write(handle, line) :]
                os.fsync(handle)
            finally:
                os.close(handle)

    def mend(self) -> None:
        """Take away the torn line of a session that was killed; only for who holds the series."""
        if not self.path.exists():
            return
        with disk(self.path), open(self.path, "rb+") as file:
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)

    def _entry(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._damaged(number, error) from None
        whole = isinstance(entry, dict) and {"outcome", "repeat"} <= entry.keys()
        if not whole or not {"sheet", "sheets"} & entry.keys():
            raise self._damaged(number, "it is not an entry")
        reply = entry.get("reply")
        if reply is not None and sha256(reply.encode(errors="replace")) != entry.get(
            "reply_sha256"
        ):
            raise self._damaged(number, "the reply is not the one that was written")
        return entry

    def _damaged(self, number: int, why: object) -> UserError:
        return UserError(
            "A line of the journal is damaged.",
            where=f"{self.path}, line {number}",
            got=repr(why)[:160],
            fix="restore the file, or delete that line: its group is then asked again",
        )
