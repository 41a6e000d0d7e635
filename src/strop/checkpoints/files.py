"""Opening and hashing files so that every failure is one readable message.

What transformers loads, it loads here: one function, so that no call can forget what we promise.

No code of a checkpoint runs, nobody is asked anything, nothing comes from a network, and what the
library prints is no part of a command's answer.

A family's public layout, for writing small checkpoints that its users could have published.
"""

from __future__ import annotations

import difflib
import errno
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from strop import assets
from strop.checkpoints.config import DiTShape, Sizes
from strop.disk import write
from strop.errors import UserError, missing_package

# ------------------------------------------------------------------------------------------ files


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Whatever the operating system says against a file that a user named, in words.

    That it is not there is the user's error too; `strop.disk.reading` leaves that to its caller.
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
            "The file may not be read by this user.",
            where=path,
            got=error.strerror or "permission denied",
            fix=f"chmod u+r {path}, or copy it to a place of your own",
        ) from error
    except IsADirectoryError as error:
        raise UserError(
            "A file was expected and this is a directory.", where=path, fix="check the path"
        ) from error
    except OSError as error:
        what = error.strerror or (errno.errorcode.get(error.errno or 0) or str(error))
        raise UserError("The file cannot be read.", where=path, got=what) from error


def refuse_pipes(path: Path) -> None:
    """Refuse what is no file, and a directory with such an entry: reading could wait for ever."""
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
            fix="download the file again or write it anew",
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


# ---------------------------------------------------------------------------------------- foreign

FIXED = {"trust_remote_code": False, "local_files_only": True}
"""Whatever a caller says."""
ASKS = "auto_map"
"""Where a configuration names classes of its own, in files beside it."""


def library() -> Any:
    """transformers, if it is installed."""
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise (missing_package(error) or error) from None
    return transformers


def load_foreign(kind: str, directory: str | os.PathLike[str], **options: Any) -> Any:
    """What the class `kind` of transformers makes of the files in a directory.

    A checkpoint whose architecture the library has itself is read by the library's own class, also
    if it brings another; one that cannot do without its own code is refused.
    """
    folder = Path(directory)
    try:
        with quiet():
            return getattr(library(), kind).from_pretrained(str(folder), **{**options, **FIXED})
    except ValueError as error:
        wanted = _own_code(folder) if "trust_remote_code" in str(error) else []
        if not wanted:
            raise
        raise UserError(
            "This checkpoint asks for code of its own to be run, and strop runs none.",
            where=folder,
            got="; ".join(wanted)[:300],
            expected="an architecture and a tokenizer that transformers has itself",
            fix="upgrade transformers, which may know the architecture by now, "
            "or choose another checkpoint",
        ) from error


def empty_foreign(kind: str, config: Any) -> Any:
    """The network that the class `kind` of transformers makes of a configuration, untrained."""
    with quiet():
        return getattr(library(), kind).from_config(config, trust_remote_code=False)


def _own_code(place: Path) -> list[str]:
    """What a checkpoint would have run, by the files that say so."""
    claims = []
    for name in ("config.json", "tokenizer_config.json"):
        named = read_json_object(place / name).get(ASKS) if (place / name).is_file() else None
        if named:
            classes = named.values() if isinstance(named, dict) else [named]
            claims.append(f"{name}: {ASKS} names {', '.join(map(str, classes))}")
    return claims


@contextmanager
def unasked() -> Iterator[None]:
    """Let a library neither ask on standard input nor print on standard output."""
    asked = sys.stdin
    with open(os.devnull) as nothing, redirect_stdout(sys.stderr):
        sys.stdin = nothing
        try:
            yield
        finally:
            sys.stdin = asked


@contextmanager
def quiet() -> Iterator[None]:
    """No questions, progress bars or warnings of transformers: what matters is checked here."""
    logging = library().utils.logging
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with unasked():
            yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


# ----------------------------------------------------------------------------------------- layout


@dataclass(frozen=True)
class Layout:
    """What lies in the directory of a released checkpoint."""

    config: dict[str, Any]
    """config.json."""
    sizes: Sizes
    """The tensors of model.safetensors, under the keys of the network itself."""
    prefix: str = ""
    """What the file puts before these keys."""
    beside: dict[str, Sizes] = field(default_factory=dict)
    """Further networks, by file name."""
    texts: dict[str, str] = field(default_factory=dict)
    """Files of words, such as a tokenizer's, by name."""
    silent: dict[str, int] = field(default_factory=dict)
    """Rows of tensors that are zero in random weights."""


def flat_names(shape: DiTShape, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """The hub's flat configuration of a diffusion transformer."""
    names = {"length": "model_length"}
    return {names.get(k, k): v for k, v in vars(shape).items() if k not in without}


def write_checkpoint(
    path: Path,
    layout: Layout,
    tensors: Mapping[str, Tensor],
    beside: Mapping[str, Mapping[str, Tensor]] | None = None,
) -> None:
    """A checkpoint in its layout; the configuration comes last and means that it is complete."""
    from safetensors.torch import save

    path.mkdir(parents=True, exist_ok=True)
    for name, others in (beside or {}).items():
        write(path / name, save({key: value.contiguous() for key, value in others.items()}))
    for name, text in layout.texts.items():
        write(path / name, text.encode())
    stored = {layout.prefix + key: value.contiguous() for key, value in tensors.items()}
    write(path / "model.safetensors", save(stored, metadata={"format": "pt"}))
    write(path / "config.json", (json.dumps(layout.config, indent=2) + "\n").encode())


def write_random(path: Path, layout: Layout, seed: int) -> None:
    """A checkpoint in its layout that nobody trained: the same for the same seed."""
    beside = {
        name: _random_tensors(sizes, seed + 1 + i)
        for i, (name, sizes) in enumerate(layout.beside.items())
    }
    tensors = _random_tensors(layout.sizes, seed)
    for key, row in layout.silent.items():
        tensors[key][row] = 0.0
    write_checkpoint(path, layout, tensors, beside)


def _random_tensors(sizes: Sizes, seed: int) -> dict[str, Tensor]:
    """Weights of a moderate size for every tensor."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for key, size in sizes.items():
        if "norm" in key or "ln_f" in key:
            value = torch.ones(size)
        elif key == "output_layer.linear.bias":
            rank = torch.randperm(size[0], generator=generator).float()
            value = -(rank + 2).log()
        else:
            value = torch.randn(size, generator=generator) * (0.5 if len(size) == 1 else 1.0)
            value = value / (size[-1] ** 0.5 if len(size) == 2 else 10.0)
        tensors[key] = value
    for key in [k for k in tensors if k.endswith("weight_orig")]:
        left, scale, right = torch.linalg.svd(tensors[key], full_matrices=False)
        tensors[key.replace("_orig", "_u")] = left[:, 0].contiguous()
        tensors[key.replace("_orig", "_v")] = right[0].contiguous()
        tensors[key] = tensors[key] / scale[0]
    return tensors
