"""The journal of requests to a server: announced before they leave, replies as they came.

One JSON object a line, appended, synced, never changed. `sheet` says what was asked for: a sheet of
a judge's plan, or the number of an output. A process that is killed in the middle of a line leaves
a torn one at the end. Readers pass over it; the next writer takes it away before it appends.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strop.disk import disk, reading
from strop.errors import UserError
from strop.served.cost import SENT

CALLS = "calls.jsonl"
REPLY = "reply"
"""The outcome of a request that brought a text, if only an empty one."""


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _counts(value: Any) -> bool:
    if not isinstance(value, dict) or not {"prompt", "completion"} <= value.keys():
        return False
    return all(map(_count, value.values()))


def _counts_or_none(value: Any) -> bool:
    return value is None or _counts(value)


KINDS: dict[str, Callable[[Any], bool]] = {
    "sheet": _text,
    "sheets": lambda value: isinstance(value, list) and all(map(_text, value)),
    "outcome": _text,
    "repeat": _count,
    "attempt": _count,
    "detail": _text,
    "reply": _text_or_none,
    "calls": _count,
    "unsent": _count,
    "tokens": _counts_or_none,
    "unseen": _counts_or_none,
    "reserve": _counts,
    "session": _text,
    "asked": _text,
}
"""What is read back from an entry, and what it must be."""


def hash_of(reply: str) -> str:
    """SHA-256 of a reply, written beside it."""
    return hashlib.sha256(reply.encode(errors="replace")).hexdigest()


class MemoryJournal:
    """A journal of outputs that go nowhere but into a pool."""

    def __init__(self) -> None:
        self._entries: list[dict[str, Any]] = []

    def entries(self) -> list[dict[str, Any]]:
        """Every entry."""
        return self._entries

    def append(self, entry: dict[str, Any]) -> None:
        """One more."""
        self._entries.append(entry)


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
        first = len(self._entries) + 1
        new = [self._entry(line, first + place) for place, line in enumerate(whole.splitlines())]
        self._entries += new
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
        """Take away the torn line of a session that was killed; only for who holds its folder."""
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
        for name, kind in KINDS.items():
            if name in entry and not kind(entry[name]):
                raise self._damaged(number, f"{name} is {json.dumps(entry[name])[:60]}")
        if entry["outcome"] == SENT and not {"sheet", "reserve"} <= entry.keys():
            raise self._damaged(number, "it is no whole request")
        reply = entry.get("reply")
        if reply is not None and hash_of(reply) != entry.get("reply_sha256"):
            raise self._damaged(number, "the reply is not the one that was written")
        return entry

    def _damaged(self, number: int, why: object) -> UserError:
        return UserError(
            "A line of the journal is damaged.",
            where=f"{self.path}, line {number}",
            got=repr(why)[:160],
            fix="restore the file, or delete that line: what it tells of is then asked again",
        )
