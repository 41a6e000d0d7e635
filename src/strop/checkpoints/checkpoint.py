"""From what a user writes to a checkpoint's tensors: paths, hub ids, training files, `embedded:`.

Nothing here runs code from a checkpoint: safetensors hold none, pickles go through `pickles.py`,
and of a hub repository only the weights, the configuration and the tokenizer are fetched.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from strop import assets
from strop.assets import known_source
from strop.checkpoints import hub, smollm2
from strop.checkpoints.config import (
    BUFFER,
    DISCRIMINATOR,
    Modules,
    backbone_only,
    didi_modules,
    few,
)
from strop.checkpoints.family import described, family_of_config, family_of_keys, flat_config
from strop.checkpoints.files import (
    has_tokenizer,
    opening,
    read_json_object,
    refuse_mistyped,
    refuse_training_run,
    sha256_of_all,
)
from strop.checkpoints.pickles import load_pickle
from strop.errors import UserError, unknown_name

_TORCH = (".ckpt", ".pth", ".pt")
_SUFFIXES = (".safetensors", *_TORCH)
_READ = (*_SUFFIXES, ".json", ".txt", ".model", ".bin")


@dataclass(frozen=True)
class Checkpoint:
    """The weights of one network and what is known about them."""

    source: str
    """As the user wrote it."""
    path: Path
    """The weights file; of sharded weights, the index."""
    tensors: dict[str, Tensor]
    """By bare backbone key, on the CPU, in the stored dtype. May be views of the mapped file."""
    config: dict[str, Any]
    """The known fields of the configuration under the hub's flat names."""
    sha256: str
    """Of the weights file's bytes; of shards, of what `sha256sum` prints for them."""
    weights: Literal["ema", "raw", "released"]
    """Averaged or raw weights of a training file; a safetensors file has one set: released."""
    tokenizer_dir: Path | None
    """The directory beside the weights, where it holds a tokenizer."""
    revision: str | None
    """The hub commit the files come from."""
    family: str | None = None
    """As far as the files say; some do not."""
    modules: Modules = field(default_factory=dict)
    """Networks beside the main one, such as a discriminator."""


@dataclass(frozen=True)
class Located:
    """Where a checkpoint lies on this machine."""

    source: str
    """As the user wrote it."""
    path: Path
    """A directory or a file that exists."""
    revision: str | None
    """The hub commit the files come from."""
    sha256: str | None = None
    """Of the weights as published, where the directory holds a converted copy."""


def read_checkpoint(
    source: str | os.PathLike[str] | Located,
    *,
    revision: str | None = None,
    weights: Literal["ema", "raw"] | None = None,
) -> Checkpoint:
    """Read a checkpoint from a path, a hub id, or the package's own models.

    `source` is a directory in the hub layout, a `.safetensors` or training file (`.ckpt`, `.pth`,
    `.pt`), a hub id `owner/name[@revision]`, or `embedded:NAME`. An existing path wins over a hub
    id. `weights` chooses between the averaged and the raw weights of a training file.
    """
    if weights not in (None, "ema", "raw"):
        raise unknown_name("choice of weights", str(weights), ["ema", "raw"])
    located = source if isinstance(source, Located) else locate(source, revision)
    return _read_path(located.source, located.path, weights, located.revision)


def locate(source: str | os.PathLike[str], revision: str | None) -> Located:
    """Find a checkpoint's files, downloading them where `source` is a hub id."""
    text = os.fspath(source)
    if not text.strip():
        raise UserError("The checkpoint's name is empty.", expected="a path or a hub id")
    if text.startswith(assets.EMBEDDED):
        _no_revision(text, revision)
        return Located(text, assets.embedded_path(text), None)
    path = Path(text).expanduser()
    with opening(path):
        exists = path.exists()
    if exists:
        _no_revision(text, revision)
        return Located(text, path, None)
    text = known_source(text) or text
    if text == smollm2.NAME:
        _no_revision(text, revision)
        return Located(text, smollm2.converted(), None, smollm2.sha256())
    refuse_mistyped(text)
    repo, revision = _hub_id(text, path, revision)
    folder = hub.fetch(repo, revision)
    return Located(text, folder, folder.name)


def fingerprint(source: str, revision: str | None) -> str:
    """One SHA-256 for all files of a checkpoint that could be read, to compare machines by."""
    path = locate(source, revision).path
    if not path.is_dir():
        return sha256_of_all([path])
    with opening(path):
        return sha256_of_all([file for file in path.iterdir() if file.suffix in _READ])


def _no_revision(source: str, revision: str | None) -> None:
    if revision is not None:
        raise UserError(
            "A revision belongs to a hub id, and this is a local checkpoint.",
            where=source,
            got=f"revision {revision!r}",
            fix="leave the revision out",
        )


def _hub_id(text: str, path: Path, revision: str | None) -> tuple[str, str | None]:
    """Split `owner/name@revision`, or say that a path is missing."""
    repo, at, named = text.partition("@")
    looks_like_path = (
        text.startswith((".", "/", "~", "\\"))
        or Path(repo).suffix.lower() in _SUFFIXES
        or repo.count("/") != 1
        or "\\" in repo
    )
    if looks_like_path:
        raise UserError(
            "There is no such checkpoint.",
            where=path,
            expected="an existing directory or weights file, a hub id owner/name, "
            f"{assets.EMBEDDED}NAME, or a name of `strop models`",
            fix="check the path",
        )
    if at and not named:
        raise UserError("The revision after '@' is empty.", where=text, fix=f"write {repo}")
    if named and revision not in (None, named):
        raise UserError(
            "Two different revisions are given.",
            where=text,
            got=f"{named!r} after '@' and revision={revision!r}",
            fix="give one of them",
        )
    return repo, named or revision


def _read_path(
    source: str, path: Path, weights: Literal["ema", "raw"] | None, revision: str | None
) -> Checkpoint:
    file = _weights_file(path) if path.is_dir() else path
    config_file = file.parent / "config.json"
    with opening(config_file):
        exists = config_file.exists()
    beside = read_json_object(config_file) if exists else {}
    config, family = flat_config(beside, config_file), family_of_config(beside)
    if file.suffix.lower() in _TORCH:
        kind = weights or "ema"
        tensors, own_config, named, modules = _read_training_file(file, kind)
        config, family, files = {**config, **own_config}, named or family, [file]
    elif file.suffix.lower() == ".safetensors" or file.name == hub.INDEX:
        shards = hub.shard_names(file) if file.name == hub.INDEX else [file.name]
        files = [file.parent / name for name in shards]
        stored = _read_safetensors(files)
        several = family_of_keys(stored)
        if several is None:
            refuse_choice(weights, file, "A safetensors file")
        kind = weights or ("ema" if several else "released")
        if several:
            family = several
            tensors, modules = didi_modules(stored, file, weights or "ema")
        else:
            tensors, modules = backbone_only(stored, file, bare=True), {}
            judge = file.parent / hub.DISCRIMINATOR
            if file.name in (hub.WEIGHTS, hub.INDEX) and judge.is_file():
                family, files = "didi", [*files, judge]
                modules = {DISCRIMINATOR: _read_safetensors([judge])}
    else:
        raise UserError(
            "The file's kind is unknown.",
            where=file,
            got=f"suffix {file.suffix!r}",
            expected="one of " + ", ".join(_SUFFIXES) + ", or a directory",
            fix="convert the weights to safetensors",
        )
    return Checkpoint(
        source=source,
        path=file,
        tensors=tensors,
        config=config,
        sha256=sha256_of_all(files),
        weights=kind,
        tokenizer_dir=file.parent if has_tokenizer(file.parent) else None,
        revision=revision,
        family=family,
        modules=modules,
    )


def refuse_choice(weights: str | None, where: object, what: str) -> None:
    """Refuse a choice of weights where there is only one set."""
    if weights is not None:
        raise UserError(
            f"{what} has one set of weights; there is nothing to choose.",
            where=where,
            got=f"weights={weights!r}",
            fix="leave weights out",
        )


def _weights_file(directory: Path) -> Path:
    """The one weights file of a directory; the hub's names win over others."""
    with opening(directory):
        names = sorted(p.name for p in directory.iterdir())
    canonical = [name for name in (hub.WEIGHTS, hub.INDEX) if name in names]
    if not canonical:
        refuse_training_run(directory)
    weights = canonical or [n for n in names if Path(n).suffix.lower() in _SUFFIXES]
    if not weights:
        raise UserError(
            "The directory holds no weights.",
            where=directory,
            got=few(names) if names else "an empty directory",
            expected=f"{hub.WEIGHTS}, {hub.INDEX}, or one file with a suffix of "
            + ", ".join(_SUFFIXES),
            fix="check the path, or finish the download",
        )
    if len(weights) > 1:
        raise UserError(
            "The directory holds several weight files.",
            where=directory,
            got=few(weights),
            expected="one",
            fix=f"pass the file itself: {directory / weights[0]}",
        )
    return directory / weights[0]


def _read_safetensors(files: list[Path]) -> dict[str, Tensor]:
    """The tensors of one file or of all shards."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = {}
    for file in files:
        # The library calls every file that it cannot open missing; opening it ourselves tells why.
        with opening(file), file.open("rb"):
            try:
                tensors |= load_file(file)
            except SafetensorError as error:
                raise damaged(file, error) from error
    return tensors


def damaged(file: Path, error: Exception) -> UserError:
    """The error for a file that the safetensors library refuses."""
    with file.open("rb") as stream:
        head = stream.read(64)
    size = file.stat().st_size
    if head.startswith(b"version https://git-lfs"):
        return UserError(
            "The weights are a Git LFS pointer, not the weights.", where=file, fix="git lfs pull"
        )
    return UserError(
        "The weights are truncated or not in safetensors format.",
        where=file,
        got=f"{size:,} bytes: {error}",
        fix="copy or download the file again and compare its size or SHA-256 with the source",
    )


def _read_training_file(
    path: Path, weights: Literal["ema", "raw"]
) -> tuple[dict[str, Tensor], dict[str, Any], str | None, Modules]:
    """The raw or averaged (EMA) network of a training file, its configuration, family and others.

    A Lightning `.ckpt` has a `state_dict` with prefixed keys (MDLM, DUO, DiDi-Instruct); SEDD's
    `.pth` has a `model` with bare ones. Both have an `ema`, except DiDi-Instruct's, whose average
    is one of its networks.
    """
    content = load_pickle(path)
    entries = content if isinstance(content, dict) else {}
    state = entries.get("state_dict")
    if not isinstance(state, dict) and isinstance(entries.get("model"), dict) and "ema" in entries:
        raw = _tensors_only(entries["model"], path)
        tensors = raw if weights == "raw" else _averaged(raw, entries["ema"], path)
        return tensors, {}, "sedd", {}
    if not isinstance(state, dict):
        raise UserError(
            "The file is not a training checkpoint of the public code.",
            where=path,
            got=_got(content),
            expected="a top-level 'state_dict' of tensors by name, or SEDD's 'model' and 'ema'",
            fix="pass a Lightning .ckpt, or a directory with model.safetensors and config.json",
        )
    tensors, hyper = _tensors_only(state, path), entries.get("hyper_parameters")
    config = flat_config(hyper, path)
    if family_of_keys(tensors):
        student, others = didi_modules(tensors, path, weights)
        return student, config, "didi", others
    raw = backbone_only(tensors, path, bare=False)
    tensors = raw if weights == "raw" else _averaged(raw, entries.get("ema"), path)
    return tensors, config, family_of_config(hyper), {}


def _got(content: Any) -> str:
    if not isinstance(content, dict):
        return described(content)
    if "state_dict" in content:
        return f"a 'state_dict' that is {described(content['state_dict'])}"
    return f"the keys {few(list(map(repr, content)))}" if content else "an empty mapping"


def _tensors_only(state: dict[Any, Any], path: Path) -> dict[str, Tensor]:
    odd = [repr(k) for k, v in state.items() if not (isinstance(k, str) and isinstance(v, Tensor))]
    if odd:
        raise UserError(
            "The checkpoint's state_dict holds things that are not tensors.",
            where=path,
            got=few(odd),
        )
    return state


def _averaged(raw: dict[str, Tensor], ema: Any, path: Path) -> dict[str, Tensor]:
    """The EMA weights under the names of the raw ones.

    The average is a bare list in the order of the network's parameters, which is the order of the
    state dict without its buffer. Entries after the backbone's belong to the noise schedule.
    """
    shadow = ema.get("shadow_params") if isinstance(ema, dict) else None
    if not isinstance(shadow, (list, tuple)) or not shadow:
        raise UserError(
            "The checkpoint holds no averaged (EMA) weights.",
            where=path,
            expected="a top-level 'ema' with a list 'shadow_params'",
            fix="ask for the raw weights: `weights=raw`",
        )
    names = [name for name in raw if name != BUFFER]
    if len(shadow) < len(names) or not all(isinstance(p, Tensor) for p in shadow):
        raise UserError(
            "The averaged (EMA) weights do not match the network.",
            where=path,
            got=f"{sum(isinstance(p, Tensor) for p in shadow)} averaged tensors",
            expected=f"at least {len(names)}, one per parameter of the backbone",
            fix="ask for the raw weights: `weights=raw`",
        )
    pairs = list(zip(names, shadow, strict=False))
    wrong = [
        f"{name}: {tuple(p.shape)} instead of {tuple(raw[name].shape)}"
        for name, p in pairs
        if p.shape != raw[name].shape
    ]
    if wrong:
        raise UserError(
            "The averaged (EMA) weights do not have the shapes of the network's parameters.",
            where=path,
            got=few(wrong),
            fix="ask for the raw weights: `weights=raw`",
        )
    return {**raw, **dict(pairs)}
