"""Files that are complete or absent, and the disk's refusals in words.

Whatever writes (runs, checkpoints, shards) writes beside the place and renames: a process that is
killed leaves a temporary file at most, never half of a result.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from strop.errors import UserError

__all__ = ["LOCK", "TEMPORARY", "disk", "locked", "reading", "replacing", "sync_folder", "write"]

TEMPORARY = ".tmp-"
"""How the names of unfinished files begin; the next session removes them."""

LOCK = ".lock"
"""The file that a lock is held on; it stays behind, empty."""

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
