"""Files that are complete or absent, and readable errors of the disk.

Whatever writes (runs, checkpoints, shards) writes beside the place and renames: a process that is
killed leaves a temporary file at most, never half of a result.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

from strop.errors import UserError

TEMPORARY = ".tmp-"
"""How the names of unfinished files begin; the next session removes them."""

LOCK = ".lock"
"""The file that a lock is held on; it stays behind, empty."""

CLAIM = ".claim-"
"""How the names of files begin that mark work in progress."""

PATIENCE = 0.2
"""Seconds in which a lock that is held for a moment only is free again."""

DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
NOT_ALLOWED = {errno.EROFS, errno.EACCES, errno.EPERM}


@contextmanager
def disk(path: Path) -> Iterator[None]:
    """Turn errors of writing into `UserError`s. What was written before is complete and stays."""
    try:
        yield
    except OSError as error:
        fix = "choose another `out`"
        if error.errno in DISK_FULL:
            what, fix = "The disk is full.", "free some space and run the same command again"
        elif error.errno in NOT_ALLOWED:
            what = "The disk does not allow writing here."
        elif isinstance(error, (NotADirectoryError, FileExistsError)):
            what = "The output path is a file, or leads through one; it must be a directory."
        elif isinstance(error, FileNotFoundError):
            what = "The run directory cannot be created here, or was removed."
        else:
            what = "The run directory cannot be written."
        raise UserError(what, where=error.filename or path, got=error.strerror, fix=fix) from error


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write into; it takes the place of `path` when the block ends well."""
    temporary = path.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
    with disk(path):
        try:
            with open(temporary, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        sync_folder(path.parent)


def write(path: Path, content: bytes) -> None:
    """All of the content at `path`, or what was there before."""
    with replacing(path) as file:
        file.write(content)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of reading into `UserError`s; a missing file is left to the caller."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UserError(
            "A file of the run cannot be read.",
            where=error.filename or path,
            got=error.strerror,
            fix="check its owner and permissions",
        ) from error


UTF16 = (b"\xff\xfe", b"\xfe\xff")


def decoded(content: bytes, where: object) -> str:
    """The text of some bytes, a mark at their beginning left out."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        got, encoding = f"byte 0x{content[error.start]:02x} at position {error.start}", "latin1"
        if content.startswith(UTF16):
            got, encoding = "the byte order mark of UTF-16", "utf-16"
        fix = f"convert it, e.g. iconv -f {encoding} -t utf-8"
        raise UserError("The text is not UTF-8.", where=where, got=got, fix=fix) from None


def json_lines(
    file: IO[bytes], source: object, expected: str, longest: int | None = None
) -> Iterator[tuple[str, Any]]:
    """Every JSON value of a file of one a line, and where it stands; blank lines are passed over.

    `expected` is what a line may look like, `longest` how many bytes it may have.
    """
    size = -1 if longest is None else longest + 1
    pieces = iter(lambda: file.readline(size), b"")
    # bytes.splitlines knows \n, \r\n and \r only; str.splitlines would cut inside JSON strings.
    lines = (line for piece in pieces for line in piece.splitlines())
    for number, line in enumerate(lines, start=1):
        where = f"{source}, line {number}"
        if longest is not None and len(line) > longest:
            raise UserError(
                "The line is too long.",
                where=where,
                got=f"more than {longest:,} bytes, beginning {line[:40]!r}",
                expected=expected,
            )
        text = decoded(line, where)
        if not text.strip():
            continue
        try:
            value = json.loads(text, object_pairs_hook=no_repeats)
        except (ValueError, RecursionError) as error:
            got = f"{error}; it begins {text[:60]!r}"
            raise UserError(
                "The line is not JSON.", where=where, got=got, expected=expected
            ) from None
        yield where, value


def no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping from pairs; refuses a key that occurs twice."""
    content = dict(pairs)
    if len(content) < len(pairs):
        twice = next(name for i, (name, _) in enumerate(pairs) if name in dict(pairs[:i]))
        raise ValueError(f"one object has the key {twice!r} twice")
    return content


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """A lock that the operating system releases when its holder dies, however it dies.

    Yields False at once if another process holds it and `wait` is off.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path / LOCK)
    with disk(path), suppress(Timeout):  # an OSError too, but not the disk's
        lock.acquire(timeout=-1 if wait else 0)
    if not lock.is_locked:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


@contextmanager
def shared(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """A shared lock on what `locked` locks; nobody can lock it alone meanwhile.

    Yields False at once if another process has locked it alone and `wait` is off.
    """
    end = time.monotonic() + PATIENCE
    with disk(path):
        file = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        with disk(path):
            while not (locked_now := _flock(file, fcntl.LOCK_SH)) and (
                wait or time.monotonic() < end
            ):
                time.sleep(0.02)
        yield locked_now
    finally:
        os.close(file)


@contextmanager
def claimed(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Whether this process alone is at work on what the file `path` stands for.

    The file is there as long as the claim; one that a killed process left behind is free.
    """
    with disk(path):
        while (file := _claim(path)) is None and wait:
            time.sleep(0.01)
    if file is None:
        yield False
        return
    try:
        yield True
        with suppress(OSError):
            path.unlink()
    finally:
        os.close(file)


def _claim(path: Path) -> int | None:
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    # Whoever had it may have removed the file since it was opened: a lock on that is worth nothing.
    if _flock(file, fcntl.LOCK_EX) and _same(file, path):
        return file
    os.close(file)
    return None


def _flock(file: int, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _same(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False
