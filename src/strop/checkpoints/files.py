"""Opening and hashing files so that every failure is one readable message."""

from __future__ import annotations

import difflib
import errno
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from strop import assets
from strop.errors import UserError


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Turn errors of the operating system about a file that a user named into `UserError`s.

    A missing file is the user's error too; `strop.disk.reading` leaves that to its caller.
    """
    try:
        refuse_pipes(path)
        yield
    except FileNotFoundError as error:
        raise UserError(
            "There is no such file or directory.", where=path, fix="check the path"
        ) from error
    except PermissionError as error:
        raise UserError(
            "This user may not read the file.",
            where=path,
            got=error.strerror or "permission denied",
            fix=f"chmod u+r {path}, or copy it to a directory of your own",
        ) from error
    except IsADirectoryError as error:
        raise UserError(
            "A file was expected and this is a directory.", where=path, fix="check the path"
        ) from error
    except OSError as error:
        what = error.strerror or (errno.errorcode.get(error.errno or 0) or str(error))
        raise UserError("The file cannot be read.", where=path, got=what) from error


def refuse_pipes(path: Path) -> None:
    """Refuse pipes and devices, also inside a directory: reading them could wait for ever."""
    for entry in [path, *path.iterdir()] if path.is_dir() else [path]:
        if entry.exists() and not (entry.is_file() or entry.is_dir()):
            raise UserError(
                "This is a pipe or a device, not a file.",
                where=entry,
                fix="remove it, or put a file with its content in its place",
            )


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes, as `sha256sum` prints it."""
    with opening(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_of_all(paths: Sequence[Path]) -> str:
    """One SHA-256 for several files of one directory: that of `sha256sum FILES | sha256sum`.

    The files go by name, in order of their names. A single file keeps its own hash.
    """
    if len(paths) == 1:
        return sha256_of(paths[0])
    listing = "".join(f"{sha256_of(p)}  {p.name}\n" for p in sorted(paths, key=lambda p: p.name))
    return hashlib.sha256(listing.encode()).hexdigest()


def read_json_object(path: Path) -> dict[str, Any]:
    """A JSON file whose top level is an object."""
    with opening(path):
        raw = path.read_bytes()
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path.name} is not JSON.",
            where=path,
            got=error,
            fix="download the file again or write a new one",
        ) from error
    if not isinstance(content, dict):
        raise UserError(
            f"{path.name} does not hold a JSON object.",
            where=path,
            got=type(content).__name__,
            expected='an object such as {"model_length": 1024, ...}',
        )
    return content


def refuse_mistyped(text: str) -> None:
    """Say that a local path is wrong before the hub is asked for a repository of that name.

    `runs/x` could be either; where there is a directory `runs`, it is a path.
    """
    path = Path(text).expanduser()
    if text.startswith(assets.EMBEDDED) or path.exists() or "@" in text or len(path.parts) < 2:
        return
    if not path.parent.is_dir():
        return
    with opening(path.parent):
        near = difflib.get_close_matches(path.name, [p.name for p in path.parent.iterdir()], n=1)
    could_be_id = text.count("/") == 1 and not text.startswith((".", "/", "~"))
    fix = f"did you mean {path.parent / near[0]}?" if near else "check the path."
    raise UserError(
        f"There is no such checkpoint: the directory {path.parent} holds no {path.name!r}.",
        where=text,
        expected="an existing directory or weights file",
        fix=fix + (f" If it is a hub id, write {text}@main" if could_be_id else ""),
    )


def refuse_training_run(directory: Path) -> None:
    """A run of `strop train` holds checkpoints, and is none: name the newest."""
    folders = {
        path.parent.name.removeprefix("step-"): path.parent
        for path in directory.glob("checkpoints/step-*/config.json")
    }
    steps = {int(step): folder for step, folder in folders.items() if step.isdecimal()}
    if steps:
        raise UserError(
            "This is a training run, which holds checkpoints, not a checkpoint.",
            where=directory,
            got=f"{len(steps)} checkpoint{'s' if len(steps) > 1 else ''}, the newest of step "
            f"{max(steps):,}",
            expected="one of them",
            fix=f"pass the newest: {steps[max(steps)]}",
        )


def has_tokenizer(directory: Path) -> bool:
    """Whether a tokenizer lies in this directory."""
    return (directory / "tokenizer.json").is_file() or (
        (directory / "vocab.json").is_file() and (directory / "merges.txt").is_file()
    )
