"""Fetching a checkpoint from the Hugging Face hub: files only, never code."""

from __future__ import annotations

import logging
import socket
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Literal, NoReturn
from urllib.parse import urlsplit
from urllib.request import getproxies

from strop.checkpoints.files import read_json_object
from strop.errors import UserError

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
DISCRIMINATOR = "discriminator.safetensors"
"""DiDi-Instruct's second network."""
_OPTIONAL = (
    "config.json",
    "tokenizer.json",
    "vocab.json",
    "merges.txt",
    "tokenizer_config.json",
    "chat_template.jinja",
    DISCRIMINATOR,
)


def fetch(repo: str, revision: str | None, more: Sequence[str] = ()) -> Path:
    """Download the weights, the configuration and the tokenizer of `repo`, or find them cached.

    The folder, laid out like the repository and named after the commit that the files belong to.

    `more` names further files that are fetched where the repository has them.
    """
    weights = _weights(repo, revision)
    # The branch may move while we read: everything else comes from the commit found first.
    commit = weights.parent.name
    for name in shard_names(weights) if weights.name == INDEX else []:
        if _file(repo, name, commit) is None:
            raise UserError(
                "The hub repository lacks a part of its weights.",
                where=_label(repo, revision),
                got=f"no file {name}",
                expected=f"every file that {INDEX} names",
            )
    _fetch_optional(repo, commit, (*_OPTIONAL, *more))
    return weights.parent


def config_of(repo: str, revision: str | None) -> Path | None:
    """The configuration of `repo`, in a folder that is named after the commit; None without one."""
    return _file(repo, "config.json", revision)


def _weights(repo: str, revision: str | None) -> Path:
    """The weights file, or the index of sharded weights."""
    try:
        weights = _file(repo, WEIGHTS, revision) or _file(repo, INDEX, revision)
    except UserError as error:
        # A cache filled by another tool does not remember which files the repository lacks.
        cached = _cached(repo, INDEX, revision) if _unreachable(error) else None
        if not cached:
            raise
        return Path(cached)
    if weights is None:
        raise UserError(
            "The hub repository has no weights in safetensors format.",
            where=_label(repo, revision),
            expected=f"{WEIGHTS} or {INDEX}",
            fix=f"download its weights by hand ({_by_hand(repo, revision)}) and pass the file",
        )
    return weights


def _fetch_optional(repo: str, commit: str, names: Sequence[str]) -> None:
    """The files a checkpoint may lack; cached weights stay usable where the hub is out of reach."""
    unknown = []
    for name in names:
        if _cached(repo, name, commit) is not None:
            continue
        if not unknown:  # after one failure the others would only wait for the same
            try:
                _file(repo, name, commit)
                continue
            except UserError as error:
                if not _unreachable(error):
                    raise
        unknown.append(name)
    if unknown:
        warnings.warn(
            f"{repo}: the hub cannot be reached to look for {', '.join(unknown)}; "
            "going on with the files in the local cache",
            UserWarning,
            stacklevel=4,
        )


def shard_names(index: Path) -> list[str]:
    """The files that a sharded checkpoint's index names, each once, in order."""
    places = read_json_object(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise UserError(
            "The index of the sharded weights names no files.",
            where=index,
            expected='an object "weight_map" from tensor names to file names',
            fix="download the index again",
        )
    names = sorted({str(name) for name in places.values()})
    # The index is the author's text: a name with a path in it could reach any file.
    bad = [n for n in names if Path(n).name != n or "\\" in n or not n.endswith(".safetensors")]
    if bad:
        raise UserError(
            "The index of the sharded weights names something that is not a file beside it.",
            where=index,
            got=repr(bad[0])[:120],
            expected="a plain file name that ends in .safetensors",
        )
    return names


def _file(repo: str, name: str, revision: str | None) -> Path | None:
    """One file of the repository, or None where the repository has no such file."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        with _quiet():
            away = _unresolved() is not None  # the library would try for most of a minute
            return Path(hf_hub_download(repo, name, revision=revision, local_files_only=away))
    except LocalEntryNotFoundError as error:
        # Out of reach. What the cache remembers as absent is absent, not unknown.
        if _cached(repo, name, revision) is False:
            return None
        _explain(error, repo, revision, name)
    except EntryNotFoundError:
        return None
    except Exception as error:
        _explain(error, repo, revision, name)


@cache
def _unresolved() -> str | None:
    """Why the hub's name has no address here; None if it has one, or a proxy is to find it."""
    from huggingface_hub.constants import ENDPOINT, HF_HUB_OFFLINE

    address = urlsplit(ENDPOINT)
    if HF_HUB_OFFLINE or address.scheme in getproxies() or address.hostname is None:
        return None
    try:
        socket.getaddrinfo(address.hostname, None)
    except OSError as error:
        return f"{address.hostname}: {error.strerror or error}"
    return None


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the library's lines about each retry; the outcome is reported."""
    logger = logging.getLogger("huggingface_hub")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _cached(repo: str, name: str, revision: str | None) -> str | Literal[False] | None:
    """The cached file's path, False where the cache knows that there is none, else None."""
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(repo, name, revision=revision)
    return cached if cached is None or isinstance(cached, str) else False


def _unreachable(error: UserError) -> bool:
    from huggingface_hub.errors import LocalEntryNotFoundError

    return isinstance(error.__cause__, LocalEntryNotFoundError)


def _explain(error: Exception, repo: str, revision: str | None, name: str) -> NoReturn:
    from huggingface_hub import errors

    then = f"{_by_hand(repo, revision)}, then pass that directory"
    got: object = None
    expected = None
    if isinstance(error, errors.GatedRepoError):
        what = "The hub repository is gated: its owner must grant access first."
        fix = f"ask for access on its page, run `hf auth login`, and try again; or {then}"
    elif isinstance(error, errors.RepositoryNotFoundError):
        what = "The hub has no such repository, or it is private."
        expected = "an existing path, or a hub id such as kuleshov-group/mdlm-owt"
        fix = f"check the name; for a private one run `hf auth login`, or {then}"
    elif isinstance(error, errors.RevisionNotFoundError):
        what, got = "The hub repository has no such revision.", revision
        fix = "check the branch, tag or commit on the repository's page"
    elif isinstance(error, errors.HFValidationError):
        what = "This is neither an existing path nor a hub id."
        expected, fix = "owner/name or owner/name@revision", "check the path"
    elif isinstance(error, errors.LocalEntryNotFoundError):
        what = f"There is no directory {repo} here, the hub cannot be reached, and {name} "
        what += "of that repository is not in the local cache."
        got, fix = _unresolved() or _cause(error), f"on a machine with network access: {then}"
    # A failed transfer comes as an HTTP or operating system error of many kinds.
    elif isinstance(error, (errors.HfHubHTTPError, OSError)) or "httpx" in type(error).__module__:
        what, got = f"The download of {name} failed.", _cause(error)
        fix = f"try again; or {then}"
    else:
        raise error
    where = _label(repo, revision)
    raise UserError(what, where=where, got=got, expected=expected, fix=fix) from error


def _cause(error: Exception) -> str:
    text = str(error.__cause__ or error).strip().splitlines()
    kind = type(error.__cause__ or error).__name__
    return f"{kind}: {text[0][:200]}" if text else kind


def _label(repo: str, revision: str | None) -> str:
    return f"{repo}@{revision}" if revision else repo


def _by_hand(repo: str, revision: str | None) -> str:
    at = f" --revision {revision}" if revision else ""
    return f"hf download {repo}{at} --local-dir {repo.split('/')[-1]}"
