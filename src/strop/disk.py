"""Files that are complete or absent, and the disk's refusals in words.

Whatever writes (runs, checkpoints, shards) writes beside the place and renames: a process that is
killed leaves a temporary file at most, never half of a result.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from strop.errors import UserError

TEMPORARY = ".tmp-"
"""How the names of unfinished files begin; the next session removes them."""

LOCK = ".lock"
"""The file that a lock is held on; it stays behind, empty."""

CLAIM = ".claim-"
"""How the names of files begin that say that somebody is at work on something."""

PATIENCE = 0.2
"""Seconds in which a lock that is held for a moment only is free again."""

DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
NOT_ALLOWED = {errno.EROFS, errno.EACCES, errno.EPERM}


@contextmanager
def disk(path: Path) -> Iterator[None]:
    """The disk's refusals in words. What was written before is complete and stays."""
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
            what = "The run directory cannot be made here, or has gone."
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
    """Refusals to read in words; that a file is not there is for the caller to judge."""
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


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """A lock that the operating system releases when its holder dies, however it dies.

    Yields False at once if somebody else holds it and `wait` is off.
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
    """A hold on what `locked` locks that others may have too, but nobody alone meanwhile.

    Yields False at once if somebody has it alone and `wait` is off.
    """
    end = time.monotonic() + PATIENCE
    with disk(path):
        file = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        with disk(path):
            while not (mine := _flock(file, fcntl.LOCK_SH)) and (wait or time.monotonic() < end):
                time.sleep(0.02)
        yield mine
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
